"""When jobs are claimed, and how many: the claimer's ticks by hand, on a real store."""

from __future__ import annotations

import math
import sqlite3
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.worker.scene import Still, claim_ahead, impatient
from windlass.clock import ManualClock
from windlass.errors import StoreBusy
from windlass.job import Job, JobState
from windlass.observe import names
from windlass.store.engine import Want
from windlass.worker.claimer import _Doubt
from windlass.worker.settler import MOST_UNSETTLED


def states(still: Still, jobs: list[Job]) -> list[str]:
    return [still.job(job).state.value for job in jobs]


def test_never_more_is_claimed_than_there_are_free_slots(still: Still) -> None:
    still.build(threads=3)
    jobs = still.put(8)
    still.run_claimed(3)
    still.parts.claimer.tick()
    assert states(still, jobs) == ["processing"] * 3 + ["pending"] * 5


def test_a_full_batch_is_followed_by_the_next_claim_as_soon_as_a_slot_is_free(still: Still) -> None:
    still.build(threads=2)
    jobs = still.put(4)
    still.run_claimed(2)
    still.finish()
    still.run_claimed(4)
    still.finish()
    assert states(still, jobs) == ["completed"] * 4


def test_nothing_is_asked_without_a_hint_once_nothing_was_found(still: Still) -> None:
    still.build()
    still.parts.claimer.tick()
    [job] = still.put()
    still.parts.claimer.tick()
    assert still.job(job).state is JobState.PENDING
    still.parts.triggers.hint()
    still.run_claimed(1)
    assert still.job(job).state is JobState.PROCESSING


def test_claims_that_others_were_faster_than_are_counted(still: Still) -> None:
    still.build()
    [job] = still.put()
    # Another worker takes it between the hint and the claim.
    rival = Want(worker="rival", types={job.type: 1}, limit=1, lease=timedelta(seconds=60))
    assert still.store.claim(rival).leases
    still.parts.triggers.hint()
    still.parts.claimer.tick()
    still.put()
    still.parts.triggers.hint()
    still.run_claimed(1)
    still.parts.ledger.tick()
    counted = still.store.totals()
    assert (counted["", names.CLAIM_EMPTY], counted["", names.CLAIM_TAKEN]) == (1, 1)


def test_a_look_that_sees_something_claimable_is_a_hint(still: Still) -> None:
    still.build()
    still.parts.claimer.tick()
    [job] = still.put()
    still.pass_time(1)
    still.run_claimed(1)
    assert still.job(job).state is JobState.PROCESSING


def test_polling_alone_finds_every_job_when_hints_and_looks_stay_away(still: Still) -> None:
    still.build()
    still.parts.claimer.tick()
    [job] = still.put()
    still.clock.advance(2.5)
    still.run_claimed(1)
    assert still.job(job).state is JobState.PROCESSING


def test_a_scheduled_job_is_claimed_when_its_time_comes_without_any_hint(still: Still) -> None:
    still.build()
    [job] = still.put(delay=timedelta(seconds=1.5))
    assert still.parts.claimer.tick() == pytest.approx(1.5)
    still.clock.advance(1.4)
    still.parts.claimer.tick()
    assert still.job(job).state is JobState.PENDING
    still.clock.advance(0.1)
    still.run_claimed(1)
    assert still.job(job).state is JobState.PROCESSING


def test_a_scheduled_job_that_comes_due_while_every_slot_is_taken_gets_the_next_free_one(
    still: Still,
) -> None:
    still.build(threads=1)
    still.put()
    [later] = still.put(delay=timedelta(seconds=1))
    still.run_claimed(1)
    still.clock.advance(1)
    still.parts.claimer.tick()
    still.parts.triggers.woken.clear()
    still.finish()
    assert still.parts.triggers.woken.is_set(), "the freed slot asks for more"
    still.run_claimed(2)
    assert still.job(later).state is JobState.PROCESSING


def test_what_came_due_beyond_what_one_claim_promotes_is_asked_for_at_once(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.sqlite.hot._PROMOTED_AT_ONCE", 1)
    still.build(threads=3)
    still.put(2, delay=timedelta(seconds=1))
    still.clock.advance(1)
    still.run_claimed(1)
    wait = still.parts.claimer.tick()
    assert wait == pytest.approx(0.01)
    still.clock.advance(0.011)
    still.run_claimed(2)


def test_types_that_nobody_asked_for_are_left_alone(still: Still) -> None:
    still.handler(lambda: None, "other")
    still.build(types=("wait",))
    [job] = still.put(job_type="other")
    still.parts.claimer.tick()
    assert still.job(job).state is JobState.PENDING


def test_tenants_are_served_in_turn_from_one_claim_to_the_next(still: Still) -> None:
    still.build(threads=1)
    first, second = still.put(2, tenant="a")
    [other] = still.put(tenant="b")
    still.run_claimed(1)
    still.pass_time(1)
    still.finish()
    still.run_claimed(2)
    still.finish()
    assert states(still, [first, second, other]) == ["completed", "pending", "completed"]


# --- rule 4: only while it is sure to be alive ---


def test_a_worker_whose_last_beat_is_older_than_six_seconds_claims_nothing(still: Still) -> None:
    still.build()
    [job] = still.put()
    still.clock.advance(6.5)
    still.parts.claimer.tick()
    assert still.job(job).state is JobState.PENDING
    still.pass_time(2)
    still.run_claimed(1)
    assert still.job(job).state is JobState.PROCESSING


def test_a_claimed_job_is_not_started_when_the_worker_has_become_unsure(still: Still) -> None:
    still.build(threads=1)
    jobs = still.put(2)
    still.run_claimed(1)
    want = Want(worker=still.parts.membership.id, types={"wait": 1}, limit=1, lease=timedelta(seconds=60))
    late = still.store.claim(want).leases
    still.parts.claimer._take(still.parts.pools[0], want, late, still.clock.monotonic())  # noqa: SLF001
    still.clock.advance(7)
    still.finish()
    assert still.gate.entered == 1
    assert states(still, jobs) == ["completed", "pending"]
    assert still.job(jobs[1]).attempts == 0, "it never started, so nothing is counted"


def test_nothing_is_claimed_while_too_many_outcomes_wait_to_be_written(still: Still) -> None:
    still.build()
    [job] = still.put()
    queue = still.parts.settler.queue  # ten thousand real ones would take long
    queue.extend([None] * (MOST_UNSETTLED + 1))  # type: ignore[list-item]
    still.parts.claimer.tick()
    assert still.job(job).state is JobState.PENDING
    queue.clear()
    still.run_claimed(1)


# --- prefetched jobs ---


def fast_worker(still: Still) -> None:
    """A worker that has seen short jobs, so that it claims ahead."""
    still.build(threads=1)
    claim_ahead(still.parts, "wait", still.clock.monotonic())


def test_prefetched_jobs_that_have_not_started_after_a_second_are_given_back(still: Still) -> None:
    fast_worker(still)
    jobs = still.put(3)
    still.run_claimed(1)
    assert states(still, jobs) == ["processing"] * 3
    still.clock.advance(0.9)
    still.parts.claimer.tick()
    still.settle()
    assert states(still, jobs) == ["processing"] * 3
    still.clock.advance(0.2)
    still.parts.claimer.tick()
    still.settle()
    assert states(still, jobs) == ["processing", "pending", "pending"]
    assert [still.job(job).attempts for job in jobs] == [1, 0, 0]


def test_a_drain_gives_back_what_has_not_started_and_lets_the_rest_run(still: Still) -> None:
    fast_worker(still)
    jobs = still.put(3)
    still.run_claimed(1)
    still.parts.claimer.close(timeout=1)
    still.settle()
    assert states(still, jobs) == ["processing", "pending", "pending"]
    still.parts.triggers.hint()
    still.parts.claimer.tick()
    still.finish()
    assert states(still, jobs) == ["completed", "pending", "pending"]


# --- rule 5: leases in our name that we do not know ---


def test_a_claim_whose_answer_was_lost_is_looked_for_at_once_and_then_ever_less_often() -> None:
    clock = ManualClock()
    doubt = _Doubt(clock)
    assert doubt.next_look > clock.monotonic()
    doubt.begin()
    looks = []
    while doubt.next_look < math.inf:
        clock.advance(doubt.next_look - clock.monotonic())
        looks.append(clock.monotonic())
        doubt.looked()
    assert looks[:5] == [0.0, 0.25, 0.75, 1.75, 3.75]
    assert {later - sooner for sooner, later in pairwise(looks[4:])} == {2.0}
    assert looks[-1] >= 20, "so long a claim may still be written"


def test_after_a_failed_claim_unknown_leases_in_our_name_are_given_back(still: Still, path: Path) -> None:
    still.build(threads=3)
    known, lost, _ = still.put(3)
    still.parts.pools[0].slots = 1
    still.run_claimed(1)
    # The answer to this claim never arrives.
    want = Want(worker=still.parts.membership.id, types={"wait": 1}, limit=1, lease=timedelta(seconds=60))
    assert len(still.store.claim(want).leases) == 1
    still.parts.pools[0].slots = 3
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("begin immediate")
    with impatient(still), pytest.raises(StoreBusy):
        still.parts.claimer.tick()
    blocker.execute("rollback")
    blocker.close()
    still.parts.claimer.tick()
    still.gate.reach(3)
    assert still.job(lost).attempts == 1, "given back with its attempt, then claimed like any other"
    assert still.job(known).claims == 1
    assert still.job(lost).claims == 2
    still.finish()
