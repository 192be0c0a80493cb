"""Is there at most one job of a name at a time, and is no name ever stuck?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.conftest import Place
from tests.conformance.contenders import at_once, won
from tests.conformance.scene import (
    AGAIN,
    CANCELLED,
    DEAD,
    DONE,
    GIVEN_BACK,
    OUTCOMES,
    REPORT,
    SNOOZED,
    a_job,
    a_payload,
    a_worker,
    look_up,
    settle,
    state_of,
    take,
    take_one,
)
from windlass.clock import ManualClock
from windlass.errors import UniqueConflict
from windlass.job import JobState, Lease, NewJob
from windlass.outcome import Outcome
from windlass.store.engine import Enqueued
from windlass.store.store import Store
from windlass.store.upkeep import Retention

NAME = "sync:42"


def one(store: Store, **changes: Any) -> Enqueued:
    """Enqueue a job that shall be the only one of its name."""
    [answer] = store.enqueue([a_job(unique=NAME, **changes)])
    return answer


def running(store: Store, **changes: Any) -> Lease:
    """The only job of its name, running."""
    answer = one(store, **changes)
    lease = take_one(store)
    assert lease.id == answer.id
    return lease


# --- how long a name is held --------------------------------------------------------------------


@pytest.mark.parametrize("until", ["start", "done"])
def test_a_waiting_job_holds_its_name(store: Store, until: str) -> None:
    first = one(store, unique_until=until)
    second = one(store, unique_until=until)
    assert (first.created, second.created) == (True, False)
    assert second.id == first.id


def test_until_done_a_running_job_holds_its_name(store: Store) -> None:
    lease = running(store)
    assert one(store).id == lease.id
    settle(store, lease, DONE)
    assert one(store).created


def test_until_start_a_running_job_has_freed_it(store: Store) -> None:
    running(store, unique_until="start")
    assert one(store, unique_until="start").created


@pytest.mark.parametrize("outcome", [AGAIN, SNOOZED, GIVEN_BACK], ids=lambda each: type(each).__name__)
def test_until_start_a_job_that_comes_back_does_not_take_the_name_again(
    store: Store, outcome: Outcome
) -> None:
    lease = running(store, unique_until="start")
    second = one(store, unique_until="start")
    assert settle(store, lease, outcome)
    assert state_of(store, lease.id) is JobState.PENDING
    assert one(store, unique_until="start").id == second.id


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=list(OUTCOMES))
def test_until_done_the_name_is_free_after_every_end_and_held_until_then(
    store: Store, outcome: Outcome
) -> None:
    lease = running(store)
    assert settle(store, lease, outcome)
    ended = state_of(store, lease.id) is not JobState.PENDING
    assert one(store).created is ended


@pytest.mark.parametrize("verb", ["cancel", "bury"])
def test_what_an_operator_ends_holds_no_name(store: Store, verb: str) -> None:
    getattr(store, verb)(one(store).id)
    assert one(store).created


def test_a_killed_workers_job_keeps_its_name_until_it_has_run(store: Store) -> None:
    store.join(a_worker("worker-1"))
    lease = running(store)
    store.declare_dead("worker-1", 0)
    [orphan] = store.orphans(limit=10)
    assert not one(store).created
    settle(store, orphan, AGAIN)
    assert one(store).id == lease.id
    settle(store, take_one(store), DONE)
    assert one(store).created


# --- what to do if there is one -----------------------------------------------------------------


def test_error_refuses_and_names_the_holder(store: Store) -> None:
    first = one(store)
    with pytest.raises(UniqueConflict, match=f"'{NAME}' is held by job {first.id}, which is pending"):
        one(store, on_unique="error")


def test_replace_gives_the_waiting_job_new_work(store: Store) -> None:
    first = one(store, priority=1, tenant="a")
    second = one(
        store, on_unique="replace", payload=a_payload(new=True), priority=9, tenant="a", max_attempts=2
    )
    assert second.id == first.id
    assert not second.created
    job = look_up(store, first.id)
    assert bytes(job.payload) == a_payload(new=True)
    assert (job.priority, job.tenant, job.max_attempts) == (9, "a", 2)


def test_replace_moves_the_time_so_that_only_the_last_of_many_runs(store: Store, clock: ManualClock) -> None:
    for number in range(5):
        one(store, on_unique="replace", payload=a_payload(n=number), delay=timedelta(seconds=10))
        clock.advance(8)
    store.promote()
    assert take(store) == []
    clock.advance(2)
    store.promote()
    assert bytes(take_one(store).job.payload) == a_payload(n=4)
    assert take(store) == []


def test_replaced_work_begins_with_its_first_attempt(store: Store) -> None:
    lease = running(store)
    settle(store, lease, AGAIN)
    one(store, on_unique="replace")
    job = look_up(store, lease.id)
    assert job.attempts == 0
    assert len(job.history) == 1


def test_replace_never_changes_a_running_job_and_never_skips_in_silence(store: Store) -> None:
    lease = running(store)
    with pytest.raises(UniqueConflict, match="which is processing"):
        one(store, on_unique="replace")
    assert settle(store, lease, DONE)


def test_replace_of_one_that_has_started_starts_over(store: Store) -> None:
    lease = running(store, unique_until="start")
    again = one(store, unique_until="start", on_unique="replace")
    assert again.created
    assert again.id != lease.id


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_job_of_another_type_is_no_answer(store: Store, policy: str) -> None:
    one(store)
    with pytest.raises(UniqueConflict):
        one(store, type=REPORT, on_unique=policy)


# --- with what else there is --------------------------------------------------------------------


def test_a_dead_job_takes_its_name_again_or_is_refused(store: Store) -> None:
    lease = running(store)
    settle(store, lease, DEAD)
    second = one(store)
    with pytest.raises(UniqueConflict, match=second.id):
        store.replay(lease.id)
    assert state_of(store, lease.id) is JobState.DEAD

    store.cancel(second.id)
    store.replay(lease.id)
    assert one(store).id == lease.id


def test_until_start_a_replayed_job_holds_its_name_until_it_starts_again(store: Store) -> None:
    lease = running(store, unique_until="start")
    settle(store, lease, DEAD)
    store.replay(lease.id)
    assert one(store, unique_until="start").id == lease.id
    take_one(store)
    assert one(store, unique_until="start").created


def test_a_request_that_is_sent_again_finds_its_own_job(store: Store) -> None:
    new = a_job(unique=NAME, key="request-1")
    store.enqueue([new])
    settle(store, take_one(store), DONE)
    other = one(store)
    [again] = store.enqueue([a_job(unique=NAME, key="request-1", payload=new.payload)])
    assert (again.id, again.created) == (new.id, False)
    [by_id] = store.enqueue([NewJob(**{**new_fields(new), "own_id": True})])
    assert (by_id.id, by_id.created) == (new.id, False)
    assert other.id != new.id


def new_fields(new: NewJob) -> dict[str, Any]:
    return {name: getattr(new, name) for name in NewJob.__struct_fields__}


def test_a_key_that_was_answered_with_the_holder_finds_it_again(store: Store) -> None:
    first = one(store)
    new = a_job(unique=NAME, key="request-2")
    for _ in range(2):
        [answer] = store.enqueue([new])
        assert (answer.id, answer.created) == (first.id, False)
    assert look_up(store, "request-2").id == first.id


def test_one_name_twice_in_a_batch_is_one_job(store: Store) -> None:
    first, plain, second = store.enqueue([a_job(unique=NAME), a_job(), a_job(unique=NAME)])
    assert [each.created for each in (first, plain, second)] == [True, True, False]
    assert second.id == first.id


def test_all_or_none_of_a_batch_is_stored(store: Store) -> None:
    one(store)
    fresh = a_job(unique="another")
    with pytest.raises(UniqueConflict):
        store.enqueue([fresh, a_job(unique=NAME, on_unique="error")])
    assert store.get(fresh.id) is None


# --- under races --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["skip", "replace", "error"])
def test_of_many_who_enqueue_at_the_same_instant_one_makes_the_job(
    store: Store, place: Place, policy: str
) -> None:
    stores = [store, *(place.open() for _ in range(3))]
    for number in range(5):
        name = f"name-{number}"
        calls = [
            lambda each=each: each.enqueue([a_job(unique=name, on_unique=policy)])[0]  # noqa: B023
            for each in stores
        ]
        answers = at_once(*calls)
        made = [answer for answer in answers if isinstance(answer, Enqueued) and answer.created]
        assert len(made) == 1
        others = [answer for answer in answers if answer is not made[0]]
        if policy == "error":
            assert all(isinstance(answer, UniqueConflict) for answer in others)
        else:
            assert {answer.id for answer in won(others)} == {made[0].id}


def test_a_replace_and_a_claim_at_the_same_instant_lose_no_work(store: Store, other: Store) -> None:
    for number in range(10):
        name = f"race-{number}"
        [first] = store.enqueue([a_job(unique=name, unique_until="start", payload=a_payload(v=1))])
        claimed, answer = at_once(
            lambda: take(store, 1),
            lambda: other.enqueue(
                [a_job(unique=name, unique_until="start", on_unique="replace", payload=a_payload(v=2))]  # noqa: B023
            ),
        )
        assert isinstance(claimed, list)
        assert isinstance(answer, list)
        leases = [*claimed, *take(store, 5)]
        payloads = [bytes(lease.job.payload) for lease in leases]
        # Either the job took the new work before it started, or the new work is a job of its own.
        assert payloads in ([a_payload(v=2)], [a_payload(v=1), a_payload(v=2)])
        assert leases[0].id == first.id
        for lease in leases:
            settle(store, lease, CANCELLED)


def test_a_request_that_is_sent_again_after_its_job_is_forgotten_is_the_only_one_of_its_name(
    store: Store, clock: ManualClock
) -> None:
    lease = running(store)
    one(store, key="request-3")
    assert settle(store, lease, DONE)
    clock.advance(timedelta(days=30))
    keep = Retention(ended=timedelta(days=7), dead=timedelta(days=30))
    while store.get(lease.id) is not None:
        store.prune(keep)
    assert store.check() == [], "the key is gone with the record"
    holder = one(store)
    again = one(store, key="request-3")
    assert (again.id, again.created) == (holder.id, False)


def test_keys_of_requests_that_were_answered_with_a_dead_job_go_with_it(
    store: Store, clock: ManualClock
) -> None:
    lease = running(store)
    for number in range(3):
        one(store, key=f"request-{number}")
    settle(store, lease, DEAD)
    assert look_up(store, "request-1").id == lease.id
    clock.advance(timedelta(days=31))
    store.prune(Retention(ended=timedelta(days=7), dead=timedelta(days=30)))
    assert store.get("request-1") is None
    assert store.check() == []
