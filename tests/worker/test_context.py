"""What a handler can do through its context, on both stores."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psycopg
import pytest

from tests.servers import pgbouncer, postgres
from tests.waiting import PATIENCE, until
from tests.worker.stores import beside_a_table, on_both, sent, sql
from windlass import Context, FatalError, InvalidValue, JobHandle, JobState, LeaseLost, Queue, Refused, Retry
from windlass.errors import ResultMissing, TransactionTooLong
from windlass.job import Error, Lease, Reason
from windlass.outcome import Again, Done
from windlass.store.engine import Settlement, Want
from windlass.store.jobs import Edit, Filter
from windlass.store.running import Said
from windlass.store.sqlite import guests
from windlass.store.upkeep import Retention

url = on_both
queue = beside_a_table


def done(queue: Queue, *handles: JobHandle) -> list[JobState]:
    with queue.worker():
        return [handle.wait(PATIENCE).state for handle in handles]


def test_a_sample_handler_is_given_its_job_and_a_context_and_ends_by_return_or_exception(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.job
    def follow(key: str) -> None: ...

    @queue.job(timeout=3600, max_attempts=2, retry=Retry(kind="fixed", base=0, jitter=0))
    def sample(ctx: Context, to: str) -> dict[str, Any]:
        with ctx.once("mail") as mail:
            ctx.log.info("sample.ran", extra={"to": to})
        before, left = ctx.deadline, ctx.time_left()
        assert ctx.extend(timedelta(hours=2))
        assert ctx.deadline > before
        assert ctx.time_left() > left
        assert (ctx.cancelled, ctx.lease_lost, ctx.wait_cancelled(0)) == (False, False, False)
        ctx.enqueue(follow.options(delay="1h").draft(ctx.key))
        if ctx.attempt == 1:
            raise ConnectionError("no answer")
        return {"job": ctx.id, "type": ctx.type, "key": ctx.key, "to": to, "mail": mail.answer}

    handle = sample.options(key="order-1").enqueue("ann")
    with caplog.at_level(logging.INFO, "windlass.job"):
        assert done(queue, handle) == [JobState.COMPLETED]
    wanted = {"job": handle.id, "type": "sample", "key": "order-1", "to": "ann", "mail": "done"}
    assert handle.result() == wanted
    assert [entry.outcome for entry in handle.get().history] == ["retry", "completed"]
    lines = [each.__dict__ for each in caplog.records if each.getMessage() == "sample.ran"]
    assert [(each["job"], each["attempt"], each["to"]) for each in lines] == [
        (handle.id, 1, "ann"),
        (handle.id, 2, "ann"),
    ]
    # What the attempt that failed had enqueued is dropped with it.
    [followed] = queue.store.find(Filter(types=("follow",)), limit=10).jobs
    assert bytes(followed.payload) == b'{"key":"order-1"}'
    # There is no verb by which a handler could settle its job.
    assert not {"ack", "cancel", "complete", "fail", "release", "retry", "settle"} & set(dir(Context))


# --- the way back ---------------------------------------------------------------------------------


def test_writes_commit_with_the_completion_behind_a_transaction_pooler_too() -> None:
    with (
        postgres.fresh(15) as url,
        pgbouncer.before(postgres.shared(15), url) as through,
        Queue(f"{through}?windlass_pooler=on") as queue,
    ):

        @queue.job
        def send(ctx: Context, name: str) -> None:
            with ctx.transaction() as connection:
                connection.execute("insert into sent values (%s)", (name,))

        @queue.job
        async def send_async(ctx: Context, name: str) -> None:
            async with ctx.transaction() as connection:
                await connection.execute("insert into sent values (%s)", (name,))

        sql(url, "create table sent (name text)")
        # So many that statements would be prepared on a session that the next transaction does not have.
        names = [f"{number:02}" for number in range(20)]
        handles = [each.enqueue(name) for name in names for each in (send, send_async)]
        assert set(done(queue, *handles)) == {JobState.COMPLETED}
        assert sent(url) == sorted(names * 2)


def test_the_handlers_writes_commit_with_the_completion(queue: Queue, url: str) -> None:
    @queue.job
    def send(ctx: Context, name: str) -> None:
        with ctx.transaction() as connection:
            connection.execute(f"insert into sent values ('{name}')")
            assert sent(url) == []
            ctx.set_result({"name": name})

    handle = send.enqueue("ann")
    assert done(queue, handle) == [JobState.COMPLETED]
    assert (sent(url), handle.result()) == (["ann"], {"name": "ann"})
    [attempt] = handle.get().history
    assert attempt.outcome == "completed"
    assert attempt.seconds is not None


def test_a_result_that_cannot_be_kept_does_not_undo_the_handlers_writes(queue: Queue, url: str) -> None:
    @queue.job
    def send(ctx: Context, name: str) -> None:
        with ctx.transaction() as connection:
            connection.execute(f"insert into sent values ('{name}')")
            ctx.set_result({"name": object()})

    handle = send.enqueue("ann")
    assert done(queue, handle) == [JobState.COMPLETED]
    assert sent(url) == ["ann"]
    with pytest.raises(ResultMissing, match=f"job {handle.id} completed, but its result was not kept: Type"):
        handle.result()


def test_a_transaction_whose_required_result_cannot_be_kept_is_undone(queue: Queue, url: str) -> None:
    @queue.job(result="required")
    def send(ctx: Context, name: str) -> None:
        with ctx.transaction() as connection:
            connection.execute(f"insert into sent values ('{name}')")
            ctx.set_result({"name": object()})

    handle = send.enqueue("ann")
    assert done(queue, handle) == [JobState.DEAD]
    assert (sent(url), handle.get().attempts) == ([], 1)


def test_a_type_that_keeps_no_result_keeps_none(queue: Queue) -> None:
    @queue.job(result=False)
    def returns() -> int:
        return 7

    @queue.job(result=False)
    def sets(ctx: Context) -> None:
        with ctx.transaction():
            ctx.set_result(object())

    handles = [returns.enqueue(), sets.enqueue()]
    assert done(queue, *handles) == [JobState.COMPLETED] * 2
    assert [(each.get().result, each.result()) for each in handles] == [(None, None)] * 2


def test_the_same_for_async_handlers(queue: Queue, url: str) -> None:
    @queue.job
    async def send(ctx: Context, name: str) -> None:
        async with ctx.transaction() as connection:
            answer = connection.execute(f"insert into sent values ('{name}')")
            if inspect.isawaitable(answer):
                await answer

    @queue.job(max_attempts=1)
    async def fail(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            answer = connection.execute("insert into sent values ('eve')")
            if inspect.isawaitable(answer):
                await answer
            raise ValueError

    assert done(queue, send.enqueue("ann"), fail.enqueue()) == [JobState.COMPLETED, JobState.DEAD]
    assert sent(url) == ["ann"]


def test_an_exception_in_the_block_undoes_both(queue: Queue, url: str) -> None:
    tried: list[int] = []

    @queue.job(rules={ValueError: "retry"})
    def send(ctx: Context, name: str) -> None:
        tried.append(ctx.attempt)
        with ctx.transaction() as connection:
            connection.execute(f"insert into sent values ('{name}')")
            if ctx.attempt == 1:
                raise FatalError("not yet")

    handle = send.enqueue("ann")
    assert done(queue, handle) == [JobState.DEAD]
    assert (sent(url), tried) == ([], [1])


def test_what_comes_after_the_block_cannot_fail_the_job(
    queue: Queue, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.job
    def send(ctx: Context) -> None:
        with ctx.transaction() as connection:
            connection.execute("insert into sent values ('ann')")
        raise ValueError("too late")

    handle = send.enqueue()
    with caplog.at_level(logging.WARNING, "windlass"), queue.worker() as worker:
        assert handle.wait(PATIENCE).state is JobState.COMPLETED
        worker.stop()
    assert sent(url) == ["ann"]
    assert "job.failed_after_completion" in caplog.messages


def test_who_has_lost_the_lease_writes_nothing(queue: Queue, url: str) -> None:
    lease = claimed(queue)
    taken = Again(timedelta(0), Error(Reason.LEASE_EXPIRED, message="taken"))
    with (  # noqa: PT012 - the commit at the end is what is refused
        pytest.raises(LeaseLost),
        queue.store.handlers().transaction(lambda: completion(lease), within=timedelta(9)) as connection,
    ):
        connection.execute("insert into sent values ('ann')")
        if url.startswith("postgres"):
            queue.store.settle([Settlement(lease, taken)])
        else:
            # Nobody else can write meanwhile, so it must have happened before.
            connection.execute("update windlass_jobs set token = 'another'")
    assert sent(url) == []
    again = queue.get(lease.id)
    assert again.state is (JobState.PENDING if url.startswith("postgres") else JobState.PROCESSING)


def test_a_completion_is_written_once(queue: Queue, url: str) -> None:
    lease = claimed(queue)
    for expected in (None, LeaseLost):
        with (
            contextlib.nullcontext() if expected is None else pytest.raises(expected),
            queue.store.handlers().transaction(lambda: completion(lease), within=timedelta(9)) as connection,
        ):
            connection.execute("insert into sent values ('ann')")
    assert sent(url) == ["ann"]
    assert queue.store.settle([completion(lease)]) == []


def test_the_commit_is_not_the_handlers(queue: Queue, url: str) -> None:
    lease = claimed(queue)
    wrong = (Refused, psycopg.ProgrammingError, sqlite3.DatabaseError)
    for end in ("commit", "rollback"):
        with (  # noqa: PT012 - a transaction with something in it
            pytest.raises(wrong),
            queue.store.handlers().transaction(lambda: completion(lease), within=timedelta(9)) as connection,
        ):
            connection.execute("insert into sent values ('ann')")
            getattr(connection, end)()
    assert sent(url) == []
    assert queue.get(lease.id).state is JobState.PROCESSING


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("busy", [True, False])
def test_on_sqlite_the_only_writer_is_not_held_for_long(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    lease = claimed(queue)
    store = queue.store
    # The limit is not the protocol's.
    monkeypatch.setattr(guests, "LONGEST_SECONDS", 0.2)
    over = threading.Event()
    with (  # noqa: PT012 - what is refused is what comes after the time is over
        pytest.raises(TransactionTooLong, match="undone"),
        store.handlers().transaction(lambda: completion(lease), within=timedelta(seconds=5)) as connection,
    ):
        # On a busy machine its time may be over by now.
        with contextlib.suppress(TransactionTooLong):
            connection.execute("insert into sent values ('ann')")
        if busy:
            connection.execute(
                "with recursive n (i) as (select 1 union all select i + 1 from n)"
                " insert into sent select max(i) from n"
            )
        # Somebody else can write, although the handler is still in its block.
        store.set_setting("probe", "1")
        over.set()
        connection.execute("insert into sent values ('bob')")
    assert over.is_set() is not busy
    assert sent(url) == []
    assert queue.get(lease.id).state is JobState.PROCESSING


def claimed(queue: Queue) -> Lease:
    @queue.job(name="claimed")
    def handler() -> None: ...

    handler.enqueue()
    want = Want(worker="w", types={"claimed": 1}, limit=1, lease=timedelta(seconds=60))
    [lease] = queue.store.claim(want).leases
    return lease


def completion(lease: Lease) -> Settlement:
    return Settlement(lease, Done(None), timedelta(seconds=1))


# --- enqueue with the completion ------------------------------------------------------------------


def test_jobs_are_enqueued_with_the_completion_and_dropped_with_a_failure(queue: Queue) -> None:
    @queue.job
    def child(number: int) -> int:
        return number

    ids: list[str] = []

    # Nobody but the test brings it back.
    @queue.job(retry=Retry(base=3600))
    def parent(ctx: Context) -> None:
        ids.extend(ctx.enqueue(child.draft(ctx.attempt), child.draft(10)))
        assert queue.store.count(Filter(types=("child",)), limit=9) == 0
        if ctx.attempt == 1:
            raise ConnectionError

    handle = parent.enqueue()
    with queue.worker():
        while handle.get().attempts < 1 or handle.state is JobState.PROCESSING:
            threading.Event().wait(0.01)
        queue.store.edit(handle.id, Edit(run_at=queue.store.now()))
        handle.wait(PATIENCE)
        results = [queue.wait(job_id, PATIENCE).result for job_id in ids[2:]]
    assert [bytes(result or b"") for result in results] == [b"2", b"10"]
    assert queue.store.count(Filter(types=("child",)), limit=9) == 2


def test_a_draft_that_was_made_for_another_store_is_refused_and_fails_the_attempt(
    queue: Queue, tmp_path: Path
) -> None:
    with Queue(f"sqlite:///{tmp_path}/other.db") as other, Queue(queue.url) as same:

        @queue.job
        def ours() -> None: ...

        @other.job
        def theirs() -> None: ...

        @queue.job(max_attempts=1)
        def parent(ctx: Context, *, foreign: bool) -> None:
            ctx.enqueue(ours.draft(), theirs.draft() if foreign else same.draft("ours", {}))

        good, bad = parent.enqueue(foreign=False), parent.enqueue(foreign=True)
        assert done(queue, good, bad) == [JobState.COMPLETED, JobState.DEAD]
        assert "drafts[1] is a job of type theirs that another queue made" in str(bad.get().error)
        assert queue.store.count(Filter(types=("ours",)), limit=9) == 2
        assert queue.store.count(Filter(types=("theirs",)), limit=9) == 0


def test_no_completion_without_the_jobs_that_belong_to_it(queue: Queue) -> None:
    @queue.job
    def child(number: int) -> None: ...

    child.options(key="k").enqueue(1)

    @queue.job
    def parent(ctx: Context) -> None:
        ctx.enqueue(child.options(key="k").draft(2), child.draft(3))

    handle = parent.enqueue()
    assert done(queue, handle) == [JobState.DEAD]
    error = handle.get().error
    assert error is not None
    assert "key 'k' belongs to job" in error.message
    assert queue.store.count(Filter(types=("child",)), limit=9) == 1


# --- meanwhile ------------------------------------------------------------------------------------


def test_progress_is_seen_while_the_job_runs(queue: Queue) -> None:
    seen = threading.Event()

    @queue.job
    def count(ctx: Context) -> None:
        ctx.progress(3, of=10)
        ctx.progress(4, of=10)
        seen.wait(PATIENCE)

    handle = count.enqueue()

    def told() -> tuple[int, int | None] | None:
        progress = queue.store.progress(handle.id)
        return None if progress is None else (progress.done, progress.total)

    with queue.worker():
        until(lambda: told() == (4, 10), "the last of it is stored")
        seen.set()
        handle.wait(PATIENCE)


def test_a_message_tells_what_the_job_does_and_stays_until_another_comes(queue: Queue) -> None:
    words: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    @queue.job
    def far(ctx: Context) -> None:
        while (word := words.get(timeout=PATIENCE)) is not None:
            ctx.progress(**word)

    long = "x" * 10_000 + "\0"
    steps: list[tuple[dict[str, Any], tuple[int, int | None, str | None]]] = [
        ({"message": "connecting"}, (0, None, "connecting")),
        ({"done": 3, "of": 10}, (3, 10, "connecting")),
        ({"message": long}, (3, 10, "x" * 500 + "… (9501 more characters)")),
        ({"done": 4, "of": 10, "message": ""}, (4, 10, None)),
    ]
    handle = far.enqueue()

    def stored() -> tuple[int, int | None, str | None] | None:
        progress = queue.store.progress(handle.id)
        return None if progress is None else (progress.done, progress.total, progress.message)

    with queue.worker():
        for word, wanted in steps:
            words.put(word)
            until(lambda wanted=wanted: stored() == wanted, f"it says {wanted}")  # type: ignore[misc]
        words.put(None)
        handle.wait(PATIENCE)


def test_more_time_can_be_asked_for(queue: Queue) -> None:
    asked, seen = threading.Event(), threading.Event()

    @queue.job(max_attempts=1)
    def slow(ctx: Context) -> bool:
        before = ctx.deadline
        assert ctx.extend(3600)
        assert ctx.deadline > before
        asked.set()
        seen.wait(PATIENCE)
        return ctx.time_left() > 3000

    handle = slow.enqueue()
    with queue.worker() as worker:
        assert asked.wait(PATIENCE)
        [run] = worker.parts.runs.values()
        assert run.started is not None
        assert run.ends - run.started > 3000, "the worker goes by it, too"
        seen.set()
        assert handle.wait(PATIENCE).state is JobState.COMPLETED
    assert handle.result() is True


def test_once_gives_three_answers(queue: Queue) -> None:
    told: list[tuple[int, str]] = []

    @queue.job
    def send(ctx: Context, *, fails: str) -> None:
        with ctx.once("mail") as mail:
            told.append((ctx.attempt, mail.answer))
            if ctx.attempt == 1 and fails == "surely":
                mail.undo()
            if ctx.attempt == 1 and fails != "after":
                raise FatalError(fails)
        if ctx.attempt == 1:
            raise FatalError(fails)

    @queue.job
    async def send_async(ctx: Context) -> None:
        async with ctx.once("mail") as mail:
            told.append((ctx.attempt, mail.answer))

    for fails, second in {"midway": "in doubt", "surely": "new", "after": "done"}.items():
        told.clear()
        handle = send.enqueue(fails=fails)
        with queue.worker():
            handle.wait(PATIENCE)
            queue.store.replay(handle.id)
            # Attempts count anew with a replay.
            while len(told) < 2:
                threading.Event().wait(0.01)
            handle.wait(PATIENCE)
        assert [answer for _, answer in told] == ["new", second]
    told.clear()
    assert done(queue, send_async.enqueue()) == [JobState.COMPLETED]
    assert told == [(1, "new")]


def test_once_is_fenced(queue: Queue) -> None:
    lease = claimed(queue)
    queue.store.settle([completion(lease)])
    with pytest.raises(LeaseLost):
        queue.store.begin_once(lease, "mail")
    queue.store.note_progress([(lease, Said(1, 2))])
    assert queue.store.progress(lease.id) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ctx: ctx.progress(-1), "done must be a whole number"),
        (lambda ctx: ctx.progress(3, 2), "done must be at most 2"),
        (lambda ctx: ctx.progress("uploading"), "a text is given as message=, got 'uploading'"),
        (lambda ctx: ctx.progress(), "done must be a whole number from 0 up, or left out beside message="),
        (lambda ctx: ctx.progress(of=3), "done must be a whole number"),
        (lambda ctx: ctx.progress(1, 3, message=7), "message must be a text, got 7"),
        (lambda ctx: ctx.extend(0), "by must be between 0"),
        (lambda ctx: ctx.once(""), "key must be a text"),
        (lambda ctx: ctx.enqueue("mail"), "draft must be a draft"),
    ],
)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_nonsense_is_refused_in_words(queue: Queue, call: Any, words: str) -> None:
    @queue.job(rules={InvalidValue: "fatal"})
    def handler(ctx: Context) -> None:
        call(ctx)

    handle = handler.enqueue()
    assert done(queue, handle) == [JobState.DEAD]
    error = handle.get().error
    assert error is not None
    assert words in error.message


def test_notes_go_when_their_job_is_long_gone(queue: Queue) -> None:
    lease = claimed(queue)
    queue.store.note_progress([(lease, Said(1, 2))])
    queue.store.begin_once(lease, "mail")
    now = Retention(ended=timedelta(microseconds=-1), dead=timedelta(0))
    queue.store.prune(now)
    assert queue.store.progress(lease.id) is not None
    queue.store.settle([completion(lease)])
    queue.store.prune(now)
    assert queue.store.progress(lease.id) is None


def test_async_store_blocks_are_left_in_order(queue: Queue, url: str) -> None:
    lease = claimed(queue)

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with queue.store.handlers().transaction_async(
                lambda: completion(lease), within=timedelta(9)
            ):
                raise ZeroDivisionError
        async with queue.store.handlers().transaction_async(
            lambda: completion(lease), within=timedelta(9)
        ) as it:
            answer = it.execute("insert into sent values ('ann')")
            if inspect.isawaitable(answer):
                await answer

    asyncio.run(main())
    assert sent(url) == ["ann"]
    assert queue.get(lease.id).state is JobState.COMPLETED
