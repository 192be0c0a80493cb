"""Who gets which job, in which order, and what does a claim change?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.scene import (
    AGAIN,
    DONE,
    GIVEN_BACK,
    INTERRUPTED,
    LATER,
    LEASE,
    MAIL,
    REPORT,
    SNOOZED,
    TYPES,
    a_job,
    a_payload,
    a_seasoned_lease,
    ids,
    in_state,
    look_up,
    put,
    put_one,
    settle,
    take,
    take_new,
    take_one,
)
from windlass.clock import ManualClock
from windlass.job import JobState, Lease
from windlass.store.engine import Want
from windlass.store.store import Store


def test_a_claim_with_nothing_to_do_answers_nothing(store: Store) -> None:
    claimed = store.claim(Want(worker="w", types=TYPES, limit=10, lease=LEASE))
    assert (claimed.leases, claimed.next_due) == ([], None)


def test_a_claim_for_no_types_or_no_slots_takes_nothing(store: Store) -> None:
    job = put_one(store)
    assert take(store, types={}) == []
    assert take(store, limit=0) == []
    assert look_up(store, job.id) == job


def test_a_claim_makes_a_job_processing_and_counts_an_attempt(
    store: Store, other: Store, clock: ManualClock
) -> None:
    job = put_one(store)
    clock.advance(3)
    now = store.now()
    lease = take_one(store, worker="worker-7")
    held = look_up(other, job.id)
    assert lease.job == held
    assert held.state is JobState.PROCESSING
    assert (held.attempts, held.claims) == (1, 1)
    assert (held.worker, lease.worker) == ("worker-7", "worker-7")
    assert held.started_at == held.updated_at == now
    assert held.lease_until == lease.until == now + LEASE
    assert held.created_at == job.created_at


ODD = 'quotes " and \\ strokes, a \t tab, \x1f, ünïcode, \U0001f680 and [1, {"a": null}]'


def test_a_claim_hands_out_the_job_as_the_store_shows_it(store: Store, clock: ManualClock) -> None:
    lease = a_seasoned_lease(
        store,
        clock,
        payload=a_payload(odd=ODD, number=1.5, large=2**53, nothing=None),
        tenant=ODD[:20],
        key=ODD[:20],
        caller="somebody",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    assert lease.job == look_up(store, lease.id)
    assert bytes(lease.job.payload) == a_payload(odd=ODD, number=1.5, large=2**53, nothing=None)
    assert lease.until == lease.job.lease_until


def test_what_is_claimed_is_not_claimed_again(store: Store, other: Store) -> None:
    put_one(store)
    assert len(take(store)) == 1
    assert take(other) == []


def test_a_claim_takes_no_more_than_its_limit(store: Store) -> None:
    made = put(store, *(a_job() for _ in range(25)))
    assert ids(take(store, limit=10)) == ids(made[:10])
    assert ids(take(store, limit=100)) == ids(made[10:])


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.PENDING])
def test_only_pending_jobs_are_claimed(store: Store, state: JobState) -> None:
    in_state(store, state)
    assert take(store, limit=5) == []


# --- order --------------------------------------------------------------------------------------


def test_higher_priorities_go_first_then_earlier_arrivals(store: Store) -> None:
    made = put(store, *(a_job(priority=priority) for priority in (5, 0, 10, 5, 7, 10, 0, 7)))
    expected = [made[number].id for number in (2, 5, 4, 7, 0, 3, 1, 6)]
    assert ids(take(store, limit=8)) == expected


def test_order_is_the_same_one_by_one(store: Store) -> None:
    made = put(store, *(a_job(priority=priority) for priority in (5, 0, 10, 5, 7, 10, 0, 7)))
    expected = [made[number].id for number in (2, 5, 4, 7, 0, 3, 1, 6)]
    assert [take_one(store).id for _ in made] == expected


def test_priority_stands_above_type(store: Store) -> None:
    low, high, middle = put(
        store, a_job(type=MAIL, priority=1), a_job(type=REPORT, priority=9), a_job(type=MAIL, priority=5)
    )
    assert ids(take(store, limit=3)) == [high.id, middle.id, low.id]


def test_types_of_one_priority_come_in_the_order_of_their_arrival(store: Store) -> None:
    made = put(store, *(a_job(type=(MAIL, REPORT)[number % 2]) for number in range(8)))
    assert ids(take(store, limit=3)) == ids(made[:3])
    assert [take_one(store).id for _ in range(5)] == ids(made[3:])


def test_the_order_is_by_seq_and_not_by_id(store: Store) -> None:
    made = [a_job(id=f"{number:08x}-0000-7000-8000-000000000000", own_id=True) for number in (9, 3, 7, 1)]
    put(store, *made)
    assert ids(take(store, limit=4)) == [job.id for job in made]


def test_a_returned_job_keeps_its_place(store: Store) -> None:
    first, second = put(store, a_job(), a_job())
    assert settle(store, take_one(store), GIVEN_BACK)
    assert ids(take(store, limit=2)) == [first.id, second.id]


# --- tenants in turn ----------------------------------------------------------------------------


def tenants(leases: list[Lease]) -> str:
    return "".join(lease.job.tenant or "-" for lease in leases)


def put_tenants(store: Store, names: str) -> None:
    put(store, *(a_job(tenant="" if name == "-" else name) for name in names))


def take_in_turn(store: Store, limits: list[int]) -> str:
    """Claims as a worker makes them: each one starts after the tenant served last."""
    turns: dict[str, str] = {}
    served = ""
    for limit in limits:
        leases = take(store, limit=limit, turns=turns)
        turns |= {lease.job.type: lease.job.tenant for lease in leases}
        served += tenants(leases)
    return served


@pytest.mark.parametrize("limits", [[8], [1] * 8, [2, 2, 2, 2], [3, 5], [5, 3]])
def test_three_uneven_tenants_are_served_in_turn_over_claims(store: Store, limits: list[int]) -> None:
    put_tenants(store, "aaaaabbc")
    assert take_in_turn(store, limits) == "abcabaaa"


def test_within_a_tenant_the_earlier_goes_first(store: Store) -> None:
    made = put(store, *(a_job(tenant=name) for name in "babab"))
    assert ids(take(store, limit=5)) == [made[number].id for number in (1, 0, 3, 2, 4)]


def test_jobs_without_a_tenant_are_one_tenant(store: Store) -> None:
    put_tenants(store, "----aa")
    assert tenants(take(store, limit=6, turns={MAIL: "a"})) == "-a-a--"


@pytest.mark.parametrize("limits", [[9], [1] * 9, [4, 5]])
def test_jobs_without_a_tenant_have_no_more_turns_than_others(store: Store, limits: list[int]) -> None:
    put_tenants(store, "-----aabb")
    served = take_in_turn(store, limits)
    assert sorted(served[:3]) == sorted(served[3:6]) == ["-", "a", "b"]


def test_one_tenants_flood_does_not_hold_up_another(store: Store) -> None:
    put_tenants(store, "a" * 50)
    turns = {lease.job.type: lease.job.tenant for lease in take(store, limit=5)}
    put_tenants(store, "b")
    assert tenants(take(store, limit=2, turns=turns)) == "ba"


def test_the_turn_goes_on_after_a_tenant_who_has_nothing_left(store: Store) -> None:
    put_tenants(store, "abc")
    assert tenants(take(store, limit=3, turns={MAIL: "b"})) == "cab"
    put_tenants(store, "ad")
    assert tenants(take(store, limit=2, turns={MAIL: "bx"})) == "da"


def test_the_turn_is_kept_below_a_higher_priority(store: Store) -> None:
    put(store, a_job(tenant="b", priority=9), *(a_job(tenant=name) for name in "abc"))
    assert tenants(take(store, limit=4, turns={MAIL: "b"})) == "bcab"


def test_the_turn_is_kept_over_schema_versions(store: Store) -> None:
    put(
        store,
        *(a_job(tenant=name, schema_version=version) for name, version in (("a", 1), ("b", 1), ("c", 2))),
    )
    assert tenants(take(store, limit=3, types={MAIL: 2}, turns={MAIL: "b"})) == "cab"


def test_versions_of_one_type_come_in_the_order_of_their_arrival(store: Store) -> None:
    made = put(store, *(a_job(schema_version=1 + number % 3) for number in range(7)))
    assert ids(take(store, limit=4, types={MAIL: 3})) == ids(made[:4])


def test_priority_stands_above_the_tenants_turn(store: Store) -> None:
    put(store, a_job(tenant="a", priority=1), a_job(tenant="b", priority=9), a_job(tenant="b", priority=9))
    assert tenants(take(store, limit=3)) == "bba"


# --- what is not for this worker ----------------------------------------------------------------


def test_a_worker_is_given_only_its_types(store: Store) -> None:
    _, report = put(store, a_job(type=MAIL, priority=10), a_job(type=REPORT, priority=1))
    assert ids(take(store, limit=5, types={REPORT: 1})) == [report.id]
    assert take(store, limit=5, types={"no.such": 1}) == []


def test_a_payload_of_a_newer_schema_is_left_for_a_newer_worker(store: Store) -> None:
    newer, same, older = put(
        store, a_job(schema_version=3, priority=9), a_job(schema_version=2), a_job(schema_version=1)
    )
    assert ids(take(store, limit=5, types={MAIL: 2})) == [same.id, older.id]
    assert state_is_untouched(store, newer.id)
    assert ids(take(store, limit=5, types={MAIL: 3})) == [newer.id]


def test_a_newer_schema_of_one_type_does_not_hold_up_another(store: Store) -> None:
    put_one(store, type=MAIL, schema_version=9, priority=10)
    report = put_one(store, type=REPORT, priority=0)
    assert ids(take(store, limit=1)) == [report.id]


def test_a_tenant_with_only_newer_jobs_is_passed_over(store: Store) -> None:
    put(store, a_job(tenant="a", schema_version=2), a_job(tenant="b"), a_job(tenant="b"))
    assert tenants(take(store, limit=2)) == "bb"


def state_is_untouched(store: Store, job_id: str) -> bool:
    job = look_up(store, job_id)
    return (job.state, job.attempts, job.claims) == (JobState.PENDING, 0, 0)


# --- due times ----------------------------------------------------------------------------------


def test_a_scheduled_job_is_not_claimed_before_its_time(store: Store, clock: ManualClock) -> None:
    job = put_one(store, delay=timedelta(seconds=10))
    clock.advance(timedelta(seconds=10) - timedelta(microseconds=1))
    assert store.promote() == 0
    assert take(store) == []
    clock.advance(timedelta(microseconds=1))
    assert store.promote() == 1
    assert ids(take(store)) == [job.id]


def test_a_claim_tells_when_the_next_job_is_due(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job(delay=timedelta(seconds=seconds)) for seconds in (90, 30, 60)))
    want = Want(worker="w", types=TYPES, limit=10, lease=LEASE)
    assert store.claim(want).next_due == timedelta(seconds=30)
    clock.advance(12)
    assert store.claim(want).next_due == timedelta(seconds=18)


def test_a_job_that_came_due_takes_its_place_by_priority_and_arrival(
    store: Store, clock: ManualClock
) -> None:
    later, now, later_high = put(
        store,
        a_job(delay=timedelta(seconds=5)),
        a_job(),
        a_job(delay=timedelta(seconds=5), priority=8),
    )
    clock.advance(5)
    assert store.promote() == 2
    assert ids(take(store, limit=3)) == [later_high.id, later.id, now.id]


def test_promotion_is_bounded(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job(delay=timedelta(seconds=10 - number)) for number in range(5)))
    clock.advance(20)
    assert [store.promote(limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert len(take(store, limit=10)) == 5


def test_a_retry_waits_for_its_time(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    assert settle(store, lease, LATER)
    assert look_up(store, lease.id).run_at == store.now() + timedelta(seconds=30)
    assert take(store) == []
    clock.advance(30)
    store.promote()
    assert ids(take(store)) == [lease.id]


@pytest.mark.parametrize(
    "outcome", [AGAIN, GIVEN_BACK, INTERRUPTED], ids=["again", "given back", "interrupted"]
)
def test_what_is_to_run_at_once_needs_no_promotion(store: Store, outcome: object) -> None:
    lease = take_new(store)
    assert settle(store, lease, outcome)  # type: ignore[arg-type] # one of three outcomes
    assert ids(take(store)) == [lease.id]


# --- counting -----------------------------------------------------------------------------------


def test_claims_only_rise_while_attempts_are_given_back(store: Store, clock: ManualClock) -> None:
    put_one(store)
    counted = []
    for outcome in (AGAIN, GIVEN_BACK, SNOOZED, INTERRUPTED, AGAIN, DONE):
        clock.advance(60)
        store.promote()
        lease = take_one(store)
        counted.append((lease.job.claims, lease.job.attempts))
        assert settle(store, lease, outcome)
    assert counted == [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 3)]


def test_a_token_is_never_used_again(store: Store, other: Store) -> None:
    put_one(store)
    tokens = []
    for number in range(20):
        lease = take_one((store, other)[number % 2])
        tokens.append(lease.token)
        assert settle(store, lease, GIVEN_BACK)
    assert len(set(tokens)) == 20


def test_jobs_claimed_together_have_tokens_of_their_own(store: Store) -> None:
    put(store, *(a_job() for _ in range(50)))
    assert len({lease.token for lease in take(store, limit=50)}) == 50
