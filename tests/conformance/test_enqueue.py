"""Is work accepted whole, once, and as it was handed in?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.conformance.scene import (
    DONE,
    MAIL,
    REPORT,
    a_job,
    a_payload,
    ids,
    in_state,
    look_up,
    put,
    put_one,
    settle,
    take,
    take_one,
)
from windlass.clock import ManualClock, uuid7
from windlass.errors import Conflict, IdConflict, KeyConflict
from windlass.job import JobState, NewJob, TypeInfo
from windlass.store.jobs import Edit, Filter
from windlass.store.store import Store
from windlass.store.upkeep import Retention


def everything(store: Store) -> list[str]:
    return ids(store.find(Filter(), limit=1000).jobs)


def test_nothing_to_enqueue_is_no_error(store: Store) -> None:
    assert store.enqueue([]) == []
    assert everything(store) == []


def test_a_job_is_kept_as_it_was_handed_in(store: Store, other: Store, clock: ManualClock) -> None:
    handed_in = a_job(
        type=REPORT,
        payload='{"to":"ä","n":1.50,"deep":{"list":[1,null,true]}}'.encode(),
        schema_version=3,
        priority=9,
        max_attempts=7,
        delay=timedelta(seconds=90),
        key="signup:789",
        caller="shop",
        tenant="acme",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    now = store.now()
    [answer] = store.enqueue([handed_in])
    job = look_up(store, answer.id)
    assert answer.created
    assert other.get(handed_in.id) == job
    for field in (
        "id",
        "type",
        "schema_version",
        "priority",
        "max_attempts",
        "key",
        "caller",
        "tenant",
        "traceparent",
    ):
        assert getattr(job, field) == getattr(handed_in, field), field
    assert bytes(job.payload) == handed_in.payload
    assert job.state is JobState.PENDING
    assert (job.attempts, job.claims, job.snoozes, job.interruptions, job.losses, job.replay_count) == (
        0,
    ) * 6
    assert (job.created_at, job.enqueued_at, job.updated_at) == (now, now, now)
    assert job.run_at == now + timedelta(seconds=90)
    assert (job.started_at, job.finished_at, job.worker, job.lease_until, job.error) == (None,) * 5
    assert job.history == ()


def test_a_job_without_a_time_is_due_at_once(store: Store) -> None:
    job = put_one(store)
    assert job.run_at == store.now()
    assert ids(take(store)) == [job.id]


@pytest.mark.parametrize(
    ("run_at", "instant"),
    [
        (datetime(2026, 1, 5, 12, tzinfo=UTC), datetime(2026, 1, 5, 12, tzinfo=UTC)),
        (datetime(2026, 1, 5, 12), datetime(2026, 1, 5, 12, tzinfo=UTC)),  # noqa: DTZ001 - the case at hand
        (
            datetime.fromisoformat("2026-01-05T14:00:00.25+02:00"),
            datetime(2026, 1, 5, 12, 0, 0, 250_000, tzinfo=UTC),
        ),
    ],
)
def test_a_time_is_kept_as_an_instant(store: Store, run_at: datetime, instant: datetime) -> None:
    assert look_up(store, put_one(store, run_at=run_at).id).run_at == instant


def test_a_time_in_the_past_is_due_at_once(store: Store) -> None:
    job = put_one(store, run_at=store.now() - timedelta(days=1))
    assert ids(take(store)) == [job.id]


def test_a_batch_is_answered_in_its_own_order_with_rising_seq(store: Store) -> None:
    batch = [a_job(priority=number % 11) for number in range(100)]
    answers = store.enqueue(batch)
    assert [answer.id for answer in answers] == [job.id for job in batch]
    seqs = [look_up(store, answer.id).seq for answer in answers]
    assert seqs == sorted(set(seqs))


def test_seq_rises_over_calls_and_is_never_given_twice(store: Store, clock: ManualClock) -> None:
    first = put_one(store)
    settle(store, take_one(store), DONE)
    clock.advance(timedelta(days=8))
    assert store.prune(Retention()) == 1
    assert put_one(store).seq > first.seq


@pytest.mark.parametrize(
    "payload", [b"{}", b'{"a":"' + b"x" * 65_000 + b'"}', '{"a":"\U0001f40d\\u0000"}'.encode()]
)
def test_a_payload_comes_back_byte_for_byte(store: Store, other: Store, payload: bytes) -> None:
    job = put_one(store, payload=payload)
    assert bytes(look_up(other, job.id).payload) == payload
    [lease] = take(other)
    assert bytes(lease.job.payload) == payload


# --- all or none --------------------------------------------------------------------------------


def test_a_batch_with_one_conflict_stores_nothing_at_all(store: Store, other: Store) -> None:
    put_one(store, key="taken")
    before = everything(store)
    batch = [a_job(key="new"), a_job(), a_job(key="taken"), a_job()]
    with pytest.raises(KeyConflict):
        store.enqueue(batch)
    assert everything(other) == before
    assert store.get("new") is None
    # What the refused batch had touched is free.
    assert [answer.created for answer in store.enqueue([a_job(key="new")])] == [True]


def test_a_refused_batch_does_not_pull_down_its_neighbours(store: Store) -> None:
    put_one(store, key="taken")
    with pytest.raises(KeyConflict):
        store.enqueue([a_job(key="taken")])
    assert len(put(store, a_job(), a_job())) == 2


def test_a_batch_of_ten_thousand_is_one_batch(store: Store) -> None:
    batch = [a_job() for _ in range(10_000)]
    assert len(store.enqueue(batch)) == 10_000
    assert store.count(Filter(), limit=20_000) == 10_000


# --- keys ---------------------------------------------------------------------------------------


def test_a_known_key_answers_with_the_job_that_has_it(store: Store, other: Store) -> None:
    payload = a_payload(to="a")
    job = put_one(store, key="k", payload=payload)
    [answer] = other.enqueue([a_job(key="k", payload=payload, priority=9)])
    assert (answer.created, answer.id, look_up(store, answer.id).priority) == (False, job.id, 5)
    assert everything(store) == [job.id]


@pytest.mark.parametrize("state", list(JobState))
def test_a_known_key_answers_with_the_jobs_present_state(store: Store, state: JobState) -> None:
    payload = a_payload(to="a")
    job = in_state(store, state, key="k", payload=payload)
    [answer] = store.enqueue([a_job(key="k", payload=payload)])
    assert (answer.created, answer.id, look_up(store, answer.id).state) == (False, job.id, state)
    assert everything(store) == [job.id]


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("changes", [{"payload": a_payload(to="b")}, {"type": REPORT}])
def test_a_known_key_with_other_work_is_refused(
    store: Store, state: JobState, changes: dict[str, object]
) -> None:
    job = in_state(store, state, key="k", payload=a_payload(to="a"))
    again = msgspec.structs.replace(a_job(key="k", payload=a_payload(to="a")), **changes)
    with pytest.raises(KeyConflict) as refused:
        store.enqueue([again])
    assert (refused.value.key, refused.value.job_id) == ("k", job.id)
    assert everything(store) == [job.id]


@pytest.mark.parametrize("state", list(JobState))
def test_who_asks_for_the_existing_job_gets_it_whatever_its_payload(store: Store, state: JobState) -> None:
    job = in_state(store, state, key="k", payload=a_payload(to="a"))
    [answer] = store.enqueue([a_job(key="k", payload=a_payload(to="b"), take_existing=True)])
    assert (answer.created, answer.id) == (False, job.id)
    assert bytes(look_up(store, answer.id).payload) == a_payload(to="a")


def test_a_key_is_compared_with_the_payload_as_sent_not_as_edited(store: Store) -> None:
    sent = a_payload(to="a")
    job = in_state(store, JobState.DEAD, key="k", payload=sent)
    store.replay(job.id, edit=Edit(payload=a_payload(to="b")))
    [answer] = store.enqueue([a_job(key="k", payload=sent)])
    assert (answer.created, answer.id) == (False, job.id)


def test_a_key_belongs_to_one_caller(store: Store) -> None:
    mine, theirs = put(store, a_job(key="k", caller="a"), a_job(key="k", caller="b"))
    found = [store.get("k", caller="a"), store.get("k", caller="b")]
    assert [job and job.id for job in found] == [mine.id, theirs.id]
    assert store.get("k") is None


def test_a_key_twice_in_one_batch_is_one_job(store: Store) -> None:
    payload = a_payload(to="a")
    answers = store.enqueue([a_job(key="k", payload=payload), a_job(), a_job(key="k", payload=payload)])
    assert [answer.created for answer in answers] == [True, True, False]
    assert answers[0].id == answers[2].id
    assert len(everything(store)) == 2


def test_a_key_twice_in_one_batch_with_other_work_refuses_the_batch(store: Store) -> None:
    with pytest.raises(KeyConflict):
        store.enqueue([a_job(key="k"), a_job(key="k")])
    assert everything(store) == []


def test_jobs_without_a_key_are_never_taken_for_one_another(store: Store) -> None:
    payload = a_payload(to="a")
    assert len(put(store, *(a_job(payload=payload) for _ in range(3)))) == 3


def test_a_key_that_looks_like_another_jobs_id_finds_neither_wrongly(store: Store) -> None:
    first = put_one(store)
    second = put_one(store, key=first.id)
    assert look_up(store, first.id).id == first.id
    assert look_up(store, second.id).id == second.id


# --- ids made by the caller ---------------------------------------------------------------------


@pytest.mark.parametrize("state", list(JobState))
def test_a_repeated_id_finds_its_job_live_or_archived(store: Store, state: JobState) -> None:
    payload = a_payload(to="a")
    job = in_state(store, state, own_id=True, payload=payload)
    [answer] = store.enqueue([a_job(id=job.id, own_id=True, payload=payload)])
    assert (answer.created, answer.id, look_up(store, answer.id).state) == (False, job.id, state)
    assert everything(store) == [job.id]


@pytest.mark.parametrize("state", list(JobState))
def test_an_id_of_other_work_is_refused(store: Store, state: JobState) -> None:
    job = in_state(store, state, own_id=True)
    before = look_up(store, job.id)
    with pytest.raises(IdConflict) as refused:
        store.enqueue([a_job(id=job.id, own_id=True)])
    assert refused.value.job_id == job.id
    assert everything(store) == [job.id]
    assert look_up(store, job.id) == before


def test_an_id_twice_in_one_batch_is_one_job(store: Store) -> None:
    twice = a_job(own_id=True)
    answers = store.enqueue([twice, twice])
    assert [answer.created for answer in answers] == [True, False]
    assert everything(store) == [twice.id]


def test_the_same_call_repeated_finds_what_it_made(store: Store, other: Store) -> None:
    """A producer that lost the answer sends the very same jobs again, ids that we made included."""
    batch = [a_job(), a_job(key="k"), a_job(own_id=True)]
    made = store.enqueue(batch)
    again = other.enqueue(batch)
    assert [answer.created for answer in again] == [False, False, False]
    assert [answer.id for answer in again] == [answer.id for answer in made]


def test_one_that_is_known_among_many_new_ones_is_found_and_the_rest_is_made(store: Store) -> None:
    batch = [a_job() for _ in range(5)]
    store.enqueue(batch[2:3])
    answers = store.enqueue(batch)
    assert [answer.created for answer in answers] == [True, True, False, True, True]
    assert set(everything(store)) == {new.id for new in batch}


def test_many_at_once_are_stored_as_each_alone_would_be(store: Store, clock: ManualClock) -> None:
    clock.advance(1)
    odd: dict[str, Any] = {
        "payload": a_payload(text='"quoted" \\ \n \u2028 Ω 🚀', nothing=None),
        "priority": 9,
        "tenant": 'a "tenant" 🚀',
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "schema_version": 3,
        "max_attempts": 2,
        "delay": timedelta(seconds=90),
        "caller": "somebody",
    }
    alone = put_one(store, **odd)
    many = put(store, *(a_job(**odd) for _ in range(4)))
    assert alone.seq < many[0].seq < many[1].seq < many[2].seq < many[3].seq
    assert [msgspec.structs.replace(job, id=alone.id, seq=alone.seq) for job in many] == [alone] * 4


def test_the_same_call_repeated_after_the_job_has_ended_runs_nothing_twice(store: Store) -> None:
    batch = [a_job(own_id=True), a_job(own_id=True, key="k")]
    store.enqueue(batch)
    for lease in take(store, limit=2):
        assert settle(store, lease, DONE)
    assert [answer.created for answer in store.enqueue(batch)] == [False, False]
    assert take(store, limit=2) == []


def test_a_known_id_with_a_new_key_does_not_take_the_key(store: Store) -> None:
    job = put_one(store, own_id=True, payload=a_payload(to="a"))
    with pytest.raises(Conflict):
        store.enqueue([a_job(id=job.id, own_id=True, key="k", payload=a_payload(to="a"))])
    assert put_one(store, key="k").key == "k"


def test_a_new_id_with_a_known_key_leaves_no_trace_of_the_id(store: Store) -> None:
    payload = a_payload(to="a")
    holder = put_one(store, key="k", payload=payload)
    unused = uuid7()
    [answer] = store.enqueue([NewJob(id=unused, type=MAIL, payload=payload, key="k", own_id=True)])
    assert (answer.created, answer.id) == (False, holder.id)
    assert store.get(unused) is None


# --- the catalogue ------------------------------------------------------------------------------


def test_the_catalogue_begins_empty_and_keeps_what_is_registered(store: Store, other: Store) -> None:
    assert store.types() == {}
    store.register([])
    info = TypeInfo(name=MAIL, schema_version=2, schema={"type": "object"}, options={"timeout": 30})
    store.register([info, TypeInfo(name=REPORT, schema={})])
    assert sorted(other.types()) == [MAIL, REPORT]
    assert other.types()[MAIL] == info


def test_a_newer_schema_version_in_the_catalogue_stays(store: Store, clock: ManualClock) -> None:
    store.register([TypeInfo(name=MAIL, schema_version=3, schema={"v": 3})])
    store.register([TypeInfo(name=MAIL, schema_version=2, schema={"v": 2})])
    assert store.types()[MAIL].schema == {"v": 3}
    clock.advance(1)
    store.register([TypeInfo(name=MAIL, schema_version=3, schema={"v": "3 fixed"})])
    assert store.types()[MAIL].schema == {"v": "3 fixed"}
    store.register([TypeInfo(name=MAIL, schema_version=4, schema={"v": 4})])
    assert store.types()[MAIL].schema_version == 4


def test_a_conflict_says_which_job_of_a_batch_it_is_about(store: Store) -> None:
    known = put_one(store, key="known")
    for wrong in (a_job(key="known"), a_job(id=known.id, own_id=True)):
        with pytest.raises(Conflict) as refused:
            store.enqueue([a_job(), a_job(key="new"), wrong, a_job()])
        assert (refused.value.index, refused.value.__dict__["job_id"]) == (2, known.id)
    assert everything(store) == [known.id]


def test_a_conflict_within_a_batch_names_no_job_that_was_rolled_back(store: Store) -> None:
    for twins in ({"key": "k"}, {"unique": "u", "on_unique": "error"}):
        with pytest.raises(Conflict, match=r"job 2 of the batch: .* job 0") as refused:
            store.enqueue([a_job(**twins), a_job(), a_job(**twins)])
        assert (refused.value.index, refused.value.__dict__["job_id"]) == (2, None)
    assert everything(store) == []
