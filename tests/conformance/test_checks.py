"""What does a store keep for signals that do not lie: checks of what was done, ticks of what goes on?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.scene import (
    AGAIN,
    DEAD,
    DONE,
    MAIL,
    REAPED,
    REPORT,
    a_job,
    a_worker,
    look_up,
    put,
    take,
    take_new,
    take_one,
)
from windlass.clock import ManualClock
from windlass.job import Lease
from windlass.outcome import Outcome
from windlass.store.engine import Settlement
from windlass.store.oncall import Verdict, Verdicts
from windlass.store.store import Store
from windlass.store.upkeep import Retention

SOON = timedelta(seconds=60)
TAKEN = timedelta(minutes=5)


def end(store: Store, lease: Lease, outcome: Outcome = DONE, app: str = "") -> list[Lease]:
    """Settle a lease whose outcome is to be checked after a minute."""
    return store.settle([Settlement(lease, outcome, None, (), SOON, app)])


def checks(store: Store, limit: int = 10) -> list[str]:
    return [check.job_id for check in store.take_checks([MAIL, REPORT], limit=limit, again=TAKEN)]


def verdicts(store: Store) -> tuple[Verdicts, ...]:
    return store.sight(SOON).verdicts


def test_a_check_is_written_with_the_completion_and_due_after_its_time(
    store: Store, other: Store, clock: ManualClock
) -> None:
    lease = take_new(store)
    assert end(store, lease) == []
    [found] = verdicts(other)
    assert (found.type, found.waiting, found.since) == (MAIL, 1, store.now() + SOON)
    assert checks(other) == []
    clock.advance(SOON)
    assert checks(other) == [lease.id]


@pytest.mark.parametrize("count", [1, 5, 120])
def test_each_of_many_completions_brings_its_own(store: Store, clock: ManualClock, count: int) -> None:
    put(store, *(a_job() for _ in range(count)))
    leases = take(store, count)
    store.settle(
        [Settlement(lease, DONE, None, (), SOON if lease is leases[0] else None) for lease in leases]
    )
    clock.advance(SOON)
    assert checks(store) == [leases[0].id]
    assert {look_up(store, lease.id).state for lease in leases} == {"completed"}


def test_a_result_that_came_too_late_brings_none(store: Store, clock: ManualClock) -> None:
    lost = take_new(store)
    store.settle([Settlement(lost, REAPED, None)])
    held = take_one(store, worker="worker-2")
    assert end(store, lost) == [lost]
    clock.advance(SOON)
    assert checks(store) == []
    assert end(store, held) == []
    assert end(store, held) == []
    clock.advance(SOON)
    assert checks(store) == [held.id]


def test_whoever_takes_a_check_and_is_killed_is_followed_by_another(
    store: Store, other: Store, clock: ManualClock
) -> None:
    lease = take_new(store)
    end(store, lease)
    clock.advance(SOON)
    [mine] = store.take_checks([MAIL], limit=10, again=TAKEN)
    assert checks(other) == []
    clock.advance(TAKEN)
    [theirs] = other.take_checks([MAIL], limit=10, again=TAKEN)
    assert (mine.job_id, mine.takes, theirs.takes) == (lease.id, 1, 2)
    assert not store.end_check(mine, Verdict.MISMATCHED)
    assert other.end_check(theirs, Verdict.MATCHED)
    assert not other.end_check(theirs, Verdict.MATCHED)
    [found] = verdicts(store)
    assert (found.matched, found.mismatched, found.waiting) == (1, 0, 0)


def test_a_check_that_could_not_be_made_is_put_off(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    end(store, lease)
    clock.advance(SOON)
    [check] = store.take_checks([MAIL], limit=10, again=TAKEN)
    store.put_off_check(check, timedelta(seconds=10))
    assert checks(store) == []
    clock.advance(10)
    assert checks(store) == [lease.id]


def test_verdicts_are_counted_by_type_and_the_last_mismatch_is_named(
    store: Store, clock: ManualClock
) -> None:
    jobs = put(store, *(a_job() for _ in range(3)), a_job(type=REPORT))
    for lease in take(store, 4):
        end(store, lease)
    clock.advance(SOON)
    said = [Verdict.MATCHED, Verdict.MISMATCHED, Verdict.UNKNOWN]
    taken = {check.job_id: check for check in store.take_checks([MAIL], limit=10, again=TAKEN)}
    for job, verdict in zip(jobs, said, strict=False):
        assert store.end_check(taken[job.id], verdict)
    mail, report = verdicts(store)
    assert (mail.matched, mail.mismatched, mail.unknown, mail.waiting) == (1, 1, 1, 0)
    assert (mail.mismatch_job, mail.mismatch_at) == (jobs[1].id, store.now())
    assert (report.type, report.waiting, report.matched) == (REPORT, 1, 0)


def test_checks_of_records_that_are_gone_go_too(store: Store, clock: ManualClock) -> None:
    end(store, take_new(store))
    clock.advance(timedelta(days=8))
    store.prune(Retention())
    assert checks(store) == []
    assert verdicts(store) == ()


# --- ticks, and what no claim can find ----------------------------------------------------------


def test_the_last_word_of_a_tick_stands(store: Store, other: Store, clock: ManualClock) -> None:
    assert store.sight(SOON).ticks == {}
    store.note_ticks({"reap": timedelta(seconds=5), "prune": timedelta(0)}, "worker-1")
    began = store.now()
    assert other.sight(SOON).ticks == {"reap": began - timedelta(seconds=5), "prune": began}
    clock.advance(30)
    other.note_ticks({"reap": timedelta(0)}, "worker-2")
    assert store.sight(SOON).ticks == {"reap": began + timedelta(seconds=30), "prune": began}


def test_jobs_past_their_time_that_nobody_promoted_are_seen(store: Store, clock: ManualClock) -> None:
    put(store, a_job(delay=timedelta(seconds=10)), a_job(delay=timedelta(hours=1)))
    began = store.now()
    clock.advance(60)
    assert store.sight(SOON).stalled == ()
    clock.advance(10)
    [stalled] = store.sight(SOON).stalled
    assert (stalled.type, stalled.count, stalled.since) == (MAIL, 1, began + timedelta(seconds=10))
    store.promote()
    assert store.sight(SOON).stalled == ()


# --- releases -----------------------------------------------------------------------------------


def test_attempts_and_workers_carry_the_release_of_the_application(store: Store, other: Store) -> None:
    store.join(a_worker("worker-1", app="shop 2.1"))
    [worker] = other.workers()
    assert worker.app == "shop 2.1"
    lease = take_new(store)
    end(store, lease, AGAIN, app="shop 2.1")
    end(store, take_one(store), DONE, app="shop 2.2")
    assert [attempt.app for attempt in look_up(other, lease.id).history] == ["shop 2.1", "shop 2.2"]
    dead = take_new(store)
    end(store, dead, DEAD)
    assert look_up(other, dead.id).history[0].app == ""
