"""F-11: three of ten workers are killed. The others go on, jobs pile up, and replacements drain them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.crash.processes import Site
from tests.faults.scene import Shift
from tests.history.processes import Process
from tests.waiting import PATIENCE, until
from tests.worker.stores import on_both
from windlass.job import JobState, Reason
from windlass.store.jobs import Filter

url = on_both
WORKERS, LOST = 10, 3


@pytest.mark.skipif(sys.platform != "linux", reason="the system says on Linux only that a process is gone")
def test_f11_three_of_ten_workers_are_killed_and_replacements_drain_what_piled_up(
    tmp_path: Path, url: str
) -> None:
    with Site(tmp_path, url) as site:
        workers = start(site, WORKERS)
        first = Shift(site, tmp_path / "first", WORKERS)
        until(lambda: len(first.running_on(pids(workers))) == WORKERS, "every worker has a job")
        victims, left = workers[:LOST], workers[LOST:]
        lost = first.running_on(pids(victims))
        for victim in victims:
            victim.kill()
            victim.wait(PATIENCE)
        until(lambda: due(site) == LOST, "what they ran is back in the queue")
        second = Shift(site, tmp_path / "second", 2 * WORKERS)
        first.end()
        # Of ten slots seven are left: that much is done at a time, and the rest waits.
        until(
            lambda: len(second.running_on(pids(left))) == WORKERS - LOST, "every slot that is left is taken"
        )
        until(first.completed, "the first shift is done, by those who are left")
        until(lambda: due(site) == 2 * WORKERS - (WORKERS - LOST), "the backlog has grown")
        assert [worker.poll() for worker in left] == [None] * (WORKERS - LOST)

        replacements = start(site, LOST)
        until(lambda: len(second.running_on(pids(replacements))) == LOST, "the replacements work")
        assert len(second.running_on(pids([*left, *replacements]))) == WORKERS
        second.end()
        until(second.completed, "the backlog is drained")
        for job_id in (*first.jobs, *second.jobs):
            job = site.store.get(job_id)
            assert job is not None
            reasons = [entry.error and entry.error.reason for entry in job.history]
            assert reasons == ([Reason.WORKER_LOST, None] if job_id in lost else [None])
            assert len(site.starts(job_id)) == len(reasons)
        for worker in (*left, *replacements):
            worker.terminate()
        assert {worker.wait(PATIENCE) for worker in (*left, *replacements)} == {0}


def start(site: Site, count: int) -> list[Process]:
    """Workers of one slot each, started together."""
    known = {worker.id for worker in site.store.workers()}
    words = ("tests.crash.app:queue", "--concurrency", "1")
    started = [site.start(*words, looking=False) for _ in range(count)]
    until(lambda: len({each.id for each in site.store.workers()} - known) == count, "the workers join")
    return started


def pids(workers: Iterable[Process]) -> list[int]:
    return [worker.pid for worker in workers]


def due(site: Site) -> int:
    return site.store.count(Filter(states=(JobState.PENDING,)), limit=1000)
