"""Are leases extended by their holders only, and found when nobody holds them?"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from tests.conformance.scene import (
    DEAD,
    DONE,
    GIVEN_BACK,
    LEASE,
    REAPED,
    a_job,
    a_worker,
    ids,
    look_up,
    put,
    put_one,
    settle,
    take,
    take_new,
    take_one,
)
from windlass.clock import ManualClock
from windlass.job import Reason
from windlass.store.engine import Settlement
from windlass.store.fleet import Vitals
from windlass.store.store import Store

# --- extending ----------------------------------------------------------------------------------


def test_nothing_to_extend_is_no_error(store: Store) -> None:
    assert store.extend([], LEASE) == ([], [])


def test_extending_moves_the_end_to_now_plus_the_lease(
    store: Store, other: Store, clock: ManualClock
) -> None:
    lease = take_new(store)
    clock.advance(40)
    [kept], lost = store.extend([lease], timedelta(seconds=75))
    assert lost == []
    assert kept.until == store.now() + timedelta(seconds=75)
    assert (kept.id, kept.token) == (lease.id, lease.token)
    assert look_up(other, lease.id).lease_until == kept.until


def test_extending_counts_nothing(store: Store) -> None:
    lease = take_new(store)
    before = look_up(store, lease.id)
    store.extend([lease], timedelta(seconds=90))
    after = look_up(store, lease.id)
    assert (after.attempts, after.claims, after.started_at) == (
        before.attempts,
        before.claims,
        before.started_at,
    )


def test_an_expired_lease_that_nobody_reaped_can_be_extended(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    clock.advance(timedelta(hours=1))
    assert ids(store.expired(limit=10)) == [lease.id]
    kept, lost = store.extend([lease], LEASE)
    assert (ids(kept), lost) == ([lease.id], [])
    assert store.expired(limit=10) == []


def test_a_worker_that_lost_its_lease_cannot_extend_it(store: Store, other: Store) -> None:
    old = take_new(store, worker="old")
    assert settle(other, old, REAPED)
    assert store.extend([old], LEASE) == ([], [old])
    new = take_one(other, worker="new")
    before = look_up(store, old.id)
    assert store.extend([old], timedelta(hours=9)) == ([], [old])
    assert look_up(store, old.id) == before
    assert settle(other, new, DONE)
    assert store.extend([old], LEASE) == ([], [old])


@pytest.mark.parametrize("outcome", [DONE, DEAD, GIVEN_BACK], ids=["done", "dead", "given back"])
def test_a_settled_lease_cannot_be_extended(store: Store, outcome: object) -> None:
    lease = take_new(store)
    assert settle(store, lease, outcome)  # type: ignore[arg-type] # one of three outcomes
    assert store.extend([lease], LEASE) == ([], [lease])


def test_the_kept_and_the_lost_among_many_are_told_apart_in_order(store: Store, other: Store) -> None:
    put(store, *(a_job() for _ in range(6)))
    leases = take(store, limit=6)
    for lease in (leases[0], leases[4]):
        assert settle(other, lease, REAPED)
    made_up = msgspec.structs.replace(leases[5], token="0" * 32)
    kept, lost = store.extend([*leases[:5], made_up], LEASE)
    assert ids(kept) == ids([leases[1], leases[2], leases[3]])
    assert ids(lost) == ids([leases[0], leases[4], leases[5]])


# --- whose leases -------------------------------------------------------------------------------


def test_a_worker_holds_what_it_claimed_and_has_not_settled(store: Store, other: Store) -> None:
    assert store.held_by("worker-1") == []
    put(store, *(a_job() for _ in range(4)))
    mine = take(store, limit=3)
    take(store, worker="worker-2")
    assert settle(store, mine[1], DONE)
    held = other.held_by("worker-1")
    assert [(lease.id, lease.token, lease.worker) for lease in held] == [
        (lease.id, lease.token, "worker-1") for lease in (mine[0], mine[2])
    ]
    assert held[0].job == look_up(store, mine[0].id)


def test_a_lease_found_later_settles_as_the_first_one_would(store: Store, other: Store) -> None:
    take_new(store)
    [found] = other.held_by("worker-1")
    assert settle(other, found, REAPED)
    job = look_up(store, found.id)
    assert [entry.error and entry.error.reason for entry in job.history] == [Reason.WORKER_LOST]


# --- expired ------------------------------------------------------------------------------------


def test_leases_expire_after_their_end_the_longest_past_first(store: Store, clock: ManualClock) -> None:
    assert store.expired(limit=10) == []
    put(store, *(a_job() for _ in range(3)))
    leases = []
    for _ in range(3):
        leases.append(take_one(store))
        clock.advance(10)
    store.extend([leases[0]], timedelta(seconds=100))
    assert store.expired(limit=10) == []
    clock.advance(timedelta(seconds=41))
    assert ids(store.expired(limit=10)) == [leases[1].id]
    clock.advance(timedelta(seconds=100))
    assert ids(store.expired(limit=10)) == [leases[1].id, leases[2].id, leases[0].id]
    assert ids(store.expired(limit=2)) == [leases[1].id, leases[2].id]


def test_a_lease_is_not_expired_at_its_very_end(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    clock.advance(LEASE)
    assert store.now() == lease.until
    assert store.expired(limit=10) == []
    clock.advance(timedelta(microseconds=1))
    assert ids(store.expired(limit=10)) == [lease.id]


def test_finding_expired_leases_changes_nothing(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    clock.advance(timedelta(hours=1))
    before = look_up(store, lease.id)
    store.expired(limit=10)
    store.orphans(limit=10)
    assert look_up(store, lease.id) == before


def test_pending_and_ended_jobs_never_expire(store: Store, clock: ManualClock) -> None:
    put_one(store)
    assert settle(store, take_one(store), DONE)
    put_one(store, delay=timedelta(days=3))
    clock.advance(timedelta(days=30))
    assert store.expired(limit=10) == []


# --- orphans ------------------------------------------------------------------------------------


def test_leases_of_the_living_are_no_orphans(store: Store) -> None:
    store.join(a_worker("worker-1"))
    take_new(store)
    assert store.orphans(limit=10) == []
    store.beat("worker-1", Vitals(state="draining"))
    assert store.orphans(limit=10) == []


def test_leases_of_the_dead_the_stopped_and_the_unknown_are_orphans(store: Store) -> None:
    for name in ("dead", "stopped", "alive"):
        store.join(a_worker(name))
    put(store, *(a_job() for _ in range(5)))
    leases = [take_one(store, worker=name) for name in ("dead", "alive", "stopped", "unknown", "dead")]
    assert store.declare_dead("dead", 0)
    store.leave("stopped")
    expected = sorted(leases[number].id for number in (0, 2, 3, 4))
    assert sorted(ids(store.orphans(limit=10))) == expected
    assert len(store.orphans(limit=2)) == 2


def test_an_orphan_once_reaped_is_none(store: Store) -> None:
    lease = take_new(store, worker="unknown")
    [orphan] = store.orphans(limit=10)
    assert store.settle([Settlement(orphan, REAPED, None)]) == []
    assert store.orphans(limit=10) == []
    assert look_up(store, lease.id).losses == 1
