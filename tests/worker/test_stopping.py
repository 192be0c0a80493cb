"""How running work is made to stop: timeouts, cancels, stuck threads, blocked loops."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

import pytest

from tests.waiting import PATIENCE, until
from tests.worker.scene import Still, let_time_be_over
from tests.worker.stores import on_both
from windlass.context import Context, Stopping
from windlass.job import Job, JobState, Reason
from windlass.queue import Queue
from windlass.queue.jobs import Enqueueable
from windlass.worker import Worker

url = on_both


def held(worker: Worker) -> int:
    return sum(pool.held for pool in worker.parts.pools)


def timed_out(job_type: Enqueueable[[]], worker: Worker, entered: threading.Event) -> Job:
    """A job in the midst of which its time is over, once it has ended."""
    handle = job_type.options(max_attempts=1).enqueue()
    assert entered.wait(PATIENCE)
    let_time_be_over(worker.parts)
    return handle.wait(PATIENCE)


# --- timeouts ---


def test_a_thread_past_its_deadline_is_stopped_by_an_exception_that_finally_blocks_see(queue: Queue) -> None:
    seen: list[str] = []
    entered = threading.Event()

    @queue.job(timeout=250)
    def spin() -> None:
        try:
            entered.set()
            while True:
                pass
        except Exception:
            seen.append("swallowed")
            raise
        finally:
            seen.append("cleaned up")

    with queue.worker() as worker:
        job = timed_out(spin, worker, entered)
        until(lambda: held(worker) == 0)
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert (job.error.reason, job.error.message) == (Reason.TIMEOUT, "stopped after its timeout of 250 s")
    assert seen == ["cleaned up"]


def test_a_coroutine_past_its_deadline_is_cancelled(queue: Queue) -> None:
    seen: list[str] = []
    entered = threading.Event()

    @queue.job
    async def wait() -> None:
        try:
            entered.set()
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with queue.worker() as worker:
        job = timed_out(wait, worker, entered)
        until(lambda: held(worker) == 0)
    assert job.error is not None
    assert job.error.reason is Reason.TIMEOUT
    assert seen == ["cancelled"]


def test_a_stuck_thread_is_settled_at_once_and_keeps_its_slot_until_it_ends(queue: Queue) -> None:
    stuck, entered = threading.Event(), threading.Event()

    @queue.job
    def hang() -> str:
        entered.set()
        stuck.wait(PATIENCE)
        return "too late"

    @queue.job
    def other() -> str:
        return "done"

    with queue.worker(threads=2) as worker:
        job = timed_out(hang, worker, entered)
        assert job.state is JobState.DEAD
        assert (held(worker), worker.parts.pools[0].room(time.monotonic())) == (1, 1)
        assert other.enqueue().result(PATIENCE) == "done", "the other slot works on"
        until(lambda: held(worker) == 1)
        stuck.set()
        until(lambda: held(worker) == 0)
    assert queue.get(job.id).result is None


def test_a_coroutine_that_swallows_its_cancellation_is_settled_and_held_too(queue: Queue) -> None:
    release: list[asyncio.Event] = []
    entered, swallowed = threading.Event(), threading.Event()

    @queue.job
    async def stubborn() -> None:
        release.append(asyncio.Event())
        try:
            entered.set()
            await release[0].wait()
        except asyncio.CancelledError:
            swallowed.set()
            await release[0].wait()

    with queue.worker() as worker:
        job = timed_out(stubborn, worker, entered)
        assert job.state is JobState.DEAD
        assert swallowed.wait(PATIENCE)
        assert held(worker) == 1
        worker.parts.runner.coroutines._loop.call_soon_threadsafe(release[0].set)  # noqa: SLF001
        until(lambda: held(worker) == 0)


def test_a_timed_out_attempt_is_retried_like_any_failure(queue: Queue) -> None:
    calls: list[int] = []
    entered = threading.Event()

    @queue.job(name="slow")
    async def slow(ctx: Context) -> str:
        calls.append(ctx.attempt)
        if ctx.attempt == 1:
            entered.set()
            await asyncio.sleep(PATIENCE)
        return "second time lucky"

    queue.store.set_setting("slow.retry.base", "0s")
    queue.store.set_setting("slow.retry.jitter", "0s")
    with queue.worker() as worker:
        handle = slow.enqueue()
        assert entered.wait(PATIENCE)
        let_time_be_over(worker.parts)
        assert handle.result(PATIENCE) == "second time lucky"
    assert calls == [1, 2]
    assert [attempt.outcome for attempt in handle.get().history] == ["retry", "completed"]


def test_a_handler_that_returns_early_because_its_time_is_over_has_not_succeeded(queue: Queue) -> None:
    entered = threading.Event()

    @queue.job
    def obedient(ctx: Context) -> str:
        entered.set()
        ctx.wait_cancelled(PATIENCE)
        return "half of it"

    with queue.worker() as worker:
        job = timed_out(obedient, worker, entered)
    assert job.state is JobState.DEAD
    assert job.result is None


# --- cancel while running ---


def test_a_running_thread_is_cancelled(queue: Queue) -> None:
    entered = threading.Event()

    @queue.job
    def loop_for_ever() -> None:
        entered.set()
        while True:
            pass

    with queue.worker():
        handle = loop_for_ever.enqueue()
        assert entered.wait(PATIENCE)
        assert queue.cancel(handle.id).done is False
        assert handle.wait(PATIENCE).state is JobState.CANCELLED


def test_a_running_coroutine_is_cancelled(queue: Queue) -> None:
    entered = threading.Event()

    @queue.job
    async def sleep() -> None:
        entered.set()
        await asyncio.sleep(PATIENCE)

    with queue.worker():
        handle = sleep.enqueue()
        assert entered.wait(PATIENCE)
        queue.cancel(handle.id)
        job = handle.wait(PATIENCE)
    assert job.state is JobState.CANCELLED
    assert job.history[0].outcome == "cancelled"


def test_a_cooperative_handler_sees_the_request_and_stops_before_its_next_step(queue: Queue) -> None:
    entered = threading.Event()
    steps: list[str] = []

    @queue.job
    def careful(ctx: Context) -> None:
        entered.set()
        if ctx.wait_cancelled(PATIENCE):
            steps.append("tidied up")
            return
        steps.append("went on")

    with queue.worker():
        handle = careful.enqueue()
        assert entered.wait(PATIENCE)
        queue.cancel(handle.id)
        assert handle.wait(PATIENCE).state is JobState.CANCELLED
    assert steps == ["tidied up"]


def test_a_handler_that_does_not_look_for_the_request_is_broken_off_all_the_same(queue: Queue) -> None:
    entered = threading.Event()

    @queue.job
    def careless(ctx: Context) -> None:
        entered.set()
        while True:
            pass

    with queue.worker() as worker:
        handle = careless.enqueue()
        assert entered.wait(PATIENCE)
        queue.cancel(handle.id)
        assert handle.wait(PATIENCE).state is JobState.CANCELLED
        assert held(worker) == 0, "it was broken off in time"


# --- the exception strikes only where it was aimed ---


def test_the_exception_never_strikes_the_next_job_or_our_own_code(queue: Queue) -> None:
    """Many jobs end within a hair of their deadline; each of them, and the worker, must come out whole."""

    @queue.job(timeout=0.02)
    def close_call(number: int) -> int:
        end = time.monotonic() + 0.0195 + (number % 20) * 0.00005
        while time.monotonic() < end:
            pass
        return number

    @queue.job
    def bystander(number: int) -> int:
        return sum(range(200)) + number

    handles = []
    for number in range(150):
        handles.append(close_call.options(max_attempts=1).enqueue(number))
        handles.append(bystander.options(max_attempts=1).enqueue(number))
    with queue.worker(threads=2) as worker:
        jobs = [handle.wait(PATIENCE) for handle in handles]
        until(lambda: held(worker) == 0)
    assert all(job.state is JobState.COMPLETED for job in jobs[1::2]), "a bystander was struck"
    assert all(
        job.state is JobState.COMPLETED or (job.error is not None and job.error.reason is Reason.TIMEOUT)
        for job in jobs[0::2]
    )
    assert any(job.state is JobState.DEAD for job in jobs), "nothing was thrown: the test shows nothing"


def test_the_exception_passes_through_a_handlers_except_exception(queue: Queue) -> None:
    caught: list[str] = []
    entered = threading.Event()

    @queue.job
    def greedy() -> None:
        while True:
            try:
                entered.set()
                while True:
                    pass
            except Exception:  # noqa: BLE001 - what many handlers do
                caught.append("oops")

    with queue.worker() as worker:
        job = timed_out(greedy, worker, entered)
        until(lambda: held(worker) == 0)
    assert job.state is JobState.DEAD
    assert caught == []
    assert not issubclass(Stopping, Exception)


class Log(logging.Handler):
    """A log of the application's own, with a lock as all of them have."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = 0
        self.written: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self._writer = threading.get_ident()
        return bool(super().filter(record))

    def is_waited_for(self) -> bool:
        """Whether somebody who writes has come as far as to the lock."""
        frame = sys._current_frames().get(self._writer)  # noqa: SLF001 - the only way to see it
        return frame is not None and frame.f_code.co_name in ("acquire", "handle")

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(record.getMessage())


def test_the_exception_never_strikes_where_it_would_leave_a_lock_taken(queue: Queue) -> None:
    log = Log()
    logger = logging.getLogger("tests.stopping")
    logger.addHandler(log)

    @queue.job
    def talks() -> None:
        logger.warning("one")
        while True:
            pass

    log.acquire()
    with queue.worker() as worker:
        handle = talks.options(max_attempts=1).enqueue()
        until(log.is_waited_for, "it waits for the lock")
        let_time_be_over(worker.parts)
        job = handle.wait(PATIENCE)
        assert (job.state, held(worker)) == (JobState.DEAD, 1)
        # Now the thread gets the lock; an exception waiting for it would strike before it could let go again.
        log.release()
        until(lambda: held(worker) == 0)
    logger.removeHandler(log)
    assert log.written == ["one"], "it was struck as it took the lock"
    assert log.lock is not None
    assert log.lock.acquire(timeout=PATIENCE), "the lock was left taken"


@pytest.mark.parametrize("wait", ["event", "loop"])
def test_a_thread_that_only_waits_is_broken_off_all_the_same(queue: Queue, wait: str) -> None:
    entered = threading.Event()

    async def nap() -> None:
        entered.set()
        await asyncio.sleep(0.05)

    def in_a_loop() -> None:
        napping = nap()
        try:
            asyncio.run(napping)
        finally:
            # Struck before it began it would complain, later, that nobody waited for it.
            napping.close()

    @queue.job
    def waits() -> None:
        while True:
            if wait == "loop":
                in_a_loop()
            else:
                entered.set()
                threading.Event().wait(0.05)

    with queue.worker() as worker:
        assert timed_out(waits, worker, entered).state is JobState.DEAD
        until(lambda: held(worker) == 0)


# --- unsure ---


@pytest.mark.parametrize(("when_unsure", "told"), [("stop", True), ("run", False)])
def test_only_types_that_ask_for_it_are_stopped_when_the_worker_is_unsure(
    still: Still, when_unsure: Any, *, told: bool
) -> None:
    still.handler(still.gate.pass_through, "careful", when_unsure=when_unsure)
    still.build()
    [job] = still.put(job_type="careful")
    still.run_claimed(1)
    [run] = still.parts.runs.values()
    still.clock.advance(5)
    still.parts.timeouts.tick()
    assert not run.notice.stop
    still.clock.advance(2)
    still.parts.timeouts.tick()
    assert run.notice.stop is told
    still.finish()
    expected = {True: (JobState.PENDING, 0), False: (JobState.COMPLETED, 1)}[told]
    assert (still.job(job).state, still.job(job).attempts) == expected


# --- a blocked loop ---


def test_a_handler_that_blocks_the_loop_is_named_in_the_log_once(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @queue.job
    async def blocks_the_loop() -> None:
        release.wait(PATIENCE)

    def reports() -> list[logging.LogRecord]:
        """Those that name it; if the machine stalls, others may be blocked as well."""
        blocked = [record for record in caplog.records if record.getMessage() == "loop.blocked"]
        return [record for record in blocked if "blocks_the_loop" in record.__dict__["stack"]]

    with caplog.at_level(logging.WARNING, "windlass.coroutines"), queue.worker() as worker:
        handle = blocks_the_loop.enqueue()
        until(lambda: bool(reports()))
        worker.parts.timeouts.tick()
        release.set()
        assert handle.wait(PATIENCE).state is JobState.COMPLETED
    assert len(reports()) == 1


def test_a_task_left_behind_that_exits_does_not_end_the_loop(queue: Queue) -> None:
    async def bomb() -> None:
        raise SystemExit(7)

    tasks: list[asyncio.Task[None]] = []

    @queue.job
    async def careless() -> None:
        tasks.append(asyncio.create_task(bomb()))
        await asyncio.sleep(0)

    @queue.job
    async def after() -> str:
        return "still here"

    with queue.worker():
        careless.enqueue().wait(PATIENCE)
        assert after.enqueue().result(PATIENCE) == "still here"
    assert isinstance(tasks[0].exception(), SystemExit)


def test_a_profiler_on_the_jobs_threads_does_not_stop_them(queue: Queue) -> None:
    """An exception taken back, rather than let strike, made CPython look for it without an end."""
    calls: list[str] = []
    threading.setprofile(lambda _, event, __: calls.append(event))

    @queue.job
    def noop() -> str:
        return "done"

    try:
        with queue.worker():
            assert noop.enqueue().result(PATIENCE) == "done"
            assert noop.enqueue().result(PATIENCE) == "done"
    finally:
        threading.setprofile(None)
    assert calls
