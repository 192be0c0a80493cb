"""What becomes of a job, whatever its handler does: real workers, real time, `def` and `async def` alike."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.waiting import PATIENCE, until
from windlass.context import Context
from windlass.errors import Cancel, FatalError, RetryableError, Snooze
from windlass.job import Job, JobState, Reason
from windlass.policy.retry import Retry
from windlass.queue import Queue

BOTH = pytest.mark.parametrize("kind", ["def", "async def"])

Body = Callable[[], Any]


def register(queue: Queue, kind: str, body: Body, **options: Any) -> None:
    """The same body as a plain function or as a coroutine."""
    if kind == "def":

        def plain() -> Any:
            return body()

        queue.job(name="work", **options)(plain)
    else:

        async def coroutine() -> Any:
            return body()

        queue.job(name="work", **options)(coroutine)


def run(queue: Queue, **options: Any) -> Job:
    """Enqueue a job and see its end."""
    handle = queue.enqueue("work", {}, **options)
    with queue.worker():
        return handle.wait(PATIENCE)


def value(job: Job) -> Any:
    assert job.result is not None
    return msgspec.json.decode(job.result)


# --- success ---


@BOTH
def test_what_a_handler_returns_is_the_jobs_result(queue: Queue, kind: str) -> None:
    register(queue, kind, lambda: {"sum": 3})
    job = run(queue)
    assert job.state is JobState.COMPLETED
    assert value(job) == {"sum": 3}
    [attempt] = job.history
    assert (attempt.number, attempt.outcome) == (1, "completed")
    assert attempt.seconds is not None


def test_both_kinds_run_side_by_side_with_their_arguments(queue: Queue) -> None:
    @queue.job
    def add(a: int, b: int = 1) -> int:
        return a + b

    @queue.job
    async def multiply(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a * b

    with queue.worker():
        jobs = [add.enqueue(2), add.enqueue(2, b=5), multiply.enqueue(6, 7)]
        assert [job.result(PATIENCE) for job in jobs] == [3, 7, 42]


def test_one_bound_over_everything_still_runs_both_kinds(queue: Queue) -> None:
    running, most = 0, 0
    counting = threading.Lock()

    def enter() -> None:
        nonlocal running, most
        with counting:
            running += 1
            most = max(most, running)

    def leave() -> None:
        nonlocal running
        with counting:
            running -= 1

    @queue.job
    def plain() -> None:
        enter()
        threading.Event().wait(0.03)
        leave()

    @queue.job
    async def coroutine() -> None:
        enter()
        await asyncio.sleep(0.03)
        leave()

    jobs = [each.enqueue() for _ in range(6) for each in (plain, coroutine)]
    with queue.worker(concurrency=2):
        for job in jobs:
            assert job.wait(PATIENCE).state is JobState.COMPLETED
    assert most <= 2


# --- failure ---


@BOTH
@pytest.mark.parametrize("error", [KeyError("a"), RecursionError("deep"), MemoryError(), StopIteration("x")])
def test_an_ordinary_exception_is_retried_and_in_the_end_dead(
    queue: Queue, kind: str, error: Exception
) -> None:
    def body() -> None:
        raise error

    register(queue, kind, body, retry=Retry(kind="fixed", base=0, jitter=0))
    job = run(queue, max_attempts=3)
    assert job.state is JobState.DEAD
    assert [attempt.outcome for attempt in job.history] == ["retry", "retry", "dead"]
    assert job.error is not None
    assert job.error.reason is Reason.EXCEPTION
    for attempt in job.history:
        assert attempt.error is not None
        assert "in body" in (attempt.error.traceback or "")


@BOTH
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), BaseException("x")],
)
def test_nothing_that_a_handler_raises_ends_the_worker(queue: Queue, kind: str, error: BaseException) -> None:
    def body() -> None:
        raise error

    register(queue, kind, body)

    @queue.job
    def after() -> str:
        return "still here"

    @queue.job
    async def after_async() -> str:
        return "still here"

    with queue.worker():
        ended = queue.enqueue("work", {}, max_attempts=1).wait(PATIENCE)
        assert ended.state is JobState.DEAD
        assert ended.error is not None
        assert ended.error.kind is not None
        assert type(error).__name__ in ended.error.kind
        assert after.enqueue().result(PATIENCE) == "still here"
        assert after_async.enqueue().result(PATIENCE) == "still here"


@BOTH
def test_a_fatal_error_goes_to_the_dead_letters_at_once(queue: Queue, kind: str) -> None:
    def body() -> None:
        raise FatalError("no such account")

    register(queue, kind, body)
    job = run(queue, max_attempts=5)
    assert (job.state, job.attempts) == (JobState.DEAD, 1)
    assert job.error is not None
    assert job.error.message == "no such account"


@BOTH
def test_a_handler_can_cancel_its_own_job(queue: Queue, kind: str) -> None:
    def body() -> None:
        raise Cancel("nobody wants it any more")

    register(queue, kind, body)
    assert run(queue).state is JobState.CANCELLED


@BOTH
def test_a_snooze_costs_no_attempt(queue: Queue, kind: str) -> None:
    calls: list[None] = []

    def body() -> str:
        calls.append(None)
        if len(calls) < 3:
            raise Snooze(0.01)
        return "now"

    register(queue, kind, body)
    job = run(queue, max_attempts=1)
    assert (job.state, job.attempts, job.snoozes) == (JobState.COMPLETED, 1, 2)


@BOTH
def test_a_retryable_error_says_itself_how_long_to_wait(queue: Queue, kind: str) -> None:
    calls: list[None] = []

    def body() -> None:
        calls.append(None)
        if len(calls) == 1:
            raise RetryableError("busy", delay=0.01)

    register(queue, kind, body, retry=Retry(kind="fixed", base=3000))
    job = run(queue)
    assert (job.state, job.attempts) == (JobState.COMPLETED, 2)


@pytest.mark.parametrize(("rule", "state"), [("fatal", JobState.DEAD), ("cancel", JobState.CANCELLED)])
def test_a_types_rules_say_what_an_exception_means(queue: Queue, rule: Any, state: JobState) -> None:
    def body() -> None:
        raise PermissionError("closed")

    register(queue, "def", body, rules={OSError: rule})
    job = run(queue)
    assert (job.state, job.attempts) == (state, 1)


@BOTH
def test_a_delay_out_of_all_bounds_is_the_handlers_failure_not_the_workers(queue: Queue, kind: str) -> None:
    def body() -> None:
        raise RetryableError("see you", delay=timedelta.max)

    register(queue, kind, body, retry=Retry(base=3600))

    @queue.job
    def after() -> str:
        return "still here"

    bad = queue.enqueue("work", {})
    with queue.worker():
        assert after.enqueue().result(PATIENCE) == "still here"
        until(lambda: bad.get().history, "it has failed")
    job = bad.get()
    assert job.state in {JobState.PENDING, JobState.DEAD}
    assert job.attempts == 1


@BOTH
@pytest.mark.parametrize(
    "message",
    ["a\0b", "x" * 100_000, "\ud800 half", "ünïcode \N{SNOWMAN}", ""],
    ids=["nul", "huge", "half", "ok", "no"],
)
def test_any_message_can_be_kept(queue: Queue, kind: str, message: str) -> None:
    def body() -> None:
        raise ValueError(message)

    register(queue, kind, body)
    job = run(queue, max_attempts=1)
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert "\0" not in job.error.message
    assert len(job.error.message) < 3_000
    assert job.error.message[:2] == message[:2].replace("\0", "\N{SYMBOL FOR NULL}").replace("\ud800", "?")


def test_an_exception_that_cannot_be_printed_is_kept_all_the_same(queue: Queue) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def body() -> None:
        raise Mute

    register(queue, "def", body)
    job = run(queue, max_attempts=1)
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert "could not be read" in job.error.message


@BOTH
def test_a_result_that_cannot_be_kept_ends_the_job_and_says_that_the_work_ran(
    queue: Queue, kind: str
) -> None:
    register(queue, kind, lambda: {"rate": float("nan")})
    job = run(queue)
    assert (job.state, job.attempts) == (JobState.DEAD, 1)
    assert job.error is not None
    assert job.error.message.startswith("the work ran, but its result cannot be kept: result.rate is nan")


def test_a_payload_that_no_longer_fits_ends_the_job_without_running_it(queue: Queue) -> None:
    ran = threading.Event()

    @queue.job(name="work")
    def old(a: int) -> None:
        """What the producer had."""

    handle = old.enqueue(1)
    with Queue(queue.store.status().url) as newer:

        @newer.job(name="work")
        def new(a: str) -> None:
            ran.set()

        with newer.worker():
            job = handle.wait(PATIENCE)
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert job.error.reason is Reason.INVALID_PAYLOAD
    assert not ran.is_set()


def test_a_job_older_than_its_types_max_age_ends_without_running(queue: Queue) -> None:
    ran = threading.Event()
    register(queue, "def", ran.set, max_age=timedelta(seconds=0))
    job = run(queue)
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert job.error.reason is Reason.EXPIRED
    assert not ran.is_set()


# --- the context ---


def test_a_handler_sees_its_job_through_the_context(queue: Queue) -> None:
    @queue.job(timeout=3600)
    def look(ctx: Context, a: int) -> dict[str, Any]:
        left = ctx.time_left()
        return {
            "id": ctx.id,
            "attempt": ctx.attempt,
            "fence": ctx.fence,
            "key": ctx.key,
            "a": a,
            "left": left,
        }

    with queue.worker():
        handle = look.options(key="k1").enqueue(5)
        seen = handle.result(PATIENCE)
    assert 3600 - PATIENCE < seen.pop("left") <= 3600
    assert seen == {"id": handle.id, "attempt": 1, "fence": 1, "key": "k1", "a": 5}


def test_the_deadline_is_in_the_stores_time(queue: Queue) -> None:
    @queue.job(timeout=3600)
    async def look(ctx: Context) -> str:
        return ctx.deadline.isoformat()

    with queue.worker():
        handle = look.enqueue()
        deadline = datetime.fromisoformat(handle.result(PATIENCE))
    started = handle.get().history[0].started_at
    assert 3600 <= (deadline - started).total_seconds() < 3600 + PATIENCE


_setting: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="unset")


@BOTH
def test_jobs_see_the_starters_context_variables_and_not_each_others(queue: Queue, kind: str) -> None:
    def body() -> str:
        seen = _setting.get()
        _setting.set("by a job")
        return seen

    register(queue, kind, body)
    token = _setting.set("by the starter")
    try:
        with queue.worker(threads=1):
            handles = [queue.enqueue("work", {}) for _ in range(3)]
            assert [handle.result(PATIENCE) for handle in handles] == ["by the starter"] * 3
    finally:
        _setting.reset(token)


def test_hooks_are_called_before_the_first_job_and_after_the_last(queue: Queue) -> None:
    events: list[str] = []
    queue.on_worker_start(lambda: events.append("start"))
    queue.on_worker_stop(lambda: events.append("stop"))

    @queue.on_worker_start
    async def connect() -> None:
        events.append(f"async start on {threading.current_thread().name}")

    register(queue, "async def", lambda: events.append(f"job on {threading.current_thread().name}"))
    run(queue)
    assert events == ["start", "async start on windlass-coroutines", "job on windlass-coroutines", "stop"]


def test_a_start_hook_that_fails_keeps_the_worker_from_starting(queue: Queue) -> None:
    @queue.on_worker_start
    def connect() -> None:
        raise ConnectionError("no database")

    register(queue, "async def", lambda: None)
    handle = queue.enqueue("work", {})
    with pytest.raises(ConnectionError, match="no database"), queue.worker():
        pass
    assert handle.state is JobState.PENDING
    assert queue.store.workers() == []


def test_a_stop_hook_that_fails_is_logged_and_the_others_are_called(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    @queue.on_worker_stop
    def bad() -> None:
        raise RuntimeError("too late")

    queue.on_worker_stop(lambda: called.append("good"))
    register(queue, "def", lambda: None)
    with caplog.at_level(logging.ERROR, "windlass.worker"):
        run(queue)
    assert called == ["good"]
    told = [each.getMessage() for each in caplog.records if each.name == "windlass.worker"]
    assert told == ["worker.stop_hook_failed"]
