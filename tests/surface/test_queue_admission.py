"""When are jobs refused because too many wait, or stored no faster than asked?"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.surface.conftest import Terminal
from windlass import InvalidValue, Queue, QueueFull
from windlass.clock import ManualClock
from windlass.job import JobState
from windlass.outcome import Done
from windlass.store.engine import Settlement, Want
from windlass.store.jobs import Filter


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> Iterator[Queue]:
    with Queue("sqlite:///:memory:", clock=clock) as queue:
        yield queue


def test_a_full_queue_refuses_and_takes_jobs_again_once_it_has_drained(
    queue: Queue, clock: ManualClock
) -> None:
    @queue.job
    def work() -> None: ...

    @queue.job
    def other() -> None: ...

    queue.store.set_setting("work.hard_depth", "100")
    jobs = queue.enqueue_many(work.draft() for _ in range(95))
    with pytest.raises(QueueFull, match="about 95 jobs of type work are waiting, limit 100") as refused:
        queue.enqueue_many(work.draft() for _ in range(10))
    assert queue.store.count(Filter(), limit=200) == 95
    assert refused.value.retryable
    assert refused.value.retry_after == 5
    other.enqueue()
    queue.enqueue_many(work.draft() for _ in range(5))
    with pytest.raises(QueueFull):
        work.enqueue()

    for job in jobs[:50]:
        queue.cancel(job.id)
    clock.advance(40)
    work.enqueue()


def test_a_full_queue_still_answers_a_request_that_it_has_accepted_before(
    queue: Queue, clock: ManualClock
) -> None:
    @queue.job
    def work() -> None: ...

    queue.store.set_setting("work.hard_depth", "2")
    first = work.options(key="a").enqueue()
    work.options(key="b").enqueue()
    clock.advance(40)
    again = work.options(key="a").enqueue()
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(QueueFull):
        work.options(key="c").enqueue()
    with pytest.raises(QueueFull):
        queue.enqueue_many([work.options(key="a").draft(), work.draft()])


def test_what_others_have_enqueued_counts_too(queue: Queue, clock: ManualClock) -> None:
    @queue.job
    def work() -> None: ...

    queue.store.set_setting("*.hard_depth", "10")
    queue.store.enqueue([work.draft() for _ in range(10)])
    with pytest.raises(QueueFull, match="about 10 jobs in all are waiting"):
        work.enqueue()


def test_a_deep_queue_is_warned_of_and_goes_on(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    @queue.job
    def work() -> None: ...

    queue.store.set_setting("soft_depth", "10")
    with caplog.at_level(logging.WARNING, "windlass.admission"):
        queue.enqueue_many(work.draft() for _ in range(20))
        work.enqueue()
    told = [each.message for each in caplog.records if each.name == "windlass.admission"]
    assert told == ["queue.deep"]


class Busy(Counter[str]):
    """Whoever goes through it step by step finds that another thread has added a type meanwhile."""

    def items(self) -> Any:
        for each in super().items():
            self["another"] += 1
            yield each


def test_a_type_that_another_thread_adds_does_not_disturb_who_counts(
    queue: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.job
    def work() -> None: ...

    work.enqueue()
    clock.advance(2)
    monkeypatch.setattr(queue._admission, "_added", Busy(work=1))  # noqa: SLF001
    work.enqueue()
    assert queue.store.count(Filter(), limit=10) == 2


def test_ended_jobs_fill_nothing(queue: Queue, clock: ManualClock) -> None:
    @queue.job
    def work() -> None: ...

    queue.store.set_setting("hard_depth", "10")
    for _ in range(5):
        for job in queue.enqueue_many(work.draft() for _ in range(10)):
            queue.cancel(job.id)
        clock.advance(40)
    assert queue.store.count(Filter(states=(JobState.CANCELLED,)), limit=100) == 50


def test_jobs_that_run_or_have_ended_do_not_block_admission(store_url: str, windlass: Terminal) -> None:
    clock = ManualClock()
    with Queue(store_url, clock=clock) as queue:

        @queue.job
        def work() -> None: ...

        queue.store.set_setting("work.hard_depth", "10")
        want = Want(worker="w", types={"work": 1}, limit=10, lease=timedelta(hours=1))
        for ends in (True, True, False):
            queue.enqueue_many(work.draft() for _ in range(10))
            clock.advance(40)
            with pytest.raises(QueueFull):
                work.enqueue()
            leases = queue.store.claim(want).leases
            if ends:
                queue.store.settle([Settlement(lease, Done(), timedelta(0)) for lease in leases])
            clock.advance(40)
        queue.enqueue_many(work.draft() for _ in range(10))
        states = Counter(job.state for job in queue.store.find(Filter(), limit=100).jobs)
    assert states == {JobState.COMPLETED: 20, JobState.PROCESSING: 10, JobState.PENDING: 10}


def test_the_depth_is_counted_now_and_then_and_never_with_the_enqueue(
    store_url: str, windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with Queue(store_url, clock=clock) as queue:

        @queue.job
        def work() -> None: ...

        looks: Counter[str] = Counter()

        def count(name: str) -> None:
            verb = getattr(queue.store, name)

            def counted(*args: Any) -> Any:
                looks[name] += 1
                return verb(*args)

            monkeypatch.setattr(queue.store, name, counted)

        count("depths")
        count("take_sample")
        queue.store.set_setting("work.hard_depth", "1000")
        for _ in range(200):
            work.enqueue()
        assert looks == {"depths": 1, "take_sample": 1}
        # A second later it reads the count that is there, half a minute later it has another one made.
        clock.advance(2)
        work.enqueue()
        assert looks == {"depths": 2, "take_sample": 1}
        queue.store.enqueue([work.draft() for _ in range(900)])
        clock.advance(31)
        with pytest.raises(QueueFull, match="about 1,101 jobs of type work"):
            work.enqueue()
        assert looks == {"depths": 3, "take_sample": 2}


def test_a_types_highest_priority_is_kept_by_code_and_operators(queue: Queue, clock: ManualClock) -> None:
    @queue.job(max_priority=3)
    def bulk() -> None: ...

    assert queue.get(bulk.enqueue().id).priority == 3
    with pytest.raises(InvalidValue, match="priority must be at most 3 for jobs of type bulk, got 9"):
        bulk.options(priority=9).enqueue()
    queue.store.set_setting("bulk.max_priority", "9")
    clock.advance(6)
    assert queue.get(bulk.options(priority=9).enqueue().id).priority == 9


def test_many_jobs_are_stored_no_faster_than_asked() -> None:
    with Queue("sqlite:///:memory:") as queue:

        @queue.job
        def work() -> None: ...

        begun = queue.store.now()
        handles = queue.enqueue_many((work.draft() for _ in range(60)), max_per_second=200)
        took = (queue.store.now() - begun).total_seconds()
        assert len(handles) == 60
        assert took >= 0.25
        with pytest.raises(InvalidValue, match="more than 0 per second"):
            queue.enqueue_many([], max_per_second=0)


def test_async_callers_are_paced_and_their_loop_goes_on() -> None:
    with Queue("sqlite:///:memory:") as queue:

        @queue.job
        def work() -> None: ...

        async def paced() -> tuple[int, int]:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            beside = asyncio.create_task(tick())
            handles = await queue.enqueue_many_async((work.draft() for _ in range(60)), max_per_second=200)
            beside.cancel()
            return len(handles), ticks

        begun = queue.store.now()
        stored, ticks = asyncio.run(paced())
        assert (queue.store.now() - begun).total_seconds() >= 0.25
        assert stored == 60
        assert ticks > 0
