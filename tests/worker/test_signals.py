"""What looks healthy and is not: each way is staged on a real store, and each must be seen.

The time is the test's, and so is what every part of the worker does.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.worker.scene import Still, another_worker
from windlass.clock import uuid7
from windlass.job import Error, NewJob, Reason
from windlass.ops import Ops
from windlass.ops.doctor import Diagnosis, Level, checkup, diagnoses
from windlass.ops.signals import Signals
from windlass.ops.verdict import Cause, Finding
from windlass.outcome import Again
from windlass.store.engine import Settlement, Want
from windlass.store.fleet import Vitals
from windlass.upkeep.maintenance import Pruner


@pytest.fixture
def ops(still: Still) -> Ops:
    return Ops(still.store, by="ann", clock=still.clock)


def look(still: Still, ops: Ops) -> Signals:
    """The signals, with the process's counts told first, as they are every second."""
    still.parts.ledger.tick()
    still.parts.ticks.tell()
    return ops.signals()


def told(ops: Ops, *, grave: bool) -> list[Finding]:
    """What the verdict says."""
    found = ops.status().verdict
    assert found is not None
    return [each for each in found.findings if each.grave is grave]


def doctored(still: Still, ops: Ops) -> dict[str, Diagnosis]:
    """What the doctor finds bad."""
    look(still, ops)
    return {each.name: each for each in diagnoses(checkup(ops, still.clock)) if each.level is not Level.OK}


def alive(still: Still) -> None:
    """The worker beats and does nothing else."""
    assert still.store.beat(still.parts.membership.id, Vitals())


def _want(still: Still, job_type: str, worker: str | None = None) -> Want:
    name = worker or still.parts.membership.id
    return Want(worker=name, types={job_type: 1}, limit=1, lease=timedelta(minutes=1))


def _after(job_id: str) -> NewJob:
    return NewJob(id=uuid7(), type="wait", payload=b"{}", depends_on=(job_id,))


def settled(still: Still) -> None:
    still.parts.triggers.hint()
    still.parts.claimer.tick()
    still.until(still.parts.idle)
    still.settle()


# --- "the depth is 0" ---------------------------------------------------------------------------


def test_jobs_past_their_time_that_no_claim_can_find_are_seen_though_nothing_stands_in_the_queue(
    still: Still, ops: Ops
) -> None:
    still.build()
    still.put(3, delay=timedelta(seconds=30))
    still.clock.advance(100)
    alive(still)
    # The claim index is empty: whoever counts it sees a depth of 0. Nobody promotes.
    found = look(still, ops)
    [untaken] = found.untaken
    assert (untaken.type, untaken.count, untaken.why) == ("wait", 3, "not_promoted")
    assert untaken.oldest == timedelta(seconds=70)
    [shut_out] = [each for each in found.findings if each.cause is Cause.NOT_PROMOTED]
    assert shut_out.sentence == "Nobody lets 3 jobs of wait into the queue, whose time has come"
    assert f"{shut_out.sentence}, for 70s: windlass doctor" in ops.status().warnings
    # Workers are there and idle; that they are too few, or that they dawdle, would be the wrong word.
    graves = {each.cause: each for each in told(ops, grave=True)}
    assert set(graves) == {Cause.STOPPED, Cause.NOT_PROMOTED}
    assert graves[Cause.NOT_PROMOTED].since == found.now - untaken.oldest
    still.parts.heartbeat.tick()
    still.parts.triggers.hint()
    still.run_claimed(3)
    still.clock.advance(16)
    alive(still)
    assert look(still, ops).untaken == ()
    still.finish()


def test_depth_is_split_into_due_scheduled_retrying_and_waiting(still: Still, ops: Ops) -> None:
    still.build()
    still.put(2, priority=7)
    still.put(1, delay=timedelta(hours=1))
    [again] = still.put(1, job_type="other")
    [lease] = still.store.claim(_want(still, "other")).leases
    boom = Error(Reason.EXCEPTION, "ValueError", "boom")
    still.store.settle([Settlement(lease, Again(timedelta(minutes=5), boom), None)])
    still.store.enqueue([_after(again.id)])
    still.clock.advance(16)
    lanes = {(lane.type, lane.priority, lane.view): lane for lane in look(still, ops).lanes}
    assert {of: lane.count for of, lane in lanes.items()} == {
        ("wait", 7, "due"): 2,
        ("wait", 5, "scheduled"): 1,
        ("other", 5, "retrying"): 1,
        ("wait", 5, "waiting"): 1,
    }
    assert lanes["wait", 7, "due"].oldest == timedelta(seconds=16)
    assert lanes["wait", 5, "scheduled"].oldest is None


@pytest.mark.parametrize("why", ["no_worker", "paused", "untaken"])
def test_a_type_that_is_enqueued_and_never_taken_is_named(still: Still, ops: Ops, why: str) -> None:
    still.build()
    name = "nobody" if why == "no_worker" else "wait"
    still.put(2, job_type=name)
    if why == "paused":
        still.store.pause("wait", by="ann")
    still.clock.advance(61)
    alive(still)
    [untaken] = look(still, ops).untaken
    assert (untaken.type, untaken.count, untaken.why) == (name, 2, why)


def test_a_type_that_is_only_behind_is_not_called_untaken(still: Still, ops: Ops) -> None:
    still.build(threads=1)
    still.put(5)
    still.run_claimed(1)
    still.clock.advance(70)
    alive(still)
    found = look(still, ops)
    assert found.untaken == ()
    assert found.bands[0].due == 4
    still.finish()


# --- "the oldest job is 30 seconds old" ---------------------------------------------------------


def test_a_starved_band_is_seen_behind_young_jobs_of_higher_priority(still: Still, ops: Ops) -> None:
    still.build()
    still.put(4, priority=0)
    still.clock.advance(270)
    still.put(9, priority=9)
    still.clock.advance(30)
    alive(still)
    high, low = look(still, ops).bands
    assert (high.priority, high.due, high.oldest, high.starved) == (9, 9, timedelta(seconds=30), False)
    assert (low.priority, low.due, low.oldest, low.starved) == (0, 4, timedelta(seconds=300), True)
    assert any(each.startswith("Priority 0 starves") for each in ops.status().warnings)
    assert [each.starved for each in ops.status().bands] == [False, True]
    assert Cause.STARVED in {each.cause for each in told(ops, grave=False)}


def test_a_backlog_that_waits_in_turn_is_no_starvation(still: Still, ops: Ops) -> None:
    still.build()
    still.put(4, priority=0)
    still.clock.advance(900)
    [band] = look(still, ops).bands
    assert not band.starved
    still.put(4, priority=9)
    still.clock.advance(900)
    high, low = look(still, ops).bands
    assert (high.starved, low.starved) == (False, True)


# --- "completions are steady" -------------------------------------------------------------------


def test_work_that_was_done_twice_is_counted(still: Still, ops: Ops) -> None:
    still.build(threads=2)
    [job] = still.put(1)
    still.run_claimed(1)
    [run] = still.parts.runs.values()
    # Another worker takes the job back and completes it, while this one still works on it.
    lost = Error(Reason.WORKER_LOST, message="the worker is gone")
    still.store.settle([Settlement(run.lease, Again(timedelta(0), lost), None)])
    [lease] = still.store.claim(_want(still, "wait", "other-1-aa")).leases
    assert lease.id == job.id
    still.finish()
    [balance] = look(still, ops).balances
    assert (balance.type, balance.late, balance.completed) == ("wait", 1, 0)


def test_what_goes_in_stands_beside_what_comes_out(still: Still, ops: Ops) -> None:
    still.build(threads=10)
    still.gate.let()
    still.put(5)
    settled(still)
    still.put(2, delay=timedelta(hours=1))
    [balance] = look(still, ops).balances
    assert (balance.enqueued, balance.started, balance.completed, balance.late) == (7, 5, 5, 0)


# --- "completed" --------------------------------------------------------------------------------


def test_completed_but_wrong_is_seen_in_status(still: Still, ops: Ops) -> None:
    still.handler(lambda: None, "mail", verify=lambda: False, sample=1)
    still.build()
    [job] = still.put(1, job_type="mail")
    settled(still)
    assert still.job(job).state == "completed"
    still.clock.advance(60)
    still.parts.verifier.tick()
    [checked] = look(still, ops).checked
    assert (checked.type, checked.mismatched, checked.last_mismatch_job) == ("mail", 1, job.id)
    warning = "1 of 1 verified jobs of mail completed without doing what they should"
    assert any(each.startswith(warning) for each in ops.status().warnings)
    [finding] = told(ops, grave=True)
    assert (finding.cause, finding.fix) == (Cause.MISMATCH, f"windlass show {job.id}")
    # It stays in sight for a day, but hides nothing that is worse now.
    still.clock.advance(timedelta(hours=1))
    assert Cause.MISMATCH in {each.cause for each in told(ops, grave=False)}


def test_samples_that_nobody_checks_are_seen(still: Still, ops: Ops) -> None:
    still.handler(lambda: None, "mail", verify=lambda: True, sample=1)
    still.build()
    still.put(1, job_type="mail")
    settled(still)
    still.clock.advance(60 + 16 * 60)
    [checked] = look(still, ops).checked
    assert (checked.waiting, checked.overdue) == (1, timedelta(minutes=16))
    assert any("wait to be verified" in each for each in ops.status().warnings)
    assert Cause.UNVERIFIED in {each.cause for each in told(ops, grave=False)}


# --- "all is running" ---------------------------------------------------------------------------


def test_upkeep_that_has_stopped_is_late_and_upkeep_that_goes_on_is_not(still: Still, ops: Ops) -> None:
    parts = still.build()
    for _ in range(100):
        still.clock.advance(1)
        parts.heartbeat.tick()
        parts.reaper.work()
    parts.scheduler.tick()
    Pruner(still.store, parts.ticks.note).tick()
    ticks = {tick.name: tick for tick in look(still, ops).ticks}
    assert list(ticks) == ["beat", "reap", "promote", "schedule", "prune"]
    assert not any(tick.late for tick in ticks.values())
    # Now the reaper is stuck: the worker beats and promotes, and looks as healthy as ever.
    for _ in range(91):
        still.clock.advance(1)
        parts.heartbeat.tick()
    parts.scheduler.tick()
    found = look(still, ops)
    late = {tick.name: tick.age for tick in found.ticks if tick.late}
    assert late == {"reap": timedelta(seconds=91)}
    assert any(each.startswith("Reap has not succeeded") for each in ops.status().warnings)
    [finding] = told(ops, grave=True)
    assert (finding.cause, finding.since) == (Cause.STOPPED, found.now - timedelta(seconds=91))


def test_where_nobody_works_nothing_is_late(still: Still, ops: Ops) -> None:
    still.build()
    still.store.leave(still.parts.membership.id)
    still.clock.advance(timedelta(days=1))
    assert not any(tick.late for tick in ops.signals().ticks)


def test_a_worker_that_has_just_begun_is_not_late_with_anything(still: Still, ops: Ops) -> None:
    still.clock.advance(timedelta(days=1))
    still.build()
    still.store.join(another_worker())
    assert not any(tick.late for tick in look(still, ops).ticks)


def test_a_killed_process_leaves_ticks_that_are_older_never_younger(still: Still) -> None:
    parts = still.build()
    parts.heartbeat.tick()
    parts.ticks.tell()
    first = still.store.sight(timedelta(0)).ticks["promote"]
    still.clock.advance(20)
    parts.heartbeat.tick()
    # Killed here, before it told.
    assert still.store.sight(timedelta(0)).ticks["promote"] == first
    still.clock.advance(5)
    parts.ticks.tell()
    assert still.store.sight(timedelta(0)).ticks["promote"] == first + timedelta(seconds=20)


# --- and the doctor -----------------------------------------------------------------------------


def test_the_doctor_finds_a_starved_priority_and_what_gives_it_a_share(still: Still, ops: Ops) -> None:
    still.build()
    still.put(4, priority=0)
    still.clock.advance(270)
    still.put(9, priority=9)
    alive(still)
    assert "priorities" not in doctored(still, ops)
    still.clock.advance(30)
    alive(still)
    found = doctored(still, ops)["priorities"]
    assert (found.level, found.fix) == (Level.BAD, "windlass config set low_share 0.1")
    assert found.sentence == "Priority 0 starves behind later jobs of higher priority: 4 due, for 5m"


def test_the_doctor_finds_a_type_that_is_served_and_not_taken(still: Still, ops: Ops) -> None:
    still.build()
    still.put(3)
    still.clock.advance(61)
    alive(still)
    found = doctored(still, ops)["untaken"]
    assert found.level is Level.BAD
    assert found.sentence.startswith("3 jobs of wait due for 61s and none runs: workers serve that type")
    still.store.pause("wait", by="ann", why="")
    # Of a pause it tells as of a pause.
    told = doctored(still, ops)
    assert ("untaken" in told, told["pauses"].fix) == (False, "windlass resume wait")


def test_the_doctor_finds_upkeep_that_has_stopped(still: Still, ops: Ops) -> None:
    parts = still.build()
    for _ in range(91):
        still.clock.advance(1)
        parts.heartbeat.tick()
    parts.scheduler.tick()
    found = doctored(still, ops)["upkeep"]
    assert (found.level, found.sentence.partition(",")[0]) == (
        Level.BAD,
        "Reap was never seen to succeed",
    )
    for _ in range(2):
        parts.heartbeat.tick()
        parts.reaper.work()
    assert "upkeep" not in doctored(still, ops)


def test_the_doctor_finds_completed_but_wrong_for_a_day_and_checks_that_nobody_makes(
    still: Still, ops: Ops
) -> None:
    still.handler(lambda: None, "mail", verify=lambda: False, sample=1)
    still.build()
    [job] = still.put(1, job_type="mail")
    settled(still)
    still.clock.advance(60 + 16 * 60)
    alive(still)
    late = doctored(still, ops)["verification"]
    assert (late.level, late.fix) == (Level.WARNING, "windlass worker start APP --types mail")
    still.parts.verifier.tick()
    wrong = doctored(still, ops)["verification"]
    assert (wrong.level, wrong.fix) == (Level.BAD, f"windlass show {job.id}")
    still.clock.advance(timedelta(days=1, seconds=1))
    assert "verification" not in doctored(still, ops)
