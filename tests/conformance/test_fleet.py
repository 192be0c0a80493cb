"""Is it always clear who works here, who is alive, and what a worker must know?"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from tests.conformance.scene import (
    DONE,
    MAIL,
    REAPED,
    REPORT,
    TYPES,
    a_job,
    a_worker,
    put,
    put_one,
    settle,
    take,
    take_new,
    take_one,
)
from windlass.clock import ManualClock
from windlass.errors import WorkerNotFound
from windlass.job import Request
from windlass.store.fleet import PoolInfo, Vitals
from windlass.store.store import Store
from windlass.store.upkeep import Retention


def states(store: Store) -> dict[str, str]:
    return {worker.id: worker.state for worker in store.workers()}


def alive(store: Store) -> list[str]:
    return [worker.id for worker in store.look("onlooker", TYPES).workers]


# --- joining and leaving ------------------------------------------------------------------------


def test_there_are_no_workers_at_first(store: Store) -> None:
    assert store.workers() == []
    assert alive(store) == []


def test_a_worker_is_known_as_it_joined(store: Store, other: Store) -> None:
    joined = a_worker("w", types=(MAIL, REPORT), slots=7, version="9.9", host="h", boot="b", pid_space="p")
    store.join(joined)
    [known] = other.workers()
    assert (known.beat_at, known.started_at, known.state) == (store.now(), store.now(), "running")
    assert msgspec.structs.replace(known, beat_at=None, started_at=None) == joined


def test_workers_are_listed_newest_first(store: Store, clock: ManualClock) -> None:
    for name in ("b", "c", "a"):
        store.join(a_worker(name))
        clock.advance(1)
    assert [worker.id for worker in store.workers()] == ["a", "c", "b"]


def test_a_worker_that_left_is_stopped_and_not_alive(store: Store) -> None:
    store.join(a_worker("w"))
    store.leave("w")
    assert states(store) == {"w": "stopped"}
    assert alive(store) == []
    assert not store.beat("w", Vitals())
    assert not store.declare_dead("w", 0)


def test_leaving_unknown_or_dead_changes_nothing(store: Store) -> None:
    store.leave("nobody")
    store.join(a_worker("w"))
    assert store.declare_dead("w", 0)
    store.leave("w")
    assert states(store) == {"w": "dead"}


# --- beating ------------------------------------------------------------------------------------


def test_a_beat_moves_and_carries_the_vitals(store: Store, other: Store, clock: ManualClock) -> None:
    store.join(a_worker("w"))
    clock.advance(2)
    vitals = Vitals(
        state="draining", busy=1, held=2, done=3, failed=4, late=5, deaf=True, resident_bytes=2**33
    )
    assert store.beat("w", vitals)
    [worker] = other.workers()
    assert (worker.beat, worker.beat_at) == (1, store.now())
    assert (worker.state, worker.busy, worker.held, worker.done, worker.failed, worker.late) == (
        *("draining", 1, 2, 3, 4, 5),
    )
    assert (worker.deaf, worker.resident_bytes) == (True, 2**33)
    assert [known.resident_bytes for known in other.look("onlooker", TYPES).workers] == [2**33]
    assert store.beat("w", Vitals())
    assert [(worker.beat, worker.resident_bytes) for worker in other.workers()] == [(2, None)]


def test_a_row_has_the_workers_pools_and_a_beat_that_tells_nothing_leaves_them(
    store: Store, other: Store
) -> None:
    store.join(a_worker("w", pools={"email": PoolInfo(5), 'od"d': PoolInfo(1)}))
    store.join(a_worker("over-http"))
    assert store.beat("w", Vitals())
    known = {worker.id: worker.pools for worker in other.workers()}
    assert known == {"w": {"email": PoolInfo(5), 'od"d': PoolInfo(1)}, "over-http": {}}
    busy = {"email": PoolInfo(5, busy=3, held=1)}
    assert store.beat("w", Vitals(pools=busy))
    assert {worker.id: worker.pools for worker in other.workers()} == {"w": busy, "over-http": {}}
    assert [worker.pools for worker in other.look("w", TYPES).workers] == [{}, busy]


def test_the_beat_of_one_worker_moves_no_other(store: Store) -> None:
    for name in ("a", "b"):
        store.join(a_worker(name))
    assert store.beat("b", Vitals())
    assert {worker.id: worker.beat for worker in store.workers()} == {"a": 0, "b": 1}


def test_an_unknown_worker_cannot_beat(store: Store) -> None:
    assert not store.beat("nobody", Vitals())
    assert store.workers() == []


# --- declared dead ------------------------------------------------------------------------------


def test_a_worker_is_declared_dead_only_if_its_beat_stands(store: Store, other: Store) -> None:
    store.join(a_worker("w"))
    assert store.beat("w", Vitals())
    assert not other.declare_dead("w", 0)
    assert states(store) == {"w": "running"}
    assert other.declare_dead("w", 1)
    assert states(store) == {"w": "dead"}


def test_the_dead_do_not_come_back(store: Store) -> None:
    store.join(a_worker("w"))
    assert store.declare_dead("w", 0)
    assert not store.beat("w", Vitals())
    assert not store.declare_dead("w", 0)
    assert states(store) == {"w": "dead"}
    assert alive(store) == []


def test_nobody_can_be_declared_dead_who_is_unknown(store: Store) -> None:
    assert not store.declare_dead("nobody", 0)


def test_declaring_a_worker_dead_leaves_its_jobs_to_be_reaped(store: Store) -> None:
    store.join(a_worker("w"))
    lease = take_new(store, worker="w")
    assert store.declare_dead("w", 0)
    [orphan] = store.orphans(limit=5)
    assert (orphan.id, orphan.token) == (lease.id, lease.token)
    assert settle(store, orphan, REAPED)
    assert take_one(store, worker="next").id == lease.id


# --- draining -----------------------------------------------------------------------------------


def test_a_drain_is_asked_of_one_worker(store: Store, other: Store) -> None:
    for name in ("a", "b"):
        store.join(a_worker(name))
    store.drain("b")
    assert {worker.id: worker.drain for worker in other.workers()} == {"a": False, "b": True}
    assert store.beat("b", Vitals(state="draining"))
    assert {worker.id: worker.drain for worker in other.workers()} == {"a": False, "b": True}


def test_draining_a_worker_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(WorkerNotFound):
        store.drain("nobody")
    store.join(a_worker("w"))
    store.leave("w")
    with pytest.raises(WorkerNotFound):
        store.drain("w")


def test_a_dead_worker_may_be_drained_and_one_that_died_draining_counts_as_drained(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.join(a_worker(name))
    assert store.beat("b", Vitals(state="draining"))
    assert store.declare_dead("a", 0)
    assert store.declare_dead("b", 1)
    assert store.declare_dead("c", 0)
    store.drain("a")
    assert {worker.id: worker.drain for worker in store.workers()} == {"a": True, "b": True, "c": False}


# --- one look -----------------------------------------------------------------------------------


def test_a_look_at_an_empty_store(store: Store) -> None:
    look = store.look("w", TYPES)
    assert look.now == store.now()
    assert (look.workers, look.requests, look.expired, look.orphaned, look.claimable, look.next_due) == (
        *([], {}, False, False, False, None),
    )


def test_a_look_shows_the_living_with_their_beats(store: Store) -> None:
    for name in ("a", "b", "c", "d"):
        store.join(a_worker(name))
    store.beat("b", Vitals(state="draining"))
    store.leave("c")
    store.declare_dead("d", 0)
    seen = {worker.id: (worker.state, worker.beat) for worker in store.look("a", TYPES).workers}
    assert seen == {"a": ("running", 0), "b": ("draining", 1)}


def test_a_look_brings_requests_by_token_to_their_worker_only(store: Store) -> None:
    put(store, *(a_job() for _ in range(3)))
    mine, quiet = take(store, limit=2, worker="w")
    theirs = take_one(store, worker="v")
    store.cancel(mine.id)
    store.bury(theirs.id)
    assert store.look("w", TYPES).requests == {mine.token: Request.CANCEL}
    assert store.look("v", TYPES).requests == {theirs.token: Request.BURY}
    assert settle(store, mine, DONE)
    assert store.look("w", TYPES).requests == {}
    assert quiet.token not in store.look("v", TYPES).requests


def test_a_look_tells_of_expired_and_orphaned_leases(store: Store, clock: ManualClock) -> None:
    store.join(a_worker("w"))
    lease = take_new(store, worker="w")
    look = store.look("w", TYPES)
    assert (look.expired, look.orphaned) == (False, False)
    clock.advance(61)
    look = store.look("w", TYPES)
    assert (look.expired, look.orphaned) == (True, False)
    store.extend([lease], timedelta(seconds=60))
    store.leave("w")
    look = store.look("w", TYPES)
    assert (look.expired, look.orphaned) == (False, True)


def test_a_look_tells_whether_a_claim_would_find_anything(store: Store, clock: ManualClock) -> None:
    put_one(store, type=REPORT, schema_version=2)
    assert not store.look("w", {MAIL: 9}).claimable
    assert not store.look("w", {REPORT: 1}).claimable
    assert store.look("w", {REPORT: 2}).claimable
    assert store.look("w", {MAIL: 1, REPORT: 3}).claimable
    take(store, types={REPORT: 2})
    assert not store.look("w", {REPORT: 2}).claimable


def test_a_look_sees_a_job_whose_time_has_come_before_anybody_promoted_it(
    store: Store, clock: ManualClock
) -> None:
    put_one(store, delay=timedelta(seconds=30))
    look = store.look("w", TYPES)
    assert (look.claimable, look.next_due) == (False, timedelta(seconds=30))
    clock.advance(30)
    assert store.look("w", TYPES).claimable


# --- rows of the past ---------------------------------------------------------------------------


def test_rows_of_workers_that_are_gone_do_not_pile_up_for_ever(store: Store, clock: ManualClock) -> None:
    for name in ("stopped", "dead", "alive"):
        store.join(a_worker(name))
    store.leave("stopped")
    store.declare_dead("dead", 0)
    clock.advance(timedelta(days=60))
    store.beat("alive", Vitals())
    store.prune(Retention())
    assert sorted(states(store)) == ["alive"]


def test_a_thousand_restarts_leave_a_small_table_that_holds_up_nothing(
    store: Store, clock: ManualClock
) -> None:
    store.join(a_worker("first"))
    cut_off = take_new(store, worker="first")
    assert store.declare_dead("first", 0)
    for number in range(1_000):
        name = f"restart-{number}"
        store.join(a_worker(name))
        clock.advance(1)
        # Every second one crashes.
        assert number % 2 == 0 or store.declare_dead(name, 0)
        store.leave(name)
        if number % 100 == 99:
            store.prune(Retention())
    known = states(store)
    assert (len(known), known["first"], known["restart-999"]) == (501, "dead", "dead")
    assert alive(store) == []
    # The job of the first one still keeps its row; it is taken back and run as any other.
    assert settle(store, cut_off, REAPED)
    assert take_one(store, worker="next").id == cut_off.id
    clock.advance(timedelta(days=2))
    store.prune(Retention())
    assert states(store) == {}


def test_workers_that_wait_are_kept_alive_together_and_the_dead_stay_dead(store: Store) -> None:
    for name in ("waits", 'it\'s "here", {too}', "dead", "apart"):
        store.join(a_worker(name))
    store.beat("waits", Vitals(busy=2))
    beats = {worker.id: worker.beat for worker in store.workers()}
    assert store.declare_dead("dead", beats["dead"])
    assert store.beat_waiting(["waits", 'it\'s "here", {too}', "dead", "nobody"]) == {
        "waits",
        'it\'s "here", {too}',
    }
    after = {worker.id: worker for worker in store.workers()}
    moved = {name for name, worker in after.items() if worker.beat > beats[name]}
    assert moved == {"waits", 'it\'s "here", {too}'}
    assert (after["waits"].busy, after["dead"].state) == (2, "dead")
    assert store.beat_waiting([]) == set()
