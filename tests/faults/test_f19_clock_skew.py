"""F-19: a worker's clock is an hour ahead, or behind. Does anybody notice?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.app import work
from tests.crash.processes import PATIENCE, Site, until
from tests.servers import postgres
from windlass.job import JobState

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="libfaketime is for Linux"),
]


def test_f19_workers_an_hour_ahead_and_behind_keep_to_the_databases_clock(
    tmp_path: Path, database: str, closing: ExitStack
) -> None:
    if shutil.which("faketime") is None:
        postgres.missing("faketime is not here: apt-get install faketime")
    site = closing.enter_context(Site(tmp_path, postgres.shared(15).url(database)))
    # Steady clocks stay steady: only what the machine takes for the time of day is wrong.
    ahead, behind = (
        site.worker("env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", offset, slots=4)
        for offset in ("+1h", "-1h")
    )
    now = site.store.now()
    soon = site.enqueue(*(work.draft(0.05) for _ in range(40)))
    held = site.enqueue(*(work.draft(12.0) for _ in range(2)))
    later = site.enqueue(*(work.options(delay=3).draft(0.05) for _ in range(4)))
    hours = site.enqueue(*(work.options(delay=1800).draft(0.05) for _ in range(4)))
    for job_id in (*soon, *later, *held):
        until(lambda job_id=job_id: _completed(site, job_id), "the job completes")  # type: ignore[misc] # bound early
    jobs = {job_id: site.store.get(job_id) for job_id in (*soon, *held, *later)}
    for job in jobs.values():
        assert job is not None
        assert job.started_at is not None
        assert job.finished_at is not None
        assert now <= job.started_at <= job.finished_at <= site.store.now()
        assert job.started_at >= job.run_at
        assert job.attempts == 1
    # Each ran once, at both workers, and what is due in half an hour was touched by neither.
    assert all(len(site.starts(job_id)) == 1 for job_id in jobs)
    assert len({event.pid for event in site.events()}) == 2
    assert not any(site.starts(job_id) for job_id in hours)
    assert {worker.state for worker in site.store.workers()} == {"running"}
    for process in (ahead, behind):
        process.terminate()
    assert [process.wait(PATIENCE) for process in (ahead, behind)] == [0, 0]


def _completed(site: Site, job_id: str) -> bool:
    job = site.store.get(job_id)
    return job is not None and job.state is JobState.COMPLETED


def test_f19_the_wrong_clock_is_really_wrong() -> None:
    """So that the test above cannot pass with a faketime that does nothing."""
    if shutil.which("faketime") is None:
        postgres.missing("faketime is not here: apt-get install faketime")
    ask = [sys.executable, "-c", "import time; print(time.time())"]
    here = float(subprocess.run(ask, capture_output=True, check=True).stdout)
    there = float(subprocess.run(["faketime", "-f", "+1h", *ask], capture_output=True, check=True).stdout)
    assert 3500 < there - here < 3700
