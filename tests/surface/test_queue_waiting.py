"""Waiting for a job's end, against a real SQLite store and without a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE
from windlass import Job, JobHandle, JobNotFound, JobState, JobType, JobUnsuccessful, Queue, WaitTimeout
from windlass.errors import FatalError, InvalidValue
from windlass.outcome import Dead, Done, Outcome, describe
from windlass.store.engine import Settlement, Want
from windlass.store.upkeep import Retention


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{tmp_path}/jobs.db") as queue:
        yield queue


@pytest.fixture
def noop(queue: Queue) -> JobType[[], None]:
    @queue.job
    def noop() -> None: ...

    return noop


Noop = JobType[[], None]


def settle(queue: Queue, outcome: Outcome) -> None:
    want = Want(worker="w", types={"noop": 1}, limit=1, lease=timedelta(minutes=1))
    [lease] = queue.store.claim(want).leases
    assert queue.store.settle([Settlement(lease, outcome)]) == []


def test_the_result_is_what_the_handler_returned(queue: Queue, noop: Noop) -> None:
    handle = noop.enqueue()
    settle(queue, Done(b'{"a":[1,null]}'))
    assert handle.state is JobState.COMPLETED
    assert handle.result() == {"a": [1, None]}


def test_a_handler_that_returned_nothing_has_the_result_none(queue: Queue, noop: Noop) -> None:
    handle = noop.enqueue()
    settle(queue, Done())
    assert handle.result() is None


def test_a_wait_ends_with_the_job(queue: Queue, noop: Noop) -> None:
    handle = noop.enqueue()
    with ThreadPoolExecutor(2) as pool:
        by_handle = pool.submit(handle.wait, PATIENCE)
        by_name = pool.submit(queue.wait, handle.id, PATIENCE)
        settle(queue, Done())
        assert by_handle.result(PATIENCE).state is by_name.result(PATIENCE).state is JobState.COMPLETED


def test_a_job_that_another_process_finished_ends_the_wait(tmp_path: Path, queue: Queue, noop: Noop) -> None:
    handle = noop.enqueue()
    with Queue(f"sqlite:///{tmp_path}/jobs.db") as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.wait, PATIENCE)
        settle(other, Done())
        assert waiting.result(PATIENCE).ended


def test_a_wait_that_is_over_says_where_the_job_stands_and_leaves_it_alone(noop: Noop) -> None:
    handle = noop.enqueue()
    with pytest.raises(WaitTimeout, match=f"job {handle.id} had not ended after 0.02; it is pending"):
        handle.wait(timeout=0.02)
    with pytest.raises(WaitTimeout):
        handle.wait(timeout=0)
    assert handle.state is JobState.PENDING


def test_a_timeout_is_a_duration(noop: Noop) -> None:
    handle = noop.enqueue()
    with pytest.raises(WaitTimeout):
        handle.wait("10ms")
    with pytest.raises(InvalidValue, match="timeout must be 0s or longer, got -1"):
        handle.wait(-1)


def test_an_unsuccessful_job_has_no_result_but_a_reason(queue: Queue, noop: Noop) -> None:
    handle = noop.enqueue()
    settle(queue, Dead(describe(FatalError("no such account"))))
    assert handle.wait().state is JobState.DEAD
    with pytest.raises(
        JobUnsuccessful,
        match=rf"job {handle.id} ended as dead \(exception\): windlass.errors.FatalError: no such account",
    ):
        handle.result()


def test_a_cancelled_job_is_unsuccessful(queue: Queue, noop: Noop) -> None:
    handle = noop.enqueue()
    queue.cancel(handle.id)
    with pytest.raises(JobUnsuccessful, match="ended as cancelled"):
        handle.result(timeout=PATIENCE)


def test_a_job_whose_record_is_gone_is_not_found(queue: Queue, noop: Noop) -> None:
    handle = noop.enqueue()
    settle(queue, Done())
    queue.store.prune(Retention(ended=timedelta(0), dead=timedelta(0)))
    with pytest.raises(JobNotFound):
        handle.wait()


def test_async_callers_wait_together_on_one_loop(queue: Queue, noop: Noop) -> None:
    async def main() -> list[Any]:
        handles = [noop.enqueue() for _ in range(20)]
        waiting = asyncio.gather(*(handle.result_async(timeout=PATIENCE) for handle in handles))
        for _ in handles:
            await asyncio.to_thread(settle, queue, Done(b"7"))
        return await waiting

    assert asyncio.run(main()) == [7] * 20


def test_async_waits_end_in_time_or_by_cancellation(noop: Noop) -> None:
    async def main(handle: JobHandle) -> None:
        with pytest.raises(WaitTimeout):
            await handle.wait_async(timeout=0.02)
        waiting = asyncio.ensure_future(handle.wait_async())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await waiting
        assert waiting.cancelled()

    asyncio.run(main(noop.enqueue()))


def test_however_many_hints_come_the_store_is_asked_in_measure(queue: Queue, noop: Noop) -> None:
    looks = 0

    class Counting(JobHandle):
        def get(self) -> Job:
            nonlocal looks
            looks += 1
            return super().get()

    handle = noop.enqueue()
    handle.__class__ = Counting
    over = threading.Event()

    def hint() -> None:
        while not over.is_set():
            queue.wakeup.notify()

    hinting = threading.Thread(target=hint)
    hinting.start()
    try:
        with pytest.raises(WaitTimeout):
            handle.wait(timeout=0.2)
    finally:
        over.set()
        hinting.join()
    # At most one every 5 ms, and the first, the last and the one for the message.
    assert looks <= 0.2 / 0.005 + 3
