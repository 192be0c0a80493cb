"""Does a fleet stop burning attempts when a dependency is down, and go on when it is back?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.conftest import Place
from tests.conformance.contenders import at_once, won
from tests.conformance.scene import (
    AGAIN,
    DONE,
    LEASE,
    MAIL,
    REPORT,
    TYPES,
    a_job,
    a_worker,
    put,
    settle,
    take_one,
)
from windlass.clock import ManualClock, uuid7
from windlass.job import Lease
from windlass.policy import BreakerTerms
from windlass.store.engine import Want
from windlass.store.flow import Breaker, BreakerState, Restriction, Runs
from windlass.store.store import Store

TERMS = {MAIL: BreakerTerms(), "key:crm": BreakerTerms()}
MINUTE = timedelta(minutes=1)


def saw(
    store: Store,
    *,
    done: int = 0,
    failed: int = 0,
    jobs: int | None = None,
    worker: str = "worker-1",
    stretch: int = 1,
    ago: float = 0.0,
    name: str = MAIL,
) -> list[Breaker]:
    """A worker tells what it saw."""
    runs = Runs(
        name=name,
        stretches=((stretch, int(ago * 1_000_000), done, failed),),
        failed=tuple(uuid7() for _ in range(failed if jobs is None else jobs)),
    )
    return store.note_runs(worker, [runs], TERMS)


def opened(store: Store, clock: ManualClock) -> None:
    """Ten jobs of ten have failed."""
    saw(store, failed=10)
    clock.advance(2)
    [breaker] = store.note_runs("worker-1", [Runs(name=MAIL)], TERMS)
    assert breaker.open


def probes(
    store: Store, *, worker: str = "worker-1", limit: int = 10, every: timedelta = MINUTE
) -> list[Lease]:
    """Claim while the breaker is open."""
    held = Restriction(limits={}, breaker=MAIL, probe=every)
    want = Want(
        worker=worker, types={MAIL: 1}, limit=limit, slots=limit, lease=LEASE, restricted={MAIL: held}
    )
    return store.claim(want).leases


def is_open(store: Store) -> bool:
    breaker = store.switches().breakers.get(MAIL)
    return breaker is not None and breaker.open


# --- when it opens ------------------------------------------------------------------------------


def test_it_opens_when_too_many_runs_of_enough_jobs_fail(
    store: Store, other: Store, clock: ManualClock
) -> None:
    opened(store, clock)
    breaker = other.switches().breakers[MAIL]
    assert (breaker.open, breaker.by_hand, breaker.at) == (True, False, store.now())
    assert breaker.why == "10 of 10 runs failed, of 10 jobs"


@pytest.mark.parametrize(
    ("done", "failed", "jobs"),
    [(0, 9, 9), (0, 50, 9), (2, 8, 8), (20, 80, 80), (1000, 10, 10)],
    ids=["too few runs", "too few jobs", "too few of both", "not over the share", "a few of many"],
)
def test_it_stays_closed_otherwise(
    store: Store, clock: ManualClock, done: int, failed: int, jobs: int
) -> None:
    saw(store, done=done, failed=failed, jobs=jobs)
    clock.advance(3)
    assert store.note_runs("worker-1", [Runs(name=MAIL)], TERMS) == []
    assert not is_open(store)


def test_of_many_that_fail_no_more_are_noted_than_matter(store: Store, clock: ManualClock) -> None:
    for stretch in range(3):
        saw(store, failed=400, stretch=stretch)
    clock.advance(3)
    [breaker] = store.note_runs("worker-1", [Runs(name=MAIL)], TERMS)
    assert breaker.why == "1200 of 1200 runs failed, of 1000 jobs"


def test_what_several_workers_saw_is_added_up(store: Store, clock: ManualClock) -> None:
    saw(store, failed=10)
    saw(store, done=100, worker="worker-2")
    clock.advance(3)
    store.note_runs("worker-1", [Runs(name=MAIL)], TERMS)
    assert not is_open(store)


def test_a_worker_that_tells_the_same_twice_is_counted_once(store: Store, clock: ManualClock) -> None:
    saw(store, done=3, failed=10)
    clock.advance(1)
    saw(store, done=3, failed=10, ago=1)
    clock.advance(2)
    saw(store, done=3, failed=10, ago=3)
    assert not is_open(store)


def test_the_others_have_time_to_tell_of_their_successes(store: Store, clock: ManualClock) -> None:
    before = store.look("worker-1", TYPES).revision
    saw(store, failed=20)
    assert not is_open(store)
    assert store.switches().failing == {MAIL}
    assert store.look("worker-1", TYPES).revision > before


def test_what_is_older_than_the_window_does_not_count(store: Store, clock: ManualClock) -> None:
    saw(store, failed=9)
    clock.advance(301)
    saw(store, failed=1, stretch=60)
    clock.advance(3)
    store.note_runs("worker-1", [Runs(name=MAIL)], TERMS)
    assert not is_open(store)


# --- while it is open ---------------------------------------------------------------------------


def test_one_probe_a_minute_for_the_whole_fleet(store: Store, other: Store, clock: ManualClock) -> None:
    jobs = put(store, *(a_job() for _ in range(10)))
    opened(store, clock)
    assert probes(store) == []
    clock.advance(60)
    [probe] = [*probes(store), *probes(other, worker="worker-2")]
    assert settle(store, probe, AGAIN)
    assert probes(other) == []
    clock.advance(59)
    assert probes(store) == []
    clock.advance(1)
    assert len(probes(other)) == 1
    untouched = [job for job in jobs if (found := store.get(job.id)) is not None and found.attempts == 0]
    assert len(untouched) >= 8


def test_a_shorter_time_between_probes_holds_at_once(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(10)))
    opened(store, clock)
    often = timedelta(seconds=5)
    assert probes(store) == []
    [probe] = probes(store, every=often)
    settle(store, probe, AGAIN)
    assert probes(store, every=often) == []
    clock.advance(5)
    assert len(probes(store, every=often)) == 1


def test_no_second_probe_while_the_first_one_runs(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(3)))
    opened(store, clock)
    clock.advance(60)
    [probe] = probes(store)
    clock.advance(600)
    assert probes(store) == []
    settle(store, probe, AGAIN)
    assert len(probes(store)) == 1


def test_of_many_who_ask_at_the_same_instant_one_probes(
    store: Store, place: Place, clock: ManualClock
) -> None:
    stores = [store, *(place.open() for _ in range(3))]
    put(store, *(a_job() for _ in range(10)))
    opened(store, clock)
    clock.advance(60)
    calls = [lambda each=each: probes(each) for each in stores]
    assert sum(len(leases) for leases in won(at_once(*calls))) == 1


def test_a_probe_that_succeeds_closes_it(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(3)))
    opened(store, clock)
    clock.advance(60)
    [probe] = probes(store)
    settle(store, probe, DONE)
    [closed] = store.note_runs("worker-1", [Runs(name=MAIL, succeeded=(probe.token,))], TERMS)
    assert not closed.open
    assert not is_open(store)
    assert len(probes(store)) == 2


def test_a_job_that_is_no_probe_does_not_close_it(store: Store, clock: ManualClock) -> None:
    put(store, a_job())
    early = take_one(store)
    opened(store, clock)
    settle(store, early, DONE)
    store.note_runs("worker-1", [Runs(name=MAIL, succeeded=(early.token,))], TERMS)
    assert is_open(store)


def test_what_opened_it_does_not_open_it_again(store: Store, clock: ManualClock) -> None:
    put(store, a_job())
    opened(store, clock)
    clock.advance(60)
    [probe] = probes(store)
    settle(store, probe, DONE)
    store.note_runs("worker-1", [Runs(name=MAIL, succeeded=(probe.token,))], TERMS)
    saw(store, failed=10, jobs=0, ago=62)
    saw(store, failed=1, stretch=2)
    clock.advance(3)
    store.note_runs("worker-1", [Runs(name=MAIL)], TERMS)
    assert not is_open(store)


def test_a_probe_that_is_lost_with_its_worker_is_followed_by_another(
    store: Store, clock: ManualClock
) -> None:
    put(store, *(a_job() for _ in range(2)))
    opened(store, clock)
    clock.advance(60)
    store.join(a_worker("worker-1"))
    probes(store)
    store.declare_dead("worker-1", 0)
    clock.advance(60)
    assert probes(store, worker="worker-2") == []
    [orphan] = store.orphans(limit=10)
    settle(store, orphan, AGAIN)
    assert len(probes(store, worker="worker-2")) == 1


def test_types_that_share_a_key_share_its_probe(store: Store, clock: ManualClock) -> None:
    put(store, a_job(), a_job(type=REPORT))
    saw(store, failed=10, name="key:crm")
    clock.advance(2)
    store.note_runs("worker-1", [Runs(name="key:crm")], TERMS)
    clock.advance(60)
    held = Restriction(limits={}, key="crm", breaker="key:crm", probe=MINUTE)
    want = Want(
        worker="w", types=TYPES, limit=10, slots=10, lease=LEASE, restricted={MAIL: held, REPORT: held}
    )
    assert len(store.claim(want).leases) == 1


# --- by hand ------------------------------------------------------------------------------------


def test_one_that_is_opened_by_hand_lets_nothing_through(store: Store, clock: ManualClock) -> None:
    put(store, a_job())
    made = store.set_breaker(MAIL, BreakerState.OPEN, by="ann", why="it is down")
    assert (made.open, made.by_hand, made.by, made.why) == (True, True, "ann", "it is down")
    clock.advance(3600)
    assert probes(store) == []


def test_one_that_is_closed_by_hand_stays_closed(store: Store, clock: ManualClock) -> None:
    store.set_breaker(MAIL, BreakerState.CLOSED)
    clock.advance(1)
    saw(store, failed=50)
    clock.advance(3)
    store.note_runs("worker-1", [Runs(name=MAIL)], TERMS)
    assert not is_open(store)
    store.set_breaker(MAIL, BreakerState.AUTO)
    clock.advance(1)
    opened(store, clock)


def test_a_look_tells_of_every_change(store: Store, clock: ManualClock) -> None:
    seen = [store.look("worker-1", TYPES).revision]
    opened(store, clock)
    seen.append(store.look("worker-1", TYPES).revision)
    store.set_breaker(MAIL, BreakerState.CLOSED)
    seen.append(store.look("worker-1", TYPES).revision)
    assert seen == sorted(set(seen))
