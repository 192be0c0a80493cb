"""The faults of the catalogue that need no killed process, each under its id."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers.ports import free_port
from tests.waiting import PATIENCE, until
from tests.worker.scene import Still, claim_ahead
from windlass import Context
from windlass.job import JobState, Reason
from windlass.policy import Retry
from windlass.queue import Queue
from windlass.store.jobs import Edit


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A dependency that takes calls and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_f06_a_slow_type_keeps_to_its_pool_and_the_others_keep_their_pace(queue: Queue) -> None:
    released = threading.Event()

    @queue.job
    def slow() -> None:
        released.wait(PATIENCE)

    @queue.job
    def quick() -> str:
        return "done"

    with queue.worker(threads=2, pools=["slow=slow:2"]) as worker:
        waiting = [slow.enqueue() for _ in range(20)]
        assert [quick.enqueue().result(PATIENCE) for _ in range(10)] == ["done"] * 10
        assert sum(each.state is JobState.COMPLETED for each in waiting) == 0, "the slow ones still run"
        assert {pool.name: pool.slots for pool in worker.parts.pools} == {"pool slow": 2, "threads": 2}
        assert max(pool.busy for pool in worker.parts.pools if pool.name == "pool slow") <= 2
        released.set()
        assert {each.wait(PATIENCE).state for each in waiting} == {JobState.COMPLETED}


def test_f06c_a_dependency_that_never_answers_is_a_timeout_and_is_tried_again(queue: Queue) -> None:
    with silent_server() as port:

        @queue.job(timeout=0.3, max_attempts=3, retry=Retry(base=3600, cap=3600, jitter=10))
        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", port)) as link:
                link.settimeout(0.05)
                while True:
                    with contextlib.suppress(TimeoutError):
                        return link.recv(1)

        with queue.worker():
            handle = ask.enqueue()
            until(lambda: queue.get(handle.id).history)
    job = queue.get(handle.id)
    assert job.history[0].error is not None
    assert (job.state, job.history[0].error.reason) == (JobState.PENDING, Reason.TIMEOUT)
    assert timedelta(seconds=3500) < job.run_at - job.updated_at < timedelta(seconds=3700)


def test_f06b_a_dependency_that_is_down_costs_attempts_with_backoff_of_its_own_type_only(
    queue: Queue,
) -> None:
    """What the worker does for it; that a breaker stops the attempts is the store's, and tested there."""
    port = free_port()

    @queue.job(max_attempts=5, retry=Retry(base=3600, cap=3600, jitter=0))
    def ask() -> None:
        socket.create_connection(("127.0.0.1", port)).close()

    @queue.job(max_attempts=1)
    def other(number: int) -> int:
        return number

    with queue.worker(threads=2):
        refused = [ask.enqueue() for _ in range(20)]
        others = [other.enqueue(number) for number in range(20)]
        assert [each.result(PATIENCE) for each in others] == list(range(20))
        until(lambda: all(each.get().history for each in refused))
        with socket.create_server(("127.0.0.1", port)):
            for each in refused:
                # Its time has come: what waited runs, and is done.
                queue.store.edit(each.id, Edit(run_at=queue.store.now()))
            assert {each.wait(PATIENCE).state for each in refused} == {JobState.COMPLETED}
    for each in refused:
        first, second = each.get().history
        assert first.error is not None
        assert (first.error.reason, first.error.kind) == (Reason.EXCEPTION, "ConnectionRefusedError")
        assert second.error is None


class Unprintable(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unpicklable(Exception):
    """An exception that holds what no other process can be given."""


class Huge(BaseException):
    """Not an Exception, with a message of a megabyte."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyboardInterrupt(),
        SystemExit(1),
        Huge("x" * 2**20),
        Unprintable(),
        ValueError("a\0b"),
        Unpicklable(threading.Lock()),
    ],
)
def test_f30_whatever_a_handler_raises_the_worker_goes_on(queue: Queue, error: BaseException) -> None:
    @queue.job(max_attempts=1)
    def raises() -> None:
        raise error

    @queue.job
    def good() -> str:
        return "done"

    with queue.worker(threads=1):
        job = raises.enqueue().wait(PATIENCE)
        assert good.enqueue().result(PATIENCE) == "done"
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert job.error.reason is Reason.EXCEPTION
    assert len(job.error.message) < 3000


def test_f40_what_was_claimed_and_not_started_is_given_back_with_its_attempt(still: Still) -> None:
    parts = still.build(threads=1)
    claim_ahead(parts, "wait", still.clock.monotonic())
    jobs = still.put(5)
    still.run_claimed(1)
    assert len(parts.pools[0].waiting) == 4
    parts.claimer.close(PATIENCE)
    still.settle()
    assert [still.job(job).state for job in jobs[1:]] == [JobState.PENDING] * 4
    assert [still.job(job).attempts for job in jobs[1:]] == [0] * 4
    still.finish()


def test_f42_a_thousand_that_fail_together_come_back_spread_out(queue: Queue) -> None:
    # On a slow machine the breaker would open before the last of them had its turn.
    queue.store.set_setting("breaker.share", "none")

    @queue.job(retry=Retry(kind="fixed", base=3600, cap=3600, jitter=60))
    async def fail() -> None:
        raise ConnectionError("down")

    with queue.worker():
        handles = queue.enqueue_many(fail.draft() for _ in range(1000))
        until(lambda: all(queue.get(handle.id).attempts for handle in handles[-20:]))
        until(lambda: queue.get(handles[0].id).history)
    jobs = [queue.get(handle.id) for handle in handles]
    seconds = Counter(int((job.run_at - job.updated_at).total_seconds()) for job in jobs if job.history)
    assert max(seconds.values()) < 60
    assert len(seconds) > 50


def test_f28_a_handler_can_tell_that_its_effect_was_made_before(queue: Queue, tmp_path: Path) -> None:
    """The key is the same at every attempt, so the second finds what the first has done."""
    seen: list[str] = []

    @queue.job(retry=Retry(kind="fixed", base=0, jitter=0), max_attempts=2)
    def send(ctx: Context) -> str:
        note = tmp_path / ctx.key
        if note.exists():
            return "sent before"
        note.write_text("sent")
        seen.append(ctx.key)
        raise ConnectionError("lost after the effect")

    with queue.worker():
        assert send.options(key="mail-1").enqueue().result(PATIENCE) == "sent before"
    assert seen == ["mail-1"]
