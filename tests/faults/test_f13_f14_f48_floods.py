"""F-13, F-14, F-48: more comes in than can be done. Producers are told so, and the urgent goes first."""

from __future__ import annotations

import pytest

from tests.waiting import PATIENCE
from tests.worker.stores import on_both
from windlass import Queue, QueueFull

url = on_both


def test_f13_a_spike_is_taken_up_to_the_limit_and_drained_the_urgent_ones_first(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What waits for a second is given back, and others go first meanwhile: not for a stall of the machine.
    monkeypatch.setattr("windlass.worker.claimer.GIVEN_BACK_AFTER", PATIENCE)
    with Queue(url) as queue:
        ran: list[int] = []

        @queue.job
        def work(priority: int) -> None:
            ran.append(priority)

        queue.store.set_setting("*.hard_depth", "1000")
        for _ in range(20):
            queue.enqueue_many(work.options(priority=each % 10).draft(each % 10) for each in range(50))
        with pytest.raises(QueueFull):
            work.enqueue(5)
        with queue.worker(concurrency=1) as worker:
            while any(
                each.view == "due" or each.state == "processing" for each in queue.store.counts().counts
            ):
                worker.parts.triggers.hint()
        assert ran == sorted(ran, reverse=True)
        assert len(ran) == 1000


def test_f14_one_flooding_type_is_refused_and_the_others_are_not(url: str) -> None:
    with Queue(url) as queue:

        @queue.job
        def flood() -> None: ...

        @queue.job
        def calm() -> None: ...

        queue.store.set_setting("flood.hard_depth", "500")
        refused = 0
        for _ in range(20):
            try:
                queue.enqueue_many(flood.draft() for _ in range(100))
            except QueueFull:
                refused += 1
            calm.enqueue()
        assert refused == 15


def test_f48_with_more_arrivals_than_capacity_critical_work_goes_first_and_producers_are_refused(
    url: str,
) -> None:
    with Queue(url) as queue:
        order: list[str] = []

        @queue.job(priority=1)
        def usual(number: int) -> None:
            order.append(f"usual {number}")

        @queue.job(priority=9)
        def critical() -> None:
            order.append("critical")

        queue.store.set_setting("usual.hard_depth", "50")
        queue.enqueue_many(usual.draft(number) for number in range(50))
        with pytest.raises(QueueFull):
            usual.enqueue(0)
        critical.enqueue()
        with queue.worker(concurrency=1):
            while len(order) < 51:
                queue.store.counts()
        assert order[0] == "critical"
