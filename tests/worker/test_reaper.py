"""What becomes of dead workers' jobs: the reaper's ticks by hand, on a real store."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.scene import LEASE, Still, another_worker
from windlass.job import Job, JobState, Reason
from windlass.policy import Retry
from windlass.registry import Options, make_handler
from windlass.store.engine import Want
from windlass.upkeep import membership as place


def taken_by(still: Still, worker: str, count: int = 1, **fields: Any) -> list[Job]:
    """Jobs that a worker claimed and then says nothing more about."""
    jobs = still.put(count, **fields)
    types = {fields.get("job_type", "wait"): 1}
    claimed = still.store.claim(Want(worker=worker, types=types, limit=count, lease=LEASE))
    assert len(claimed.leases) == count
    return jobs


def pass_time(still: Still, seconds: int) -> None:
    """Let the reaper see each second."""
    for _ in range(seconds):
        still.pass_time(1)
        still.parts.reaper.work()


def test_the_jobs_of_a_silent_worker_run_again_after_ten_seconds(still: Still) -> None:
    still.build()
    still.store.join(another_worker())
    [job] = taken_by(still, "other-1-aa")
    pass_time(still, 10)
    assert still.job(job).state is JobState.PROCESSING
    pass_time(still, 1)
    back = still.job(job)
    assert back.state is JobState.PENDING
    assert back.run_at <= still.store.now(), "at once: the job did nothing wrong"
    assert (back.attempts, back.losses) == (1, 1)
    [attempt] = back.history
    assert attempt.error is not None
    assert attempt.error.reason is Reason.WORKER_LOST
    assert [worker.state for worker in still.store.workers() if worker.id == "other-1-aa"] == ["dead"]


def test_a_worker_that_beats_keeps_its_jobs(still: Still) -> None:
    still.build()
    still.store.join(another_worker())
    [job] = taken_by(still, "other-1-aa")
    for _ in range(30):
        pass_time(still, 1)
        still.store.beat("other-1-aa", still.parts._vitals())  # noqa: SLF001
    assert still.job(job).state is JobState.PROCESSING


def test_a_job_that_has_no_attempt_left_goes_to_the_dead_letters(still: Still) -> None:
    still.build()
    still.store.join(another_worker())
    [job] = taken_by(still, "other-1-aa", max_attempts=1)
    pass_time(still, 11)
    dead = still.job(job)
    assert dead.state is JobState.DEAD
    assert dead.error is not None
    assert dead.error.reason is Reason.WORKER_LOST


def test_a_job_of_a_type_without_a_handler_here_is_judged_by_what_the_catalogue_says_of_it(
    still: Still,
) -> None:
    def elsewhere() -> None:
        """Nobody here has this function."""

    options = Options(name="elsewhere", max_age=5, retry=Retry(kind="fixed", base=7, jitter=0))
    handler = make_handler(elsewhere, options)
    still.build()
    still.store.register([handler.info()])
    still.store.join(another_worker())
    [job] = taken_by(still, "other-1-aa", job_type="elsewhere")
    policy = still.parts.live.policy("elsewhere")
    assert (policy.max_age, policy.retry) == (timedelta(seconds=5), handler.policy.retry)
    pass_time(still, 11)
    dead = still.job(job)
    assert dead.state is JobState.DEAD, "it is older than its own type allows"
    assert dead.error is not None
    assert dead.error.reason is Reason.EXPIRED


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system tells this on Linux only")
def test_a_killed_process_of_this_machine_is_reaped_at_the_next_look(still: Still) -> None:
    still.build()
    with subprocess.Popen(["sleep", "60"]) as process:
        here = place.here()
        still.store.join(
            another_worker(
                "gone-1-aa",
                boot=here.boot,
                pid_space=here.pid_space,
                pid=process.pid,
                pid_started=place._started(process.pid),  # noqa: SLF001 - as the worker itself would say
            )
        )
        [job] = taken_by(still, "gone-1-aa")
        pass_time(still, 1)
        assert still.job(job).state is JobState.PROCESSING
        process.kill()
    pass_time(still, 1)
    assert still.job(job).state is JobState.PENDING


def test_leases_of_a_worker_that_nobody_knows_are_reaped_at_once(still: Still) -> None:
    still.build()
    jobs = taken_by(still, "never-joined", 3)
    pass_time(still, 1)
    assert [still.job(job).state for job in jobs] == [JobState.PENDING] * 3


def test_more_orphans_than_one_batch_are_all_reaped(still: Still) -> None:
    still.build()
    jobs = taken_by(still, "never-joined", 1203)
    pass_time(still, 1)
    assert still.parts.reaper.reaped == 1203
    assert still.job(jobs[-1]).state is JobState.PENDING


def test_an_expired_lease_of_a_worker_that_beats_is_reaped_only_after_ten_seconds_of_watching(
    still: Still,
) -> None:
    still.build()
    still.store.join(another_worker())
    [job] = taken_by(still, "other-1-aa")
    for _ in range(70):
        still.store.beat("other-1-aa", still.parts._vitals())  # noqa: SLF001
        assert still.job(job).state is JobState.PROCESSING
        pass_time(still, 1)
    pass_time(still, 2)
    back = still.job(job)
    assert back.state is JobState.PENDING
    assert back.history[0].error is not None
    assert back.history[0].error.reason is Reason.LEASE_EXPIRED


def test_a_renewed_lease_is_not_reaped(still: Still) -> None:
    still.build()
    still.store.join(another_worker())
    [job] = still.put()
    [lease] = still.store.claim(
        Want(worker="other-1-aa", types={"wait": 1}, limit=1, lease=timedelta(seconds=60))
    ).leases
    for _ in range(3):
        for _ in range(66):
            pass_time(still, 1)
            still.store.beat("other-1-aa", still.parts._vitals())  # noqa: SLF001
        [lease], lost = still.store.extend([lease], LEASE)
        assert lost == []
    assert still.job(job).state is JobState.PROCESSING


def test_after_an_outage_nobody_is_reaped_before_having_had_the_time_to_beat(still: Still) -> None:
    still.build()
    still.store.join(another_worker())
    [job] = taken_by(still, "other-1-aa")
    pass_time(still, 9)
    still.pass_time(3600, beating=False)
    pass_time(still, 10)
    assert still.job(job).state is JobState.PROCESSING, "both its lease and its beat are an hour old"
    pass_time(still, 2)
    assert still.job(job).state is JobState.PENDING


def test_a_reap_wakes_those_who_claim(still: Still) -> None:
    still.build()
    still.parts.claimer.tick()
    hints: list[None] = []
    still.opened.wakeup.subscribe(lambda: hints.append(None))
    taken_by(still, "never-joined")
    hints.clear()
    still.clock.advance(1)
    look = still.store.look(still.parts.membership.id, still.parts.types)
    still.parts.reaper.tick(still.parts.membership.id, look, still.parts.membership.pulse)
    assert hints


def test_the_late_worker_and_the_reaper_race_and_only_one_writes(still: Still) -> None:
    still.build()
    jobs = taken_by(still, "never-joined")
    orphans = still.store.orphans(limit=10)
    pass_time(still, 1)
    again = still.parts.reaper._settle(orphans, Reason.WORKER_LOST, still.store.now())  # noqa: SLF001
    assert again == 0 or still.job(jobs[0]).losses == 1
    assert len(still.job(jobs[0]).history) == 1
