"""F-19: a worker's clock is an hour ahead, or behind. Does anybody notice?"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

from tests.crash.app import work
from tests.crash.processes import Site
from tests.servers import postgres
from tests.waiting import PATIENCE, until
from windlass.job import JobState

HOUR = 3600
SKEWED = str(Path(__file__).with_name("skewed.py"))


def test_f19_workers_an_hour_ahead_and_behind_keep_to_the_databases_clock(
    tmp_path: Path, database: str, closing: ExitStack
) -> None:
    site = closing.enter_context(Site(tmp_path, postgres.shared(15).url(database)))
    site.rules = None
    workers = [site.worker(sys.executable, SKEWED, str(shift), slots=4) for shift in (HOUR, -HOUR)]
    now = site.store.now()
    _assert_wrong(site.said(), now)
    # Longer than a worker may be silent, and of both workers.
    held = site.enqueue(*(work.draft(12.0) for _ in range(6)))
    until(lambda: len({event.pid for event in site.events()}) == 2, "both workers work")
    soon = site.enqueue(*(work.draft(0.05) for _ in range(40)))
    later = site.enqueue(*(work.options(delay=3).draft(0.05) for _ in range(4)))
    next_hour = site.enqueue(*(work.options(delay=HOUR / 2).draft(0.05) for _ in range(4)))
    jobs = [*soon, *later, *held]
    until(lambda: all(_completed(site, job_id) for job_id in jobs), "all jobs complete")
    for job_id in jobs:
        job = site.store.get(job_id)
        assert job is not None
        assert job.started_at is not None
        assert job.finished_at is not None
        assert max(now, job.run_at) <= job.started_at <= job.finished_at <= site.store.now()
        assert (job.attempts, len(site.starts(job_id))) == (1, 1)
    # What is due in half an hour was touched by neither, and neither took the other for dead.
    assert not any(site.starts(job_id) for job_id in next_hour)
    assert {worker.state for worker in site.store.workers()} == {"running"}
    for worker in workers:
        worker.terminate()
    assert [worker.wait(PATIENCE) for worker in workers] == [0, 0]


def _completed(site: Site, job_id: str) -> bool:
    job = site.store.get(job_id)
    return job is not None and job.state is JobState.COMPLETED


def _assert_wrong(said: str, now: datetime) -> None:
    """That the workers' clocks really are what they should be."""
    told = [line.removeprefix("the clock says ") for line in said.splitlines() if "the clock says" in line]
    offs = sorted(datetime.fromisoformat(line) - now for line in told)
    assert [round(off / timedelta(hours=1)) for off in offs] == [-1, 1]
