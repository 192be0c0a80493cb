"""Is anything lost or repeated without bound when processes are killed?"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.crash.app import hold, poison, send, work
from tests.crash.processes import ROOT, Site, freeze, on_both, thaw
from tests.history.end import all_jobs
from tests.history.processes import Process
from tests.history.record import Reader
from tests.waiting import PATIENCE, WHOLE_RUN, until
from windlass.job import JobState, Reason
from windlass.store.jobs import Filter

JOBS = 1000


def test_f01_a_short_run_of_random_kills_under_load_keeps_every_promise(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "kill_run.py"
    sizes = ["--workers", "3", "--slots", "8", "--producers", "3", "--jobs", "900", "--seconds", "8"]
    # How long things take is for the long run, on a machine that has nothing else to do.
    sizes += ["--slack", "8", "--json", str(tmp_path / "result.json")]
    done = subprocess.run(
        [sys.executable, script, *sizes], capture_output=True, text=True, check=False, timeout=WHOLE_RUN
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads((tmp_path / "result.json").read_text())
    assert (shown["injected"]["kills"], shown["counts"]["accepted"], shown["counts"]["lost"]) == (8, 900, 0)
    assert shown["recovery_seconds"]
    assert all(each["held"] for each in shown["promises"])


def test_the_jobs_of_a_killed_worker_run_again_at_once(site: Site) -> None:
    """A reaper on the same machine sees that the process is gone and need not wait for its silence."""
    victim = site.worker()
    jobs = _begun(site)
    site.worker()
    victim.kill()
    _assert_recovered(site, jobs)


def test_a_scheduled_job_runs_at_its_time_though_everything_was_killed_meanwhile(site: Site) -> None:
    [job_id] = site.enqueue(work.options(delay=3).draft(0.01))
    victim = site.worker()
    victim.kill()
    victim.wait(PATIENCE)
    site.worker()
    until(lambda: _all_completed(site, [job_id]), "it runs")
    job = site.store.get(job_id)
    assert job is not None
    assert job.started_at is not None
    assert job.started_at >= job.run_at
    assert (job.run_at - job.created_at, job.attempts) == (timedelta(seconds=3), 1)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="a namespace of its own needs root")
def test_the_jobs_of_a_worker_killed_out_of_sight_run_again(site: Site) -> None:
    """As on another machine: that the process is gone can only be known from its silence."""
    apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us make a namespace")
    victim = site.worker(*apart)
    jobs = _begun(site)
    site.worker()
    victim.kill()
    _assert_recovered(site, jobs)


def _begun(site: Site) -> list[str]:
    jobs = site.enqueue(*(hold.draft(site.gate) for _ in range(6)))
    until(lambda: all(site.starts(job_id) for job_id in jobs), "the victim runs all jobs")
    return jobs


def _assert_recovered(site: Site, jobs: list[str]) -> None:
    until(lambda: all(len(site.starts(job_id)) == 2 for job_id in jobs), "what was cut off runs again")
    site.let_go()
    until(lambda: _all_completed(site, jobs), "all jobs complete")
    for job_id in jobs:
        job = site.store.get(job_id)
        assert job is not None
        assert [entry.error and entry.error.reason for entry in job.history] == [Reason.WORKER_LOST, None]
        assert job.losses == 1


def test_f02_a_job_that_kills_its_worker_ends_in_the_dead_letters(site: Site) -> None:
    [job_id] = site.enqueue(poison.draft())
    innocent = site.enqueue(*(work.draft(0.01) for _ in range(5)))
    for number in itertools.count(1):
        worker = site.worker()
        until(lambda worker=worker: worker.poll() is not None or _ended(site, job_id), "the worker dies")  # type: ignore[misc] # bound early
        if _ended(site, job_id):
            break
        assert number <= 3
    until(lambda: _all_completed(site, innocent), "the others complete")
    job = site.store.get(job_id)
    assert job is not None
    assert (job.state, job.attempts) == (JobState.DEAD, 3)
    # The third time it ran in a child of its own, and no worker died.
    reasons = [Reason.WORKER_LOST, Reason.WORKER_LOST, Reason.CHILD_CRASHED]
    assert [entry.error and entry.error.reason for entry in job.history] == reasons
    assert len(site.starts(job_id)) == 3


@on_both
def test_f40_what_a_killed_worker_had_claimed_and_not_begun_runs_elsewhere(site: Site) -> None:
    victim = site.worker(slots=1)
    site.enqueue(*(work.draft(0.002) for _ in range(JOBS)))

    def frozen_ahead() -> list[str]:
        """What it has claimed and not begun, once it stands still while there is any."""
        freeze(victim)
        claimed = site.store.find(Filter(states=(JobState.PROCESSING,)), limit=1000).jobs
        begun = {event.job for event in site.events()}
        waiting = [job.id for job in claimed if job.id not in begun]
        if not waiting:
            thaw(victim)
        return waiting

    until(lambda: len(site.events()) > 60, "it works")
    waiting = until(frozen_ahead, "it claims ahead")
    victim.kill()
    victim.wait(PATIENCE)
    site.worker()
    done = Filter(states=(JobState.COMPLETED,))
    until(lambda: site.store.count(done, limit=JOBS) == JOBS, "all complete")
    starts = Counter(event.job for event in site.events() if event.kind == "start")
    assert {starts[job_id] for job_id in waiting} == {1}


def test_f28_what_was_done_outside_before_the_kill_is_not_done_again(site: Site) -> None:
    victim = site.worker()
    [job_id] = site.enqueue(send.draft())
    until(lambda: "waits" in [event.kind for event in site.events()], "the effect is made")
    victim.kill()
    victim.wait(PATIENCE)
    site.worker()
    until(lambda: _all_completed(site, [job_id]), "it runs again")
    assert [event.kind for event in site.events()] == ["start", "sent", "waits", "start", "end"]
    job = site.store.get(job_id)
    assert job is not None
    assert bytes(job.result or b"") == b'"done"'


PRODUCER = """
import os
from tests.history.record import from_environment
from windlass import connect
from windlass.clock import uuid7
from windlass.job import NewJob
recorder, store = from_environment(), connect.open(os.environ["WINDLASS_DATABASE_URL"]).store
while True:
    batch = uuid7()
    jobs = [NewJob(id=uuid7(), type="work", payload=b'{"seconds":0}', tenant=batch) for _ in range(7)]
    recorder.enqueue(store, jobs, "batch")
"""


def test_what_a_killed_producer_was_answered_is_there_and_no_batch_is_torn(site: Site) -> None:
    """The first is part of what every site judges in the end."""
    chance = random.Random(11)
    for _ in range(8):
        producer = Process([sys.executable, "-c", PRODUCER], site.recorder, cwd=ROOT, env=site.environment())
        until(partial(_answered, site, producer.name), "it is answered")
        time.sleep(chance.uniform(0, 0.05))
        producer.kill()
        producer.wait(PATIENCE)
    batches = Counter(job.tenant for job in all_jobs(site.store))
    assert len(batches) >= 8
    assert set(batches.values()) == {7}


def _answered(site: Site, process: str) -> bool:
    calls = Reader(site.recorder.path).read()
    return any(call.process == process and call.answered for call in calls)


def _ended(site: Site, job_id: str) -> bool:
    job = site.store.get(job_id)
    return job is not None and job.ended


def _all_completed(site: Site, jobs: list[str]) -> bool:
    found = [site.store.get(job_id) for job_id in jobs]
    return all(job is not None and job.state is JobState.COMPLETED for job in found)
