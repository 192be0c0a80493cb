"""Do limits hold over all workers, exactly, and leave nothing behind? Permits are counted from leases."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest

from tests.conformance.conftest import Place
from tests.conformance.contenders import at_once, won
from tests.conformance.scene import (
    DEAD,
    DONE,
    GIVEN_BACK,
    LATER,
    LEASE,
    MAIL,
    REAPED,
    REPORT,
    TYPES,
    a_job,
    a_worker,
    ids,
    look_up,
    put,
    put_one,
    settle,
    take,
)
from windlass.clock import ManualClock
from windlass.job import Lease
from windlass.outcome import Left, Outcome
from windlass.policy import Limit, Rate
from windlass.store.engine import Claimed, Settlement, Want
from windlass.store.flow import Restriction
from windlass.store.store import Store

PLENTY = 100


def under(name: str = MAIL, *, key: str = "", **limit: object) -> dict[str, Restriction]:
    """One limit on the mails, under a name."""
    return {MAIL: Restriction(limits={name: Limit(**limit)}, key=key)}  # type: ignore[arg-type]


def ask(
    store: Store,
    restricted: Mapping[str, Restriction],
    *,
    limit: int = PLENTY,
    slots: int | None = None,
    worker: str = "worker-1",
    types: Mapping[str, int] = TYPES,
    turns: Mapping[str, str] | None = None,
) -> Claimed:
    want = Want(
        worker=worker,
        types=types,
        limit=limit,
        slots=limit if slots is None else slots,
        lease=LEASE,
        turns=turns or {},
        restricted=restricted,
    )
    return store.claim(want)


def claim(store: Store, restricted: Mapping[str, Restriction], **options: object) -> list[Lease]:
    return ask(store, restricted, **options).leases  # type: ignore[arg-type]


# --- how many at once ---------------------------------------------------------------------------


def test_no_more_run_than_the_limit_says_whoever_claims(store: Store, other: Store) -> None:
    put(store, *(a_job() for _ in range(10)))
    assert len(claim(store, under(concurrency=3), limit=2)) == 2
    assert len(claim(other, under(concurrency=3), worker="worker-2")) == 1
    assert claim(store, under(concurrency=3)) == []


def test_what_is_over_the_limit_stays_pending_and_no_attempt_is_counted(store: Store) -> None:
    jobs = put(store, *(a_job() for _ in range(3)))
    claim(store, under(concurrency=1))
    assert [look_up(store, job.id).attempts for job in jobs] == [1, 0, 0]


@pytest.mark.parametrize(
    "outcome", [DONE, DEAD, LATER, REAPED, GIVEN_BACK], ids=lambda each: type(each).__name__
)
def test_every_end_of_a_run_gives_its_permit_back(store: Store, outcome: Outcome) -> None:
    put(store, *(a_job() for _ in range(2)))
    [lease] = claim(store, under(concurrency=1))
    assert settle(store, lease, outcome)
    assert len(claim(store, under(concurrency=1))) == 1


def test_other_types_do_not_count_and_are_not_held_up(store: Store) -> None:
    put(store, *(a_job() for _ in range(3)), *(a_job(type=REPORT) for _ in range(3)))
    found = Counter(lease.job.type for lease in claim(store, under(concurrency=1)))
    assert found == {MAIL: 1, REPORT: 3}


def test_a_key_is_shared_by_several_types(store: Store) -> None:
    put(store, *(a_job(type=each) for each in (MAIL, REPORT) * 3))
    shared = Restriction(limits={"key:crm": Limit(concurrency=2)}, key="crm")
    both = {MAIL: shared, REPORT: shared}
    assert len(claim(store, both)) == 2
    assert claim(store, {MAIL: shared}, types={MAIL: 1}) == []


def test_a_type_can_be_limited_by_itself_and_by_what_it_shares(store: Store) -> None:
    put(store, *(a_job(type=each) for each in (MAIL, REPORT) * 5))
    limits = {"key:crm": Limit(concurrency=4)}
    restricted = {
        MAIL: Restriction(limits={MAIL: Limit(concurrency=1), **limits}, key="crm"),
        REPORT: Restriction(limits=limits, key="crm"),
    }
    found = Counter(lease.job.type for lease in claim(store, restricted))
    assert found == {MAIL: 1, REPORT: 3}


def test_a_limit_over_all_counts_every_type(store: Store) -> None:
    put(store, *(a_job(type=each) for each in (MAIL, REPORT) * 5))
    every = Restriction(limits={"*": Limit(concurrency=3)})
    assert len(claim(store, {MAIL: every, REPORT: every})) == 3
    assert claim(store, {MAIL: every, REPORT: every}) == []


def test_a_tenants_limit_holds_for_each_and_the_others_go_on(store: Store) -> None:
    put(store, *(a_job(tenant=tenant) for tenant in "aaaaabbc"))
    leases = claim(store, under(per_tenant=2))
    assert Counter(lease.job.tenant for lease in leases) == {"a": 2, "b": 2, "c": 1}
    put_one(store, tenant="d")
    [last] = claim(store, under(per_tenant=2))
    assert last.job.tenant == "d"


def test_a_limit_counts_what_was_claimed_before_it_was_known(store: Store) -> None:
    put(store, *(a_job() for _ in range(5)))
    take(store, 2)
    store.adopt(under(concurrency=3))
    assert len(claim(store, under(concurrency=3))) == 1


def test_a_lowered_limit_waits_until_enough_have_ended(store: Store) -> None:
    put(store, *(a_job() for _ in range(5)))
    leases = claim(store, under(concurrency=3))
    settle(store, leases[0], DONE)
    assert claim(store, under(concurrency=2)) == []
    settle(store, leases[1], DONE)
    assert len(claim(store, under(concurrency=2))) == 1


def test_no_more_are_taken_than_can_start(store: Store) -> None:
    put(store, *(a_job() for _ in range(5)), *(a_job(type=REPORT) for _ in range(5)))
    found = Counter(lease.job.type for lease in claim(store, under(concurrency=4), limit=10, slots=2))
    assert found[MAIL] <= 2


def test_two_who_claim_at_the_same_instant_share_the_permits(store: Store, place: Place) -> None:
    stores = [store, *(place.open() for _ in range(3))]
    put(store, *(a_job() for _ in range(40)))
    for _ in range(5):
        claims = [lambda each=each: claim(each, under(concurrency=3)) for each in stores]
        leases = [lease for given in won(at_once(*claims)) for lease in given]
        assert 1 <= len(leases) <= 3
        assert len(set(ids(leases))) == len(leases)
        for lease in leases:
            settle(store, lease, DONE)


# --- in which order -----------------------------------------------------------------------------


def test_limited_jobs_keep_priority_turns_and_age(store: Store) -> None:
    low = put_one(store, priority=1)
    first, second = put(store, a_job(tenant="a"), a_job(tenant="a"))
    other = put_one(store, tenant="b")
    high = put_one(store, priority=9)
    leases = claim(store, under(concurrency=10))
    assert ids(leases) == ids([high, first, other, second, low])


def test_the_turn_goes_on_after_the_tenant_served_last(store: Store) -> None:
    put(store, *(a_job(tenant=tenant) for tenant in "abc"))
    [lease] = claim(store, under(concurrency=1), turns={MAIL: "b"})
    assert lease.job.tenant == "c"


def test_a_tenant_whose_jobs_wait_for_a_clock_that_was_set_back_keeps_no_turn(
    store: Store, clock: ManualClock
) -> None:
    clock.advance(timedelta(hours=1))
    put(store, a_job(tenant=""), a_job(tenant="b"))
    clock.jump(timedelta(hours=-1))
    put(store, *(a_job(tenant=tenant) for tenant in "acc"))
    served: list[str] = []
    for after in ("", "a", "c"):
        served += (
            lease.job.tenant for lease in claim(store, under(concurrency=9), slots=1, turns={MAIL: after})
        )
    assert served == ["a", "c", "c"]


def test_with_one_slot_the_higher_priority_goes_first_limited_or_not(store: Store) -> None:
    put_one(store, priority=5)
    urgent = put_one(store, type=REPORT, priority=9)
    assert ids(claim(store, under(concurrency=5), limit=1)) == [urgent.id]

    put_one(store, type=REPORT, priority=5)
    limited = put_one(store, priority=9)
    assert ids(claim(store, under(concurrency=5), limit=1)) == [limited.id]


def test_with_one_slot_the_older_of_one_priority_goes_first_limited_or_not(store: Store) -> None:
    jobs = put(store, *(a_job(type=each) for each in (MAIL, REPORT, REPORT, MAIL)))
    order = []
    while leases := claim(store, under(concurrency=5), limit=1):
        order += ids(leases)
    assert order == ids(jobs)


def test_an_older_schema_version_is_limited_as_well(store: Store) -> None:
    put(store, *(a_job(schema_version=version) for version in (1, 2, 2, 1, 3)))
    leases = claim(store, under(concurrency=3), types={MAIL: 2})
    assert len(leases) == 3
    assert {lease.job.schema_version for lease in leases} <= {1, 2}


def test_scheduled_jobs_of_a_limited_type_come_due(store: Store, clock: ManualClock) -> None:
    put_one(store, delay=timedelta(seconds=10))
    asked = ask(store, under(concurrency=1), types={MAIL: 1})
    assert asked.leases == []
    assert asked.again == timedelta(seconds=10)
    clock.advance(10)
    assert len(claim(store, under(concurrency=1))) == 1


# --- how often ----------------------------------------------------------------------------------


def test_a_rate_lets_one_after_another_start_and_says_when(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(5)))
    slow = under(rate=Rate(10, 60))
    assert len(claim(store, slow)) == 1
    asked = ask(store, slow)
    assert asked.leases == []
    assert asked.again == timedelta(seconds=5.9)
    clock.advance(5.899)
    assert claim(store, slow) == []
    clock.advance(0.001)
    assert len(claim(store, slow)) == 1


def test_a_burst_starts_at_once_and_then_the_rate_holds(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(50)))
    rate = under(rate=Rate(1, 1, burst=5))
    assert len(claim(store, rate)) == 5
    clock.advance(3)
    assert len(claim(store, rate)) == 3
    clock.advance(3600)
    assert len(claim(store, rate)) == 5


def test_a_rate_is_used_in_full_by_claims_that_come_a_little_late(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(60)))
    started = 0
    for _ in range(100):
        started += len(claim(store, under(rate=Rate(10, 1))))
        clock.advance(0.043)
    assert started == pytest.approx(100 * 0.043 * 10, abs=1.5)


def test_in_no_stretch_of_time_do_more_start_than_stated(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(100)))
    starts: list[float] = []
    for step in range(120):
        starts += [clock.monotonic()] * len(claim(store, under(rate=Rate(20, 1, burst=3))))
        clock.advance((0.01, 0.07, 0.2, 0.0)[step % 4])
    assert len(starts) > 50
    for begin in starts:
        assert sum(begin <= each < begin + 1 for each in starts) <= 20 + 3


def test_a_failed_run_costs_a_token_and_no_more(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(2)))
    [lease] = claim(store, under(rate=Rate(1, 1)))
    settle(store, lease, DEAD)
    assert claim(store, under(rate=Rate(1, 1))) == []
    clock.advance(1)
    assert len(claim(store, under(rate=Rate(1, 1)))) == 1


@pytest.mark.parametrize(
    "outcome", [GIVEN_BACK, Left(None, reader="old", field="payload.b", problem="?"), DEAD]
)
def test_a_job_that_never_started_gives_its_token_back_once(store: Store, outcome: Outcome) -> None:
    put(store, *(a_job() for _ in range(5)))
    slow = under(rate=Rate(3, 3600))
    [restriction] = slow.values()
    for _ in range(3):
        [lease] = claim(store, slow)
        assert claim(store, slow) == []
        unstarted = Settlement(lease, outcome, tokens=restriction.tokens)
        assert store.settle([unstarted]) == []
        # A repeat, after an answer that was lost, returns nothing more.
        assert store.settle([unstarted]) == []
    assert len(claim(store, slow)) == 1
    assert claim(store, slow) == []


def test_a_lease_that_was_lost_gives_no_token_back(store: Store) -> None:
    put(store, *(a_job() for _ in range(2)))
    slow = under(rate=Rate(3, 3600))
    [lease] = claim(store, slow)
    settle(store, lease, DEAD)
    stale = msgspec.structs.replace(lease, token=str(uuid.uuid4()))
    assert store.settle([Settlement(stale, GIVEN_BACK, tokens=slow[MAIL].tokens)]) == [stale]
    assert claim(store, slow) == []


def test_tokens_are_not_spent_when_nothing_is_there(store: Store) -> None:
    assert claim(store, under(rate=Rate(1, 60))) == []
    put_one(store)
    assert len(claim(store, under(rate=Rate(1, 60)))) == 1


def test_two_who_claim_at_the_same_instant_share_the_tokens(store: Store, place: Place) -> None:
    stores = [store, *(place.open() for _ in range(3))]
    put(store, *(a_job() for _ in range(40)))
    claims = [lambda each=each: claim(each, under(rate=Rate(1, 60, burst=3))) for each in stores]
    assert sum(len(given) for given in won(at_once(*claims))) <= 3
    assert sum(len(claim(each, under(rate=Rate(1, 60, burst=3)))) for each in stores) == 0


@pytest.mark.parametrize("before", [Rate(1, 86_400), Rate(1, 3_600)])
def test_a_rate_that_is_raised_holds_at_once(store: Store, clock: ManualClock, before: Rate) -> None:
    put(store, *(a_job() for _ in range(5)))
    assert len(claim(store, under(rate=before))) == 1
    faster = under(rate=Rate(1, 1))
    assert len(claim(store, faster)) == 1
    assert claim(store, faster) == []
    clock.advance(1)
    assert len(claim(store, faster)) == 1


def test_a_clock_that_was_set_back_holds_no_rate_up(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(3)))
    rate = under(rate=Rate(1, 1))
    assert len(claim(store, rate)) == 1
    # The jobs' own times are not the question here.
    clock.advance(timedelta(hours=2))
    assert len(claim(store, rate)) == 1
    clock.jump(timedelta(hours=-1))
    assert len(claim(store, rate)) == 1
    assert claim(store, rate) == []


def test_a_rate_can_be_shared_and_go_together_with_a_concurrency(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job(type=each) for each in (MAIL, REPORT) * 5))
    shared = Restriction(limits={"key:crm": Limit(rate=Rate(1, 1, burst=4), concurrency=3)}, key="crm")
    both = {MAIL: shared, REPORT: shared}
    leases = claim(store, both)
    assert len(leases) == 3
    for lease in leases:
        settle(store, lease, DONE)
    assert len(claim(store, both)) == 1


# --- the lowest priority ------------------------------------------------------------------------


def test_some_of_the_lowest_priority_are_taken_if_asked_for(store: Store) -> None:
    high = put(store, *(a_job(priority=9) for _ in range(5)))
    low = put(store, *(a_job(priority=1) for _ in range(5)), *(a_job(priority=5) for _ in range(5)))
    want = Want(worker="worker-1", types=TYPES, limit=4, lease=LEASE, lowest=1)
    leases = store.claim(want).leases
    assert sorted(ids(leases)) == sorted([*ids(high[:3]), low[0].id])
    assert [lease.job.priority for lease in leases] == [9, 9, 9, 1]


def test_where_nothing_waits_nothing_is_taken_as_the_lowest(store: Store) -> None:
    assert store.claim(Want(worker="w", types=TYPES, limit=4, lease=LEASE, lowest=2)).leases == []


def test_the_lowest_priority_has_its_share_among_limited_types_as_far_as_there_are_permits(
    store: Store,
) -> None:
    put(store, *(a_job(type=REPORT, priority=9) for _ in range(5)))
    low = put(store, *(a_job(priority=1) for _ in range(5)))

    def lowest(count: int) -> list[Lease]:
        want = Want(
            worker="worker-1",
            types=TYPES,
            limit=count,
            slots=count,
            lease=LEASE,
            restricted=under(concurrency=1),
            lowest=count,
        )
        return store.claim(want).leases

    first = lowest(2)
    assert [lease.job.priority for lease in first] == [9, 1]
    assert first[1].id == low[0].id
    assert [lease.job.priority for lease in lowest(2)] == [9, 9], "the only permit is taken"


# --- work that outlives its attempt -------------------------------------------------------------


def held(store: Store, restricted: Mapping[str, Restriction], **options: object) -> Lease:
    """A limited job whose attempt is settled while its work goes on."""
    store.join(a_worker("worker-1"))
    [lease] = claim(store, restricted, **options)
    assert store.settle([Settlement(lease, LATER, None, held=True)]) == []
    return lease


LIMITS = {
    "type": under(concurrency=1),
    "key": under("key:crm", key="crm", concurrency=1),
    "all": under("*", concurrency=1),
    "tenant": under(per_tenant=1),
}


@pytest.mark.parametrize("restricted", LIMITS.values(), ids=list(LIMITS))
def test_work_that_outlives_its_attempt_keeps_its_permit_until_it_is_let_go(
    store: Store, restricted: Mapping[str, Restriction]
) -> None:
    put(store, *(a_job() for _ in range(3)))
    lease = held(store, restricted)
    assert claim(store, restricted) == []
    store.let_go([lease.token])
    assert len(claim(store, restricted)) == 1


def test_what_a_worker_held_that_is_gone_holds_nothing(store: Store) -> None:
    put(store, *(a_job() for _ in range(3)))
    held(store, under(concurrency=1))
    store.declare_dead("worker-1", 0)
    assert len(claim(store, under(concurrency=1), worker="worker-2")) == 1


def test_a_lease_that_is_lost_keeps_no_permit(store: Store) -> None:
    put(store, *(a_job() for _ in range(2)))
    [lease] = claim(store, under(concurrency=1))
    assert settle(store, lease, REAPED)
    assert store.settle([Settlement(lease, LATER, None, held=True)]) == [lease]
    assert len(claim(store, under(concurrency=1))) == 1


# --- what who asks is told ----------------------------------------------------------------------


def test_who_finds_no_permit_is_told_that_jobs_are_held_back(store: Store) -> None:
    assert not ask(store, under(concurrency=1)).held_back, "nothing is due"
    put(store, *(a_job() for _ in range(2)))
    assert not ask(store, under(concurrency=1), limit=1).held_back
    assert ask(store, under(concurrency=1)).held_back


def test_when_to_ask_again_is_told_apart_for_limited_types_and_for_others(store: Store) -> None:
    put(store, *(a_job() for _ in range(2)), a_job(type=REPORT, delay=timedelta(seconds=30)))
    slow = under(rate=Rate(1, 10))
    claim(store, slow)
    asked = ask(store, slow)
    assert asked.next_due == timedelta(seconds=30)
    assert asked.permit_due == asked.again == timedelta(seconds=9.9)
    only = ask(store, slow, types={MAIL: 1})
    assert (only.next_due, only.permit_due) == (None, timedelta(seconds=9.9))


def test_several_limited_types_together_take_no_more_than_can_start(store: Store) -> None:
    put(store, *(a_job(type=each) for each in (MAIL, REPORT) * 5))
    limits = {name: Restriction(limits={name: Limit(concurrency=5)}) for name in (MAIL, REPORT)}
    assert len(claim(store, limits, limit=4)) == 4


def test_limited_types_of_one_tenant_go_in_the_order_of_their_arrival(store: Store) -> None:
    jobs = put(store, *(a_job(type=each) for each in (MAIL, MAIL, MAIL, REPORT, REPORT)))
    limits = {name: Restriction(limits={name: Limit(concurrency=5)}) for name in (MAIL, REPORT)}
    assert ids(claim(store, limits)) == ids(jobs)
