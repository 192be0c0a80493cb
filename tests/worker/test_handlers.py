"""What becomes of a job, whatever its handler does: real workers, real time, `def` and `async def` alike."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.waiting import PATIENCE, until
from windlass.clock import uuid7
from windlass.context import Context
from windlass.errors import Cancel, FatalError, RetryableError, Snooze
from windlass.job import Job, JobState, NewJob, Reason
from windlass.policy import Retry
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
    assert (job.state, job.attempts) == (JobState.PENDING, 1)
    assert job.error is not None
    assert "RetryableError(delay=) must be between 0s and 366d" in job.error.message


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
def test_a_job_whose_result_cannot_be_kept_completes_and_says_why(queue: Queue, kind: str) -> None:
    register(queue, kind, lambda: {"rate": float("nan")})
    job = run(queue)
    assert (job.state, job.attempts, job.result) == (JobState.COMPLETED, 1, None)
    assert job.result_missing == "result.rate is nan, which JSON does not have"


@BOTH
def test_a_job_that_requires_its_result_dies_without_it_and_says_that_the_work_ran(
    queue: Queue, kind: str
) -> None:
    register(queue, kind, lambda: {"rate": float("nan")}, result="required")
    job = run(queue)
    assert (job.state, job.attempts) == (JobState.DEAD, 1)
    assert job.error is not None
    assert job.error.message.startswith("the work ran, but its result cannot be kept: result.rate is nan")


def test_a_payload_that_no_release_takes_ends_the_job_without_running_it(queue: Queue) -> None:
    ran = threading.Event()

    @queue.job(name="work")
    def work(a: int) -> None:
        ran.set()

    [made] = queue.store.enqueue([NewJob(id=uuid7(), type="work", payload=b'{"a":[]}')])
    with queue.worker():
        until(lambda: queue.get(made.id).state is JobState.DEAD, "the job dies")
    job = queue.get(made.id)
    assert job.error is not None
    assert job.error.reason is Reason.INVALID_PAYLOAD
    assert not ran.is_set()


def test_a_payload_that_only_another_release_takes_waits_for_it_with_all_its_attempts(queue: Queue) -> None:
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
            until(lambda: queue.store.sight(timedelta(minutes=1)).unread, "the worker leaves it")
    job = queue.get(handle.id)
    assert (job.state, job.attempts, job.error) == (JobState.PENDING, 0, None)
    assert not ran.is_set()
    with queue.worker():
        assert handle.wait(PATIENCE).state is JobState.COMPLETED


def test_a_change_in_an_encrypted_field_alone_leaves_the_job_to_its_release(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", base64.b64encode(bytes(32)).decode())

    @queue.job(name="work", encrypt=("card",))
    def new(card: dict[str, str]) -> None:
        """What the producer had."""

    handle = new.enqueue({"number": "4111-1111"})
    with Queue(queue.store.status().url) as older:

        @older.job(name="work")
        def old(card: str) -> None:
            """It does not even know that it is a secret."""

        with older.worker():
            until(lambda: queue.store.sight(timedelta(minutes=1)).unread, "the worker leaves it")
    [unread] = queue.store.sight(timedelta(minutes=1)).unread
    assert (unread.field, unread.problem) == (
        "payload.card",
        "payload.card does not fit; its value is not shown",
    )
    with queue.worker():
        assert handle.wait(PATIENCE).state is JobState.COMPLETED


def test_jobs_that_are_left_take_one_line_of_the_log_together(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.job(name="work")
    def new(a: int, b: int = 0) -> None:
        """What the producer had."""

    for number in range(50):
        new.enqueue(number, b=1)
    with Queue(queue.store.status().url) as older, caplog.at_level(logging.INFO, "windlass"):

        @older.job(name="work")
        def old(a: int) -> None:
            """It does not know b."""

        with older.worker(threads=2):
            until(lambda: unread_of(queue) == 50, "the worker leaves all of them")
    lines = [record for record in caplog.records if record.getMessage() == "job.left"]
    # The first is told at once, the rest at the end of the minute, or when the worker stops.
    assert len(lines) <= 2
    assert sum(vars(line)["jobs"] for line in lines) == 50
    assert {vars(line)["problem"] for line in lines} == {"payload.b is unknown; the fields of payload are: a"}
    settled = [record for record in caplog.records if record.getMessage() == "job.settled"]
    assert settled == []


def test_jobs_that_are_left_take_nothing_of_their_types_rate(queue: Queue) -> None:
    @queue.job(name="work", rate="3/h")
    def new(a: int, b: int = 0) -> None:
        """What the producer had."""

    handles = [new.enqueue(number, b=1) for number in range(4)]
    with Queue(queue.store.status().url) as older:

        @older.job(name="work", rate="3/h")
        def old(a: int) -> None:
            """It does not know b."""

        with older.worker(threads=2):
            until(lambda: unread_of(queue) == 4, "the worker leaves all of them")
    with queue.worker():
        assert handles[0].wait(PATIENCE).state is JobState.COMPLETED


def unread_of(queue: Queue) -> int:
    return sum(each.count for each in queue.store.sight(timedelta(minutes=1)).unread)


def test_a_job_older_than_its_types_max_age_ends_without_running(queue: Queue) -> None:
    ran = threading.Event()
    register(queue, "def", ran.set, max_age=timedelta(microseconds=1))
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
