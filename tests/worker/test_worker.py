"""A worker's life: start, run, drain, stop, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE, until
from tests.worker.scene import claim_ahead
from windlass.config import WorkerConfig
from windlass.context import Context
from windlass.errors import InvalidValue
from windlass.job import JobState, Reason
from windlass.ops import Ops
from windlass.queue import Queue
from windlass.store.jobs import Filter
from windlass.store.operations import State
from windlass.worker import Remaining, Worker


def a_worker(queue: Queue, **config: Any) -> Worker:
    return Worker(queue.store, queue.wakeup, queue.registry, WorkerConfig(**config))


def stopped(queue: Queue) -> list[str]:
    return [worker.state for worker in queue.store.workers()]


class Blocker:
    """Registers a handler that runs until it is released."""

    def __init__(self, queue: Queue) -> None:
        self.entered = threading.Semaphore(0)
        self.release = threading.Event()
        self.handler = queue.job(name="block")(self._block)

    def _block(self) -> str:
        self.entered.release()
        self.release.wait(PATIENCE)
        return "finished"

    def reach(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=PATIENCE)


# --- beside its jobs ---


def test_a_worker_inside_a_program_carries_bulk_operations(queue: Queue) -> None:
    @queue.job
    def later() -> None:
        pass

    handles = [later.options(delay=3600).enqueue() for _ in range(3)]
    begun = Ops(queue.store, by="ann").operations.start("cancel", Filter(types=("later",)))
    with queue.worker():
        until(lambda: queue.store.operation(begun.id).state is State.DONE, "the operation is done")
    assert {handle.state for handle in handles} == {JobState.CANCELLED}


# --- stop ---


def test_a_stop_lets_running_jobs_finish(queue: Queue) -> None:
    block = Blocker(queue)
    handle = block.handler.enqueue()
    worker = a_worker(queue)
    worker.start()
    block.reach()
    threading.Timer(0.2, block.release.set).start()
    worker.stop()
    assert handle.get().state is JobState.COMPLETED
    assert stopped(queue) == ["stopped"]
    # The job ended after the last regular heartbeat, and is counted all the same.
    assert [info.done for info in queue.store.workers()] == [1]


def test_a_stop_gives_back_what_has_not_started_with_its_attempt(queue: Queue) -> None:
    block = Blocker(queue)
    handles = [block.handler.enqueue() for _ in range(10)]
    worker = a_worker(queue, threads=2)
    claim_ahead(worker.parts, "block", time.monotonic())
    worker.start()
    block.reach(2)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until_states(handles, {JobState.PROCESSING: 2, JobState.PENDING: 8})
    assert stopping.is_alive(), "the two go on"
    block.release.set()
    stopping.join(PATIENCE)
    jobs = [handle.get() for handle in handles]
    assert [job.attempts for job in jobs if job.state is JobState.PENDING] == [0] * 8
    assert sum(job.state is JobState.COMPLETED for job in jobs) == 2


def until_states(handles: list[Any], expected: dict[JobState, int]) -> None:
    until(lambda: Counter(handle.state for handle in handles) == expected, f"the states are {expected}")


@pytest.mark.parametrize("kind", ["cooperative", "spinning", "coroutine", "command"])
def test_what_does_not_finish_in_its_grace_is_stopped_and_given_back_at_once(
    queue: Queue, tmp_path: Path, kind: str
) -> None:
    entered = threading.Event()

    @queue.job
    def cooperative(ctx: Context) -> None:
        entered.set()
        ctx.wait_cancelled(PATIENCE)

    @queue.job
    def spinning() -> None:
        entered.set()
        while True:
            pass

    @queue.job
    async def coroutine() -> None:
        entered.set()
        await asyncio.sleep(PATIENCE)

    mark = tmp_path / "mark"
    name, payload = {"command": ("shell", {"command": f"touch {mark}; sleep 100"})}.get(kind, (kind, {}))
    handle = queue.enqueue(name, payload)
    # Those who are told end at once; the rest is time for a machine that stalls.
    patient = {"grace": timedelta(0), "exit_after": timedelta(seconds=PATIENCE)}
    worker = a_worker(queue, shell=True, **patient)  # noqa: S604 - one of the kinds is a command
    worker.start()
    until(lambda: entered.is_set() or mark.exists(), "it begins")
    worker.stop()
    job = handle.get()
    assert (job.state, job.attempts, job.interruptions) == (JobState.PENDING, 0, 1)
    [attempt] = job.history
    assert attempt.error is not None
    assert attempt.error.reason is Reason.INTERRUPTED


def test_a_thread_that_will_not_end_is_given_back_and_the_stop_is_over_in_time(queue: Queue) -> None:
    block = Blocker(queue)
    handle = block.handler.enqueue()
    worker = a_worker(queue, grace=WorkerConfig().grace * 0, exit_after=WorkerConfig().exit_after / 5)
    worker.start()
    block.reach()
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < PATIENCE / 2, "it waited for the thread"
    assert handle.get().state is JobState.PENDING
    block.release.set()


def test_a_stop_is_over_in_time_although_the_store_is_locked(queue: Queue, path: Path) -> None:
    block = Blocker(queue)
    handle = block.handler.enqueue()
    worker = a_worker(queue, grace=WorkerConfig().grace * 0, exit_after=WorkerConfig().exit_after / 15)
    worker.start()
    block.reach()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        began = time.monotonic()
        worker.stop()
        assert time.monotonic() - began < PATIENCE / 2, "it waited for the thread"
        other.execute("rollback")
    block.release.set()
    assert handle.get().state in {JobState.PROCESSING, JobState.PENDING}


def test_a_worker_can_be_stopped_twice_and_not_started_again(queue: Queue) -> None:
    Blocker(queue)
    worker = a_worker(queue)
    worker.start()
    worker.stop()
    worker.stop()
    with pytest.raises(RuntimeError, match="cannot be restarted"):
        worker.start()


def test_a_worker_that_never_started_stops_without_a_word(queue: Queue) -> None:
    Blocker(queue)
    a_worker(queue).stop()
    assert stopped(queue) == []


def test_two_workers_of_one_process_share_the_work_and_the_second_takes_over(queue: Queue) -> None:
    block = Blocker(queue)
    handles = [block.handler.enqueue() for _ in range(2)]
    with queue.worker(threads=1) as first, queue.worker(threads=1) as second:
        block.reach(2)
        owners = {handle.get().worker for handle in handles}
        assert owners == {first.id, second.id}
        first.stop(grace=WorkerConfig().grace * 0)
        block.release.set()
        for handle in handles:
            assert handle.wait(PATIENCE).state is JobState.COMPLETED


def test_many_starts_and_stops_under_load_lose_nothing(queue: Queue) -> None:
    counts: dict[str, int] = {}
    counting = threading.Lock()

    @queue.job
    async def quick(name: str) -> None:
        with counting:
            counts[name] = counts.get(name, 0) + 1

    @queue.job
    def steady(name: str) -> None:
        with counting:
            counts[name] = counts.get(name, 0) + 1

    handles = queue.enqueue_many(
        (quick if number % 2 else steady).draft(f"job{number}") for number in range(1200)
    )
    for _ in range(12):
        with queue.worker(threads=4):
            threading.Event().wait(0.02)
    with queue.worker():
        for handle in handles:
            assert handle.wait(PATIENCE).state is JobState.COMPLETED
    assert set(counts.values()) == {1}, "a stop in good order runs nothing twice"
    assert len(counts) == 1200


# --- run ---


def test_run_works_until_it_is_asked_to_stop(queue: Queue) -> None:
    @queue.job
    def hello() -> str:
        return "hi"

    worker = a_worker(queue)
    answers: list[int] = []
    running = threading.Thread(target=lambda: answers.append(worker.run()))
    running.start()
    assert hello.enqueue().result(PATIENCE) == "hi"
    worker.request_stop()
    running.join(PATIENCE)
    assert answers == [0]


_SIGNALLED = """
import signal, sys, threading
from windlass.queue import Queue
from windlass.worker import Worker
queue = Queue(sys.argv[1])
@queue.job
def work() -> str:
    print("began", flush=True)
    threading.Event().wait(0.5)
    return "finished"
worker = Worker(queue.store, queue.wakeup, queue.registry)
signal.signal(signal.SIGTERM, lambda number, frame: worker.request_stop())
sys.exit(worker.run())
"""


def test_a_signal_stops_run_and_the_running_job_is_finished_first(queue: Queue, path: Path) -> None:
    @queue.job
    def work() -> str:
        return "here, not there"

    handle = work.enqueue()
    with subprocess.Popen(
        [sys.executable, "-c", _SIGNALLED, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert handle.result(PATIENCE) == "finished"


def test_a_worker_that_an_operator_drains_finishes_its_jobs_and_run_returns(queue: Queue) -> None:
    block = Blocker(queue)
    handle = block.handler.enqueue()
    worker = a_worker(queue)
    running = threading.Thread(target=worker.run)
    running.start()
    block.reach()
    queue.store.drain(worker.id)
    late = block.handler.enqueue()
    until(lambda: worker.parts.draining, "it drains")
    block.release.set()
    running.join(PATIENCE)
    assert not running.is_alive()
    assert handle.get().state is JobState.COMPLETED
    assert late.get().state in {JobState.PENDING, JobState.COMPLETED}


def test_until_empty_runs_what_can_run_and_counts_what_it_leaves(queue: Queue) -> None:
    @queue.job
    def fine() -> None:
        pass

    @queue.job
    async def fails() -> None:
        raise ValueError("not yet")

    @queue.job
    def foreign() -> None:
        pass

    done = [fine.enqueue() for _ in range(20)]
    retrying = [fails.enqueue() for _ in range(3)]
    fine.options(delay=3600).enqueue()
    other = foreign.enqueue()
    remaining = a_worker(queue, types=("fine", "fails")).run_until_empty()
    assert remaining == Remaining(scheduled=1, retrying=3)
    assert {handle.get().state for handle in done} == {JobState.COMPLETED}
    assert {handle.get().attempts for handle in retrying} == {1}
    assert other.state is JobState.PENDING


def test_until_empty_tells_apart_what_waits_for_others_and_what_it_cannot_read(queue: Queue) -> None:
    @queue.job(name="work")
    def new(a: int, b: int = 0) -> None:
        pass

    later = new.options(delay=3600).enqueue(1)
    new.options(depends_on=[later.id]).enqueue(2)
    new.enqueue(3, b=1)
    with Queue(queue.store.status().url) as older:

        @older.job(name="work")
        def old(a: int) -> None:
            pass

        remaining = a_worker(older).run_until_empty()
    assert remaining == Remaining(scheduled=1, retrying=0, waiting=1, unreadable=1)


def test_until_empty_waits_for_jobs_that_run_elsewhere(queue: Queue) -> None:
    block = Blocker(queue)
    handle = block.handler.enqueue()
    with queue.worker(threads=1):
        block.reach()
        second = a_worker(queue)
        emptied = threading.Thread(target=second.run_until_empty)
        emptied.start()
        emptied.join(0.5)
        assert emptied.is_alive()
        block.release.set()
        emptied.join(PATIENCE)
        assert not emptied.is_alive()
    assert handle.get().state is JobState.COMPLETED


def test_until_empty_of_an_empty_store_ends_at_once(queue: Queue) -> None:
    Blocker(queue)
    assert a_worker(queue).run_until_empty() == Remaining(scheduled=0, retrying=0)


# --- what it serves ---


def test_patterns_choose_the_types(queue: Queue) -> None:
    for name in ("email.send", "email.digest", "report"):
        queue.job(name=name)(lambda: None)
    assert set(a_worker(queue, types=("email.*",)).types) == {"email.send", "email.digest"}
    assert set(a_worker(queue).types) == {"email.send", "email.digest", "report"}


def test_patterns_that_match_nothing_are_refused_with_what_there_is(queue: Queue) -> None:
    queue.job(name="report")(lambda: None)
    with pytest.raises(InvalidValue, match=r"types must be patterns that match a registered type .*report"):
        a_worker(queue, types=("emial.*",))


def test_starting_puts_the_types_into_the_catalogue(queue: Queue) -> None:
    Blocker(queue)
    with a_worker(queue):
        assert "block" in queue.store.types()
