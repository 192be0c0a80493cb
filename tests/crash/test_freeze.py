"""Does a worker that stood still for too long do any harm when it goes on?"""

from __future__ import annotations

import sys
import time

import pytest

from tests.crash.app import hold, work, work_async
from tests.crash.processes import Site, freeze, on_both, thaw
from tests.waiting import PATIENCE, until
from windlass.job import JobState, Reason
from windlass.upkeep.membership import DEAD_AFTER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# Longer than the silence after which others are declared dead.
FROZEN_SECONDS = DEAD_AFTER + 2


@on_both
def test_f03_f39_a_frozen_worker_is_declared_dead_comes_too_late_and_works_again_under_a_new_name(
    site: Site,
) -> None:
    frozen = site.worker()
    [name] = [worker.id for worker in site.store.workers()]
    [job_id] = site.enqueue(hold.draft(site.gate))
    until(lambda: site.starts(job_id), "the job begins")
    freeze(frozen)
    site.let_go()
    healthy = site.worker()
    until(lambda: _worker_state(site, name) == "dead", "the frozen worker is declared dead")
    until(lambda: _state(site, job_id) is JobState.COMPLETED, "another worker runs and completes the job")
    before = site.store.get(job_id)
    assert before is not None
    healthy.terminate()
    assert healthy.wait(PATIENCE) == 0

    thaw(frozen)
    until(lambda: "lease.lost" in site.said(), "the late result is logged")
    until(lambda: any(worker.late for worker in site.store.workers()), "the late result is counted")
    assert site.store.get(job_id) == before
    assert bytes(before.result or b"") == b'"attempt 2"'
    assert [(entry.number, entry.error and entry.error.reason) for entry in before.history] == [
        (1, Reason.WORKER_LOST),
        (2, None),
    ]
    assert [event.pid for event in site.starts(job_id)] == [frozen.pid, healthy.pid]

    [second] = site.enqueue(work_async.draft(0.05))
    until(lambda: _state(site, second) is JobState.COMPLETED, "the thawed worker works again")
    assert _worker_state(site, name) == "dead"


def test_all_workers_frozen_together_and_thawed_run_nothing_twice(site: Site) -> None:
    workers = [site.worker(slots=4) for _ in range(3)]
    long_ones = site.enqueue(*(job_type.draft(3.0) for job_type in (work, work_async) for _ in range(4)))
    short_ones = site.enqueue(*(work.draft(0.05) for _ in range(100)))
    until(lambda: all(site.starts(job_id) for job_id in long_ones), "the long jobs begin")
    for worker in workers:
        freeze(worker)
    time.sleep(FROZEN_SECONDS)
    for worker in workers:
        thaw(worker)
    everything = [*long_ones, *short_ones]
    until(
        lambda: all(_state(site, job_id) is JobState.COMPLETED for job_id in everything), "all jobs complete"
    )
    assert {job_id: len(site.starts(job_id)) for job_id in everything} == dict.fromkeys(everything, 1)
    assert {worker.state for worker in site.store.workers()} == {"running"}


def _state(site: Site, job_id: str) -> JobState | None:
    job = site.store.get(job_id)
    return None if job is None else job.state


def _worker_state(site: Site, name: str) -> str:
    return next(worker.state for worker in site.store.workers() if worker.id == name)
