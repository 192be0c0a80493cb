"""What worker and store tell each other each second: ticks by hand, on a real store."""

from __future__ import annotations

import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.waiting import until
from tests.worker.scene import LEASE, Still, another_worker, claim_ahead
from windlass.job import Job, JobState, Reason
from windlass.ops import Ops
from windlass.outcome import Done
from windlass.store.engine import Settlement
from windlass.store.fleet import WorkerInfo
from windlass.worker.timeouts import ENDLESS_SECONDS


def row(still: Still, name: str | None = None) -> WorkerInfo:
    wanted = name or still.parts.membership.id
    [found] = [worker for worker in still.store.workers() if worker.id == wanted]
    return found


def lease_left(still: Still, job: Job) -> timedelta:
    ends = still.job(job).lease_until
    assert ends is not None
    return ends - still.store.now()


def test_a_worker_beats_every_second_look(still: Still) -> None:
    still.build()
    still.pass_time(6)
    assert row(still).beat == 3


def test_a_beat_tells_how_the_worker_is(still: Still) -> None:
    still.build()
    still.put(2)
    still.run_claimed(2)
    still.pass_time(2)
    assert (row(still).busy, row(still).done, row(still).slots) == (2, 0, 3)
    still.finish()
    still.pass_time(2)
    assert (row(still).busy, row(still).done) == (0, 2)


def test_a_beat_tells_what_memory_the_worker_and_its_children_take(still: Still) -> None:
    still.build()
    still.pass_time(2)
    alone = row(still).resident_bytes
    # Where the system does not tell, neither does the row.
    assert (alone is not None) == Path("/proc/self/stat").exists()
    if alone is None:
        return
    assert alone > 2**20
    # Whatever else this process has begun, such as a database server, may shrink just then.
    until(lambda: grows_by_a_child(still), "its children's memory is told")


def grows_by_a_child(still: Still) -> bool:
    """Whether the worker is told to take more with a child that takes 64 MB."""
    still.pass_time(2)
    alone = row(still).resident_bytes or 0
    code = "held = b'x' * 2**26; print(1, flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        still.pass_time(2)
        child.kill()
    return (row(still).resident_bytes or 0) > alone + 2**25


def test_a_workers_row_says_where_it_runs(still: Still) -> None:
    still.build()
    here = still.parts.membership.place
    found = row(still)
    assert (found.host, found.boot, found.pid_space) == (here.host, here.boot, here.pid_space)
    assert (found.pid, found.pid_started, found.types) == (here.pid, here.pid_started, ("wait",))
    assert found.id.startswith(f"{here.host[:50]}")
    assert len(found.id) <= 128


# --- leases ---


def test_a_lease_is_extended_once_a_third_of_it_is_used(still: Still) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    still.pass_time(20)
    assert lease_left(still, job) == LEASE - timedelta(seconds=20)
    still.pass_time(1)
    assert lease_left(still, job) == LEASE


def test_a_job_that_outlives_many_leases_is_run_once(still: Still) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    for _ in range(5):
        still.pass_time(60)
        assert lease_left(still, job) > timedelta(seconds=30)
    still.finish()
    assert still.job(job).state is JobState.COMPLETED
    assert still.job(job).claims == 1


def test_a_worker_is_alive_throughout_a_job_of_five_minutes(still: Still) -> None:
    still.build()
    ops = Ops(still.store, clock=still.clock)
    [job] = still.put()
    still.run_claimed(1)
    for _ in range(300):
        still.pass_time(1)
        [worker] = ops.workers()
        assert worker.alive
        assert worker.silent_for <= timedelta(seconds=2)
    assert (row(still).busy, row(still).beat) == (1, 150)
    still.finish()
    assert (still.job(job).state, still.job(job).claims) == (JobState.COMPLETED, 1)


def test_the_first_beat_after_a_gap_extends_every_lease(still: Still) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    still.pass_time(4, beating=False)
    still.pass_time(1)
    assert lease_left(still, job) == LEASE


def test_without_a_gap_a_young_lease_is_left_as_it_is(still: Still) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    still.pass_time(5)
    assert lease_left(still, job) == LEASE - timedelta(seconds=5)


def test_a_lost_lease_is_told_to_the_job_and_counted_and_its_result_is_dropped(
    still: Still, caplog: pytest.LogCaptureFixture
) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    [run] = still.parts.runs.values()
    # Somebody else has settled it: its token is gone.
    still.store.settle([Settlement(run.lease, Done(b'"theirs"'), None)])
    with caplog.at_level(logging.WARNING, "windlass.settler"):
        still.pass_time(21)
    assert run.notice.lease_lost
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == ["lease.lost"]
    assert len(still.parts.runs) == 0
    assert (still.parts.pools[0].busy, still.parts.pools[0].held) == (0, 1), "its thread still runs"
    still.finish()
    still.until(lambda: still.parts.pools[0].held == 0)
    still.pass_time(2)
    assert row(still).late == 1
    result = still.job(job).result
    assert result is not None
    assert bytes(result) == b'"theirs"'


# --- requests ---


@pytest.mark.parametrize(("verb", "state"), [("cancel", JobState.CANCELLED), ("bury", JobState.DEAD)])
def test_a_request_reaches_a_running_job_and_it_ends_as_asked(
    still: Still, verb: str, state: JobState
) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    getattr(still.store, verb)(job.id)
    still.pass_time(1)
    [run] = still.parts.runs.values()
    assert run.notice.stop
    still.finish()
    ended = still.job(job)
    assert ended.state is state, "what it returned after being told does not count"
    assert ended.error is not None
    assert ended.error.reason is Reason.CANCELLED


def test_a_job_that_does_not_end_when_asked_is_settled_without_it(still: Still) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    still.store.cancel(job.id)
    still.pass_time(1)
    still.parts.timeouts.tick()
    still.settle()
    assert still.job(job).state is JobState.PROCESSING, "it has a few seconds"
    still.pass_time(3)
    still.parts.timeouts.tick()
    still.settle()
    assert still.job(job).state is JobState.CANCELLED
    assert still.parts.pools[0].held == 1


def test_threads_that_do_not_end_are_a_leak_only_when_they_have_gone_on_for_a_while(still: Still) -> None:
    still.build(most_held=1)
    jobs = still.put(2)
    still.run_claimed(2)
    for job in jobs:
        still.store.cancel(job.id)
    still.pass_time(4)
    still.parts.timeouts.tick()
    assert still.parts.pools[0].held == 2
    still.parts.timeouts.tick()
    still.pass_time(ENDLESS_SECONDS - 1)
    still.parts.timeouts.tick()
    assert still.parts.leaks.reason == "", "they may be late"
    still.pass_time(1)
    still.parts.timeouts.tick()
    assert still.parts.leaks.reason.startswith("2 jobs ")
    assert still.drains == 0, "it claims on until a successor is there"
    still.finish()
    until(lambda: not still.parts.runner.carried())
    still.parts.timeouts.tick()
    assert not still.parts.leaks.reason, "they have ended after all"


def test_a_request_to_a_job_that_waits_for_a_slot_keeps_it_from_running(still: Still) -> None:
    still.build(threads=1)
    claim_ahead(still.parts, "wait", still.clock.monotonic())
    _, waiting = still.put(2)
    still.run_claimed(1)
    still.store.cancel(waiting.id)
    still.parts.heartbeat.tick()
    still.parts.timeouts.tick()
    still.settle()
    assert still.job(waiting).state is JobState.CANCELLED
    still.finish()
    assert still.gate.entered == 1
    assert still.parts.pools[0].busy == 0


# --- declared dead ---


def test_a_worker_that_was_declared_dead_goes_on_under_a_new_name(
    still: Still, caplog: pytest.LogCaptureFixture
) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    [run] = still.parts.runs.values()
    old = still.parts.membership.id
    assert still.store.declare_dead(old, row(still).beat)
    with caplog.at_level(logging.WARNING, "windlass.heartbeat"):
        still.pass_time(2)
    new = still.parts.membership.id
    assert new != old
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == [
        "worker.renamed",
        "lease.lost",
    ]
    assert (row(still, old).state, row(still, new).state) == ("dead", "running")
    assert run.notice.lease_lost, "its jobs are others' by now"
    still.finish()
    assert still.job(job).state is JobState.PROCESSING, "it waits for the reaper; our result was dropped"
    assert still.parts.membership.sure()
    [another] = still.put()
    still.parts.triggers.hint()
    still.run_claimed(2)
    assert still.job(another).worker == new


# --- the rest of a look ---


def test_a_request_to_drain_is_passed_on(still: Still) -> None:
    still.build()
    still.pass_time(1)
    assert still.drains == 0
    still.store.drain(still.parts.membership.id)
    still.pass_time(1)
    assert still.drains == 1


def test_somebody_elses_drain_is_not_ours(still: Still) -> None:
    still.build()
    still.store.join(another_worker())
    still.store.drain("other-1-aa")
    still.pass_time(1)
    assert still.drains == 0


def test_a_look_promotes_what_has_become_due(still: Still) -> None:
    still.build()
    still.put(delay=timedelta(seconds=3))
    still.parts.heartbeat.tick()
    still.clock.advance(4)
    still.parts.heartbeat.tick()
    assert still.store.promote() == 0, "it was done"


def test_an_operators_settings_are_followed_at_the_next_look(still: Still) -> None:
    still.build()
    assert still.parts.live.loop in still.parts.loops
    assert still.parts.live.in_force["wait"].timeout == timedelta(seconds=300)
    still.store.set_setting("wait.timeout", "7s")
    still.store.set_setting("retry.base", "2s")
    still.parts.live.refresh()
    assert still.parts.live.in_force["wait"].timeout == timedelta(seconds=7)
    assert still.parts.live.policy("wait").retry.base == 2
    assert still.parts.live.policy("a type without a handler here").retry.base == 2


def test_what_the_code_says_stands_above_an_operators_default_but_not_above_an_override(still: Still) -> None:
    still.handler(lambda: None, "said", timeout=30)
    still.build()
    still.store.set_setting("timeout", "7s")
    still.parts.live.refresh()
    assert still.parts.live.in_force["said"].timeout == timedelta(seconds=30)
    assert still.parts.live.in_force["wait"].timeout == timedelta(seconds=7)
    still.store.set_setting("said.timeout", "9s")
    still.parts.live.refresh()
    assert still.parts.live.in_force["said"].timeout == timedelta(seconds=9)
