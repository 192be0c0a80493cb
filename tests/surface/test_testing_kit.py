"""What can an application's tests see and do?"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.waiting import PATIENCE, WHOLE_RUN
from windlass import (
    Cancel,
    Context,
    FatalError,
    JobState,
    JobUnsuccessful,
    Queue,
    Retry,
    Snooze,
    StoreUnavailable,
    UnknownType,
)
from windlass.job import Job
from windlass.testing import Kit, override
from windlass.testing.kit import MOST_RUNS


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """An application's queue, on a file that no test should ever make."""
    return Queue(f"sqlite:///{tmp_path}/production.db")


@pytest.fixture
def kit(queue: Queue) -> Iterator[Kit]:
    with override(queue) as kit:
        yield kit


# --- the store ---


def test_nothing_reaches_the_store_that_the_application_names(queue: Queue, tmp_path: Path) -> None:
    add = queue.job(_add)
    with override(queue) as kit:
        add.enqueue(1, 2)
        kit.drain()
    assert list(tmp_path.iterdir()) == []


def test_not_even_after_a_close_or_in_a_forked_process(queue: Queue, tmp_path: Path) -> None:
    add = queue.job(_add)
    with override(queue):
        add.enqueue(1, 2)
        queue.close()
        add.enqueue(1, 2)
        child = os.fork()
        if child == 0:
            try:
                # The store is in the memory of the parent: a job of the child would be lost with it.
                add.enqueue(1, 2)
            except StoreUnavailable:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert list(tmp_path.iterdir()) == []


def test_after_the_block_the_queue_is_where_it_was(queue: Queue) -> None:
    add = queue.job(_add)
    before = add.enqueue(1, 1)
    with override(queue) as kit:
        add.enqueue(2, 2)
        assert len(kit.jobs()) == 1
    assert before.state is JobState.PENDING
    with queue.worker():
        assert add.enqueue(3, 3).result(timeout=PATIENCE) == 6
    queue.close()


def test_each_block_begins_empty(queue: Queue) -> None:
    add = queue.job(_add)
    for _ in range(2):
        with override(queue) as kit:
            add.options(key="the same").enqueue(1, 2)
            assert len(kit.jobs()) == 1


def test_a_store_of_the_tests_choice_takes_the_callers_transaction(queue: Queue, tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415 - this one test plays the application

    add = queue.job(_add)
    with override(queue, url=f"sqlite:///{tmp_path}/test.db") as kit:
        kit.drain()
        connection = sqlite3.connect(tmp_path / "test.db", isolation_level=None)
        connection.execute("begin immediate")
        add.options(connection=connection).enqueue(1, 2)
        connection.execute("rollback")
        kit.assert_not_enqueued(add)
        connection.close()


# --- looking ---


def test_assert_enqueued_gives_the_job_that_fits(queue: Queue, kit: Kit) -> None:
    send = queue.job(_send)
    send.enqueue("a@b.c", tags={"campaign": 7, "kind": "news"})
    wanted = send.options(priority=9).enqueue("x@y.z", tags={"campaign": 8})
    found = kit.assert_enqueued("send", payload_contains={"tags": {"campaign": 8}})
    assert (found.id, found.priority) == (wanted.id, 9)
    kit.assert_enqueued(send, payload_contains={"to": "a@b.c", "tags": {"campaign": 7}}, count=1)
    kit.assert_enqueued(send, count=2)
    kit.assert_not_enqueued(send, payload_contains={"to": "nobody"})


def test_what_was_enqueued_stays_so_after_it_ran(queue: Queue, kit: Kit) -> None:
    queue.job(_send).enqueue("a@b.c")
    kit.drain()
    assert kit.assert_enqueued("send").state is JobState.COMPLETED


def test_a_failed_expectation_shows_what_is_there(queue: Queue, kit: Kit) -> None:
    send = queue.job(_send)
    with pytest.raises(AssertionError, match="found 0; nothing was enqueued"):
        kit.assert_enqueued(send)
    send.enqueue("a@b.c")
    with pytest.raises(
        AssertionError, match=r'(?s)with .*"?x@y.z.*found 0.*send \{"to":"a@b.c"\} \(pending\)'
    ):
        kit.assert_enqueued(send, payload_contains={"to": "x@y.z"})
    with pytest.raises(AssertionError, match="expected 2 job of type send, found 1"):
        kit.assert_enqueued(send, count=2)
    with pytest.raises(AssertionError, match="expected no job of type send"):
        kit.assert_not_enqueued(send)


def test_expectations_may_be_written_as_the_arguments_were(queue: Queue, kit: Kit) -> None:
    @queue.job
    def invoice(due: date, to: Address) -> None: ...

    invoice.enqueue(date(2026, 1, 31), Address("Rue 1", "Paris"))
    kit.assert_enqueued(invoice, payload_contains={"due": date(2026, 1, 31), "to": Address("Rue 1", "Paris")})
    kit.assert_not_enqueued(invoice, payload_contains={"due": date(2026, 2, 1)})


# --- running ---


def test_drain_runs_what_is_due_and_what_that_enqueues(queue: Queue, kit: Kit) -> None:
    @queue.job
    def countdown(n: int) -> int:
        if n:
            countdown.enqueue(n - 1)
        return n

    countdown.enqueue(3)
    ran = kit.drain()
    assert [job.state for job in ran] == [JobState.COMPLETED] * 4
    assert kit.drain() == []


def test_handlers_get_what_went_through_json(queue: Queue, kit: Kit) -> None:
    seen: list[object] = []

    @queue.job
    def keep(where: Address, at: datetime) -> None:
        seen.extend((where, at))

    sent = Address("Rue 1", "Paris")
    keep.enqueue(sent, datetime(2026, 1, 1, tzinfo=UTC))
    kit.drain()
    assert seen == [sent, datetime(2026, 1, 1, tzinfo=UTC)]
    assert seen[0] is not sent


def test_jobs_run_in_the_order_of_a_claim(queue: Queue, kit: Kit) -> None:
    order: list[str] = []

    @queue.job
    def note(name: str) -> None:
        order.append(name)

    note.enqueue("first")
    note.options(priority=9).enqueue("urgent")
    note.options(tenant="b").enqueue("other tenant")
    note.enqueue("second")
    kit.drain()
    assert order == ["urgent", "other tenant", "first", "second"]


def test_async_handlers_run_on_one_loop(queue: Queue, kit: Kit) -> None:
    loops: list[object] = []

    @queue.job
    async def think(n: int) -> int:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return n

    assert [kit.run(think.draft(n)) for n in range(3)] == [0, 1, 2]
    assert len(set(map(id, loops))) == 1


def test_an_async_test_drains_while_its_loop_goes_on(queue: Queue, kit: Kit) -> None:
    went_on = threading.Event()

    @queue.job
    def needs_the_loop() -> bool:
        return went_on.wait(PATIENCE)

    async def drained() -> list[Job]:
        needs_the_loop.enqueue()
        draining = asyncio.ensure_future(kit.drain_async())
        await asyncio.sleep(0)
        went_on.set()
        return await draining

    [job] = asyncio.run(drained())
    assert bytes(job.result or b"") == b"true"


def test_drain_raises_what_a_handler_raised_and_the_record_is_kept(queue: Queue, kit: Kit) -> None:
    @queue.job
    def fail() -> None:
        raise KeyError("broken")

    job = fail.enqueue()
    with pytest.raises(KeyError, match="broken") as caught:
        kit.drain()
    assert f"job {job.id} of type fail, attempt 1; now pending" in caught.value.__notes__[0]
    now = job.get()
    assert (now.state, now.attempts, now.error and now.error.kind) == (JobState.PENDING, 1, "KeyError")


def test_try_drain_leaves_the_telling_to_the_records(queue: Queue, kit: Kit) -> None:
    @queue.job
    def fail() -> None:
        raise FatalError("never")

    fail.enqueue()
    [job] = kit.try_drain()
    assert job.state is JobState.DEAD


def test_retries_come_at_their_time(queue: Queue, kit: Kit) -> None:
    attempts: list[datetime] = []

    @queue.job(max_attempts=3, retry=Retry(base=30, jitter=15))
    def flaky(ctx: Context) -> int:
        attempts.append(kit.now)
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    start = kit.now
    job = flaky.enqueue()
    assert len(kit.try_drain()) == 1
    kit.advance(29)
    assert kit.drain() == []
    kit.advance("1s")
    assert len(kit.try_drain()) == 1
    assert len(kit.drain(within="1h")) == 1
    assert attempts == [start, start + timedelta(seconds=30), start + timedelta(seconds=90)]
    assert job.result() == 3


def test_drain_within_lets_time_pass_from_due_to_due(queue: Queue, kit: Kit) -> None:
    ran: list[tuple[str, timedelta]] = []
    start = kit.now

    @queue.job
    def note(name: str) -> None:
        ran.append((name, kit.now - start))

    note.options(delay="2h").enqueue("later")
    note.options(delay="10m").enqueue("soon")
    note.options(at=start + timedelta(days=2)).enqueue("too late")
    kit.drain(within="1d")
    assert ran == [("soon", timedelta(minutes=10)), ("later", timedelta(hours=2))]


def test_a_job_that_came_right_within_the_time_raises_nothing(queue: Queue, kit: Kit) -> None:
    @queue.job
    def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError

    flaky.enqueue()
    [job] = kit.drain(within="1h")
    assert job.state is JobState.COMPLETED


def test_snoozed_and_cancelled_are_not_failures(queue: Queue, kit: Kit) -> None:
    @queue.job
    def later() -> None:
        raise Snooze(60)

    @queue.job
    def never() -> None:
        raise Cancel("not wanted")

    later.enqueue()
    never.enqueue()
    assert {job.type: job.state for job in kit.drain()} == {
        "later": JobState.PENDING,
        "never": JobState.CANCELLED,
    }


def test_a_job_without_end_is_told_of(queue: Queue, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_RUNS > 1000
    monkeypatch.setattr("windlass.testing.kit.MOST_RUNS", 20)

    @queue.job
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(AssertionError, match="still not empty after 20 runs"):
        kit.drain()


def test_a_tests_own_failure_inside_a_handler_fails_the_test(queue: Queue, kit: Kit) -> None:
    @queue.job
    def fails() -> None:
        pytest.fail("this must not happen")

    fails.enqueue()
    with pytest.raises(pytest.fail.Exception, match="this must not happen"):
        kit.try_drain()


def test_run_gives_the_result_of_one_job_alone(queue: Queue, kit: Kit) -> None:
    add = queue.job(_add)
    other = add.options(priority=10).enqueue(10, 10)
    assert kit.run(add.draft(1, 2)) == 3
    assert kit.run(add.options(delay="1h").draft(2, 2)) == 4
    now = other.get()
    assert (now.state, now.attempts) == (JobState.PENDING, 0)


def test_run_raises_what_the_handler_raised_or_says_what_became_of_the_job(queue: Queue, kit: Kit) -> None:
    @queue.job
    def fail(kind: str) -> None:
        raise {"error": ValueError("bad"), "snooze": Snooze(5)}[kind]

    with pytest.raises(ValueError, match="bad"):
        kit.run(fail.draft("error"))
    with pytest.raises(Snooze):
        kit.run(fail.draft("snooze"))
    stranger = Queue("sqlite:///:memory:").job(_add).draft(1, 2)
    with pytest.raises(UnknownType, match="unknown job type 'add'; registered types: fail"):
        kit.run(stranger)


def test_a_payload_that_does_not_fit_fails_the_drain(queue: Queue, kit: Kit) -> None:
    add = queue.job(_add)
    kit.drain()
    kit.queue.store.enqueue([structs.replace(add.draft(1, 2), payload=b'{"a": "one"}')])
    with pytest.raises(JobUnsuccessful, match=r"payload.b is missing|payload.a must be an integer"):
        kit.drain()


def test_inline_runs_each_job_before_enqueue_returns(queue: Queue, kit: Kit) -> None:
    order: list[str] = []

    @queue.job
    def inner() -> None:
        order.append("inner")

    @queue.job
    def outer() -> None:
        inner.enqueue()
        order.append("outer")

    with kit.inline():
        outer.enqueue()
        order.append("caller")
    assert order == ["outer", "inner", "caller"]
    outer.enqueue()
    assert len(order) == 3


def test_inline_raises_where_the_job_was_enqueued(queue: Queue, kit: Kit) -> None:
    @queue.job
    def fail() -> None:
        raise KeyError("broken")

    with kit.inline(), pytest.raises(KeyError):
        fail.enqueue()
    assert kit.assert_enqueued(fail).attempts == 1


def test_hooks_of_a_worker_are_called_once(queue: Queue) -> None:
    said: list[str] = []
    queue.on_worker_start(lambda: said.append("start"))
    queue.on_worker_stop(lambda: said.append("stop"))
    with override(queue) as kit:
        kit.drain()
        queue.job(_add).enqueue(1, 2)
        kit.drain()
        assert said == ["start"]
    assert said == ["start", "stop"]


# --- repeating ---


def test_a_handler_that_is_safe_to_repeat_passes(queue: Queue, kit: Kit) -> None:
    sent: dict[str, str] = {}
    fences: list[int] = []

    @queue.job(max_attempts=1)
    def send(ctx: Context, to: str) -> None:
        sent[ctx.key] = to
        fences.append(ctx.fence)

    job = kit.run_twice(send.draft("a@b.c"), effects=lambda: sent)
    assert (job.state, job.attempts, fences) == (JobState.COMPLETED, 2, [1, 2])
    assert [attempt.error and attempt.error.reason for attempt in job.history] == ["worker_lost", None]


def test_a_handler_that_is_not_fails(queue: Queue, kit: Kit) -> None:
    sent: list[str] = []

    @queue.job
    def send(to: str) -> None:
        sent.append(to)

    with pytest.raises(
        AssertionError, match=r"send is not safe to repeat: \['a'\] after one run, \['a', 'a'\]"
    ):
        kit.run_twice(send.draft("a"), effects=lambda: sent)


def test_a_second_run_that_fails_raises(queue: Queue, kit: Kit) -> None:
    made: set[str] = set()

    @queue.job
    def make(name: str) -> None:
        if name in made:
            raise FileExistsError(name)
        made.add(name)

    with pytest.raises(FileExistsError):
        kit.run_twice(make.draft("a"))


# --- under pytest ---


def test_the_fixture_gives_the_applications_queue_or_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from windlass import Queue\nqueue = Queue('sqlite:///real.db')\n"
        "@queue.job\ndef order(n: int) -> int:\n    return n\n"
    )
    (tmp_path / "test_shop.py").write_text(
        "import shop\n"
        "def test_one(windlass_kit):\n"
        "    shop.order.enqueue(1)\n    assert len(windlass_kit.drain()) == 1\n"
        "def test_two(windlass_kit):\n"
        "    assert windlass_kit.queue is shop.queue\n    assert windlass_kit.jobs() == []\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nwindlass_app = shop:queue\npythonpath = .\n")
    assert _pytest(tmp_path) == (0, "2 passed")
    assert not (tmp_path / "real.db").exists()
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    code, end = _pytest(tmp_path)
    assert (code, end) == (1, "2 failed")


def test_an_application_that_cannot_be_found_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(windlass_kit): ...\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nwindlass_app = nowhere:queue\n")
    assert _pytest(tmp_path, "No module named 'nowhere'")[1] == "1 error"


def _pytest(folder: Path, *wanted: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WHOLE_RUN,
        check=False,
    )
    for text in wanted:
        assert text in done.stdout
    return done.returncode, done.stdout.splitlines()[-1].partition(" in ")[0]


def _add(a: int, b: int) -> int:
    return a + b


def _send(to: str, tags: dict[str, Any] | None = None) -> None:
    """An e-mail that goes nowhere."""


_add.__name__ = "add"
_send.__name__ = "send"


@dataclass(frozen=True)
class Address:
    street: str
    city: str


# --- what holds jobs back ---


def test_limits_do_not_hold_up_a_test_and_pauses_and_unique_names_do_hold(queue: Queue, kit: Kit) -> None:
    ran: list[int] = []

    @queue.job(rate="1/h", concurrency=1)
    def call(number: int) -> None:
        ran.append(number)

    queue.enqueue_many(call.draft(number) for number in range(3))
    kit.drain()
    assert ran == [0, 1, 2]

    first = call.options(unique="only").enqueue(3)
    assert call.options(unique="only").enqueue(4).id == first.id
    queue.store.pause("call")
    kit.drain()
    assert ran == [0, 1, 2]
    queue.store.resume("call")
    kit.drain()
    assert ran == [0, 1, 2, 3]
