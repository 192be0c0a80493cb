"""Enqueueing with the decorated function, against a real SQLite store."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE
from windlass import (
    Context,
    IdConflict,
    InvalidPayload,
    InvalidValue,
    Job,
    JobHandle,
    JobNotFound,
    JobState,
    JobType,
    KeyConflict,
    Queue,
    QueueFull,
    Refused,
)
from windlass.clock import ManualClock
from windlass.job import NewJob
from windlass.observe import names
from windlass.store.jobs import Filter

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{tmp_path}/jobs.db") as queue:
        yield queue


@pytest.fixture
def send(queue: Queue) -> JobType[[str, int], str]:
    @queue.job(max_attempts=3, priority=7, version=2)
    def send(to: str, count: int = 1) -> str:
        return to * count

    return send


Send = JobType[[str, int], str]


def every_job(queue: Queue) -> list[Job]:
    return queue.store.find(Filter(), limit=1000).jobs


# --- the function stays a function --------------------------------------------------------------


def test_calling_it_calls_the_function_and_makes_no_job(queue: Queue, send: Send) -> None:
    assert send("a", 3) == "aaa"
    assert send.__name__ == "send"
    assert every_job(queue) == []


def test_a_coroutine_function_stays_one(queue: Queue) -> None:
    @queue.job
    async def fetch(url: str) -> str:
        return url

    assert asyncio.run(fetch("x")) == "x"


# --- one job ------------------------------------------------------------------------------------


def test_an_enqueued_job_is_stored_with_what_its_type_says(send: Send) -> None:
    handle = send.enqueue("a", 2)
    job = handle.get()
    assert handle.created
    assert uuid.UUID(handle.id).version == 7
    assert (job.type, bytes(job.payload), job.state) == ("send", b'{"count":2,"to":"a"}', JobState.PENDING)
    assert (job.max_attempts, job.priority, job.schema_version) == (3, 7, 2)
    assert job.run_at == job.created_at
    assert (job.key, job.tenant, job.traceparent) == (None, "", None)


def test_options_stand_above_what_the_type_says(send: Send) -> None:
    options = send.options(
        priority=0, max_attempts=1, delay="1h", key="k", tenant="t", traceparent=TRACE, id=uuid.UUID(int=7)
    )
    handle = options.enqueue("a", 1)
    job = handle.get()
    assert handle.id == job.id == "00000000-0000-0000-0000-000000000007"
    assert (handle.key, job.key, job.tenant, job.traceparent) == ("k", "k", "t", TRACE)
    assert (job.priority, job.max_attempts) == (0, 1)
    assert job.run_at - job.created_at == timedelta(hours=1)


def test_the_context_is_not_the_callers_to_give(queue: Queue) -> None:
    @queue.job
    def build(ctx: Context, account: int) -> None: ...

    @queue.job
    def other(account: int, ctx: Context) -> None: ...

    elsewhere: Any = other
    assert bytes(build.enqueue(7).get().payload) == b'{"account":7}'
    assert bytes(elsewhere.enqueue(7).get().payload) == b'{"account":7}'


def test_a_call_gives_the_context_that_a_worker_would_give(queue: Queue) -> None:
    @queue.job
    def build(ctx: Context, account: int) -> tuple[Context, int]:
        return ctx, account

    @queue.job
    def other(account: int, ctx: Context) -> tuple[Context, int]:
        return ctx, account

    given: Any = object()
    named: Any = build
    assert build(given, 7) == named(ctx=given, account=7) == other(7, given) == other(account=7, ctx=given)


def test_a_class_that_stands_around_the_function_can_be_named_in_its_annotations(queue: Queue) -> None:
    @dataclass
    class Address:
        street: str

    @queue.job
    def move(to: Address) -> None: ...

    @queue.job(timeout=3)
    def visit(at: Address) -> None: ...

    assert bytes(move.enqueue(Address("x")).get().payload) == b'{"to":{"street":"x"}}'
    assert bytes(visit.enqueue(at=Address("y")).get().payload) == b'{"at":{"street":"y"}}'


def test_async_callers_enqueue_without_blocking_their_loop(send: Send) -> None:
    async def main() -> list[JobHandle]:
        return [await send.enqueue_async("a", 1), await send.options(priority=9).enqueue_async("b", 1)]

    first, second = asyncio.run(main())
    assert bytes(first.get().payload) == b'{"count":1,"to":"a"}'
    assert second.get().priority == 9


@pytest.mark.parametrize(
    ("at", "moment"),
    [
        (datetime(2030, 1, 1, 12), datetime(2030, 1, 1, 12, tzinfo=UTC)),  # noqa: DTZ001 - the case in question
        (datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), datetime(2030, 1, 1, 10, tzinfo=UTC)),
    ],
)
def test_a_time_without_a_zone_is_utc(send: Send, at: datetime, moment: datetime) -> None:
    assert send.options(at=at).enqueue("a", 1).get().run_at == moment


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"priority": -1}, "priority must be a whole number between 0 and 10, got -1"),
        ({"priority": 11}, "priority must be a whole number between 0 and 10, got 11"),
        ({"priority": "5"}, "priority must be a whole number"),
        ({"max_attempts": 0}, "max_attempts must be a whole number between 1 and 20, got 0"),
        ({"max_attempts": 21}, "max_attempts must be a whole number between 1 and 20, got 21"),
        ({"delay": -1}, "delay must be between 0s and 3650d, got -1"),
        ({"delay": "soon"}, "delay must be a duration"),
        ({"delay": "3651d"}, "delay must be between 0s and 3650d, got '3651d'"),
        ({"at": "2030-01-01"}, "at must be a datetime"),
        (
            {"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
            "at must be a time between the years 1 and 2099",
        ),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "at must be a time between the years 1 and 2099 in UTC"),
        ({"at": datetime(2100, 1, 1, tzinfo=UTC)}, "at must be a time between the years 1 and 2099"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "at= and delay= exclude each other"),
        ({"key": ""}, "key must be a text of 1 to 256 characters"),
        ({"key": "x" * 257}, "key must be a text of 1 to 256 characters"),
        ({"key": 5}, "key must be a text"),
        ({"key": "a\0"}, "key must be a text .* without NUL"),
        ({"key": "\ud800"}, "key must be a text .* without NUL or lone surrogates"),
        ({"tenant": ""}, "tenant must be a text of 1 to 128 characters"),
        ({"tenant": "x" * 129}, "tenant must be a text of 1 to 128 characters"),
        ({"id": "job1"}, "id must be a UUID; a name of your own is a key, got 'job1'"),
        ({"id": "{00000000-0000-0000-0000-000000000007}"}, "id must be a UUID"),
        ({"on_conflict": "skip"}, "on_conflict must be one of error, existing, got 'skip'"),
        ({"traceparent": "x"}, "traceparent must be a W3C trace context"),
        ({"traceparent": TRACE.upper()}, "traceparent must be a W3C trace context"),
        ({"traceparent": "ff" + TRACE[2:]}, "traceparent must be a W3C trace context"),
        ({"traceparent": "00-" + "0" * 32 + TRACE[35:]}, "traceparent must be a W3C trace context"),
        ({"traceparent": TRACE + "-x"}, "traceparent must be a W3C trace context"),
        ({"prio": 5}, "option must be one of priority, delay, .*got 'prio'"),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_is_stored(
    queue: Queue, send: Send, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        send.options(**options).enqueue("a", 1)
    with pytest.raises(InvalidValue, match=complaint):
        queue.enqueue("send", {"to": "a"}, **options)
    assert every_job(queue) == []


def test_the_longest_key_and_tenant_are_taken(send: Send) -> None:
    job = send.options(key="ü" * 256, tenant="ü" * 128).enqueue("a", 1).get()
    assert (job.key, job.tenant) == ("ü" * 256, "ü" * 128)


def test_an_id_is_stored_in_its_canonical_form(send: Send) -> None:
    handle = send.options(id="01A1E14E-6899-738A-BD87-21C78C49A886").enqueue("a", 1)
    assert handle.id == "01a1e14e-6899-738a-bd87-21c78c49a886"


@pytest.mark.parametrize("arguments", [("a", "1"), (5, 1), ("a", 1, 1), (), ("x" * 70_000, 1)])
def test_wrong_arguments_are_refused_and_nothing_is_stored(queue: Queue, send: Any, arguments: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"^send: "):
        send.enqueue(*arguments)
    assert every_job(queue) == []


@pytest.mark.parametrize("option", ["colour", "weight", "unique"])
def test_a_type_option_that_does_not_exist_is_refused(queue: Queue, option: str) -> None:
    made: Any = queue.job
    with pytest.raises(InvalidValue, match=f"job option must be one of .*name, executor.*, got '{option}'"):
        made(**{option: 1})


# --- keys and ids -------------------------------------------------------------------------------


def test_a_known_key_with_the_same_request_finds_its_job(queue: Queue, send: Send) -> None:
    first = send.options(key="signup:1").enqueue("a", 1)
    again = send.options(key="signup:1", priority=9).enqueue("a", 1)
    assert (first.created, again.created) == (True, False)
    assert first.id == again.id
    assert len(every_job(queue)) == 1


def test_the_order_in_which_a_request_was_written_does_not_make_another_request(
    queue: Queue, send: Send
) -> None:
    first = send.options(key="k").enqueue(count=1, to="a")  # type: ignore[call-arg]
    assert not queue.enqueue("send", {"to": "a", "count": 1}, key="k").created
    assert not queue.enqueue("send", {"count": 1, "to": "a"}, key="k").created
    assert len(every_job(queue)) == 1
    assert first.created


def test_a_known_key_with_another_payload_is_an_error_unless_the_old_job_is_asked_for(
    queue: Queue, send: Send
) -> None:
    first = send.options(key="signup:1").enqueue("a", 1)
    with pytest.raises(KeyConflict, match=first.id):
        send.options(key="signup:1").enqueue("b", 1)
    old = send.options(key="signup:1", on_conflict="existing").enqueue("b", 1)
    assert (old.id, old.created) == (first.id, False)
    assert len(every_job(queue)) == 1


def test_a_known_id_finds_its_job_or_is_an_error(send: Send) -> None:
    mine = str(uuid.uuid4())
    assert send.options(id=mine).enqueue("a", 1).created
    assert not send.options(id=mine).enqueue("a", 1).created
    with pytest.raises(IdConflict, match=mine):
        send.options(id=mine).enqueue("b", 1)


# --- many jobs ----------------------------------------------------------------------------------


def test_many_drafts_are_stored_in_their_order(queue: Queue, send: Send) -> None:
    handles = queue.enqueue_many(send.options(priority=9).draft(str(number), 1) for number in range(100))
    jobs = [handle.get() for handle in handles]
    assert [bytes(job.payload) for job in jobs] == [
        b'{"count":1,"to":"%d"}' % number for number in range(100)
    ]
    assert [job.seq for job in jobs] == sorted(job.seq for job in jobs)
    assert {job.priority for job in jobs} == {9}


def test_no_drafts_are_no_jobs(queue: Queue) -> None:
    assert queue.enqueue_many([]) == []


def test_up_to_ten_thousand_drafts_are_stored_all_or_none(queue: Queue, send: Send) -> None:
    send.options(key="taken").enqueue("somebody else's", 1)
    drafts = [send.draft(str(number), 1) for number in range(50)]
    with pytest.raises(KeyConflict):
        queue.enqueue_many([*drafts, send.options(key="taken").draft("mine", 1)])
    assert len(every_job(queue)) == 1


def test_beyond_ten_thousand_drafts_each_ten_thousand_are_stored_together(queue: Queue, send: Send) -> None:
    def drafts() -> Iterator[Any]:
        for _ in range(10_001):
            yield send.draft("a", 1)
        yield "no draft"

    with pytest.raises(InvalidValue, match=r"drafts\[10001\] must be a draft.*got 'no draft'"):
        queue.enqueue_many(drafts())
    assert queue.store.count(Filter(), limit=20_000) == 10_000


# --- which one of many was refused --------------------------------------------------------------


def at_once(queue: Queue, drafts: list[NewJob]) -> None:
    queue.enqueue_many(drafts)


def evenly(queue: Queue, drafts: list[NewJob]) -> None:
    queue.enqueue_many(drafts, max_per_second=1_000_000)


def from_a_loop(queue: Queue, drafts: list[NewJob]) -> None:
    asyncio.run(queue.enqueue_many_async(drafts, max_per_second=1_000_000))


@pytest.mark.parametrize("enqueue_many", [at_once, evenly, from_a_loop])
@pytest.mark.parametrize("place", [0, 4, 6, 9])
def test_a_refusal_names_the_draft_by_its_place_in_the_callers_list(
    queue: Queue,
    send: Send,
    monkeypatch: pytest.MonkeyPatch,
    enqueue_many: Callable[[Queue, list[NewJob]], None],
    place: int,
) -> None:
    monkeypatch.setattr("windlass.queue.producer.CHUNK", 3)
    send.options(key="taken").enqueue("somebody else's", 1)
    drafts = [send.draft(str(number), 1) for number in range(9)]
    for wrong in (send.options(key="taken"), send.options(depends_on=["nobody"])):
        refused = [*drafts[:place], wrong.draft("mine", 1), *drafts[place:]]
        with pytest.raises(Refused, match=f"job {place} of the batch: ") as error:
            enqueue_many(queue, refused)
        stored = place // 3 * 3
        assert (error.value.index, error.value.stored) == (place, stored)
        assert (f"(the first {stored} jobs of the batch are stored)" in str(error.value)) == bool(stored)
        assert len(every_job(queue)) == 1 + stored


def test_a_conflict_with_another_draft_names_both_by_their_places(
    queue: Queue, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.queue.producer.CHUNK", 3)
    drafts = [send.draft(str(number), 1) for number in range(4)]
    twins = [send.options(key="job 1").draft(to, 1) for to in "ab"]
    with pytest.raises(
        KeyConflict, match="job 5 of the batch: key 'job 1' is also the key of job 4,"
    ) as error:
        queue.enqueue_many([*drafts, *twins])
    assert (error.value.index, error.value.twin, error.value.stored) == (5, 4, 3)


def test_what_a_full_queue_has_taken_of_a_list_is_told(
    queue: Queue, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.queue.producer.CHUNK", 3)
    queue.store.set_setting("hard_depth", "7")
    drafts = [send.draft(str(number), 1) for number in range(9)]
    with pytest.raises(QueueFull, match="not stored, retry later") as error:
        queue.enqueue_many(drafts)
    assert (error.value.index, error.value.stored, len(every_job(queue))) == (None, 6, 6)
    queue.store.set_setting("hard_depth", "100")
    queue.close()
    assert len(queue.enqueue_many(drafts)) == len(every_job(queue)) == 9


def test_what_is_wrong_with_a_draft_of_a_list_names_its_place(
    queue: Queue, send: Send, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("windlass.queue.producer.CHUNK", 3)

    def by_name() -> Iterator[NewJob]:
        yield from (send.draft(str(number), 1) for number in range(4))
        yield queue.draft("nobody", {})

    with Queue(f"sqlite:///{tmp_path}/other.db") as other:
        other.job(name="foreign")(lambda: None)
        foreign = [send.draft(str(number), 1) for number in range(4)] + [other.draft("foreign", {})]
        for drafts in (by_name(), foreign):
            with pytest.raises(Refused, match="job 4 of the batch: ") as error:
                queue.enqueue_many(drafts)
            assert (error.value.index, error.value.stored) == (4, 3)


def test_the_next_drafts_are_made_while_those_before_them_are_stored(
    queue: Queue, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.queue.producer.CHUNK", 2)
    store, made_more = queue.store, threading.Event()
    enqueue = store.enqueue

    def waiting(drafts: Any) -> Any:
        assert made_more.wait(PATIENCE)
        return enqueue(drafts)

    def drafts() -> Iterator[Any]:
        for number in range(5):
            if number == 2:
                made_more.set()
            yield send.draft(str(number), 1)

    monkeypatch.setattr(store, "enqueue", waiting)
    handles = queue.enqueue_many(drafts())
    assert [bytes(handle.get().payload) for handle in handles] == [
        b'{"count":1,"to":"%d"}' % number for number in range(5)
    ]


def test_drafts_that_were_refused_are_told_of_before_those_that_could_not_be_made(
    queue: Queue, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.queue.producer.CHUNK", 2)
    send.options(key="taken").enqueue("somebody else's", 1)
    drafts = [send.draft("a", 1), send.options(key="taken").draft("mine", 1), "no draft"]
    with pytest.raises(KeyConflict):
        queue.enqueue_many(iter(drafts))  # type: ignore[arg-type]
    assert len(every_job(queue)) == 1


def test_a_bad_draft_is_named_by_its_number(queue: Queue, send: Any) -> None:
    with pytest.raises(InvalidPayload) as caught:
        queue.enqueue_many(send.draft(number if number == 7 else str(number)) for number in range(10))
    assert caught.value.index == 7
    assert every_job(queue) == []


# --- looking and cancelling ---------------------------------------------------------------------


def test_a_job_is_found_by_id_and_by_key(queue: Queue, send: Send) -> None:
    handle = send.options(key="signup:1").enqueue("a", 1)
    assert queue.get(handle.id).id == queue.get("signup:1").id == handle.id
    with pytest.raises(JobNotFound, match="no job has the id or key 'nope'"):
        queue.get("nope")


def test_a_pending_job_is_cancelled_by_id_or_key(queue: Queue, send: Send) -> None:
    one, two = send.enqueue("a", 1), send.options(key="k").enqueue("b", 1)
    assert queue.cancel(one.id).done
    assert queue.cancel("k").done
    assert one.state is two.state is JobState.CANCELLED
    with pytest.raises(JobNotFound):
        queue.cancel("nope")


# --- where the store is -------------------------------------------------------------------------


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/jobs.db")

    @queue.job
    def send(to: str) -> None: ...

    assert list(tmp_path.iterdir()) == []
    send.enqueue("a")
    assert (tmp_path / "jobs.db").exists()
    queue.close()


def test_a_closed_queue_opens_again_when_it_is_used(send: Send, queue: Queue) -> None:
    first = send.enqueue("a", 1)
    queue.close()
    queue.close()
    assert send.enqueue("b", 1).id != first.id
    assert first.state is JobState.PENDING


@pytest.mark.parametrize("place", ["environment", "file", "default"])
def test_without_a_url_the_environment_then_the_file_then_the_folder_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDLASS_DATABASE_URL", raising=False)
    if place != "default":
        (tmp_path / "windlass.toml").write_text('database_url = "sqlite:///file.db"\n')
    if place == "environment":
        monkeypatch.setenv("WINDLASS_DATABASE_URL", "sqlite:///environment.db")
    with Queue() as queue:
        queue.store.now()
    names = {path.name for path in tmp_path.glob("*.db")}
    assert names == {{"default": "windlass.db"}.get(place, f"{place}.db")}


def test_a_batch_ends_in_nothing_that_could_be_refused(queue: Queue, send: Send) -> None:
    draft = send.options(unique="report", on_unique="error").draft("a@b.c", 1)
    with pytest.raises(InvalidValue, match="without key, unique and depends_on"), queue.batch() as batch:
        batch.then(draft)


# --- drafts and names that do not belong here ---------------------------------------------------


def test_a_draft_of_another_queue_is_refused_and_nothing_is_stored(
    queue: Queue, send: Send, tmp_path: Path
) -> None:
    with Queue(f"sqlite:///{tmp_path}/other.db") as other:
        for name in ("resize", "send"):
            other.job(name=name)(lambda to: None)
            foreign = other.draft(name, {"to": "a"})
            with pytest.raises(Refused, match=rf"job 1 of the batch: the draft is a job of type {name} that"):
                queue.enqueue_many([send.draft("a", 1), foreign])
            with pytest.raises(Refused, match="another queue made"):
                queue.batch().add(foreign)
    assert every_job(queue) == []


def test_two_queues_of_one_store_take_each_others_drafts(queue: Queue, send: Send) -> None:
    with Queue(queue.url) as other:
        queue.enqueue_many([send.draft("b", 1)])
        other.enqueue_many([send.draft("a", 1)])
    assert len(every_job(queue)) == 2


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_store_can_keep_belongs_to_no_job(queue: Queue, name: str) -> None:
    for ask in (queue.get, queue.cancel, queue.batch_status):
        with pytest.raises(JobNotFound):
            ask(name)
    with pytest.raises(InvalidValue, match="lone surrogates"):
        queue.batch(name)
    with pytest.raises(JobNotFound, match="no batch has the id 5"):
        queue.batch_status(5)  # type: ignore[arg-type]


def test_a_process_reports_once_a_minute_how_long_its_calls_took(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as queue:
        send = queue.job(name="send")(lambda: None)
        for _ in range(3):
            send.enqueue()
        first = names.bucket(names.ENQUEUE_CALL, 0)
        assert ("", first) not in queue.store.totals()
        clock.advance(61)
        send.enqueue()
        assert queue.store.totals()["", first] == 3
