"""Is a real worker process killed that holds the GIL, by its supervisor or by its guard, and nobody else?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.crash.app import bomb, bomb_async, work
from tests.crash.processes import Site
from tests.waiting import PATIENCE, WHOLE_RUN, gone, until
from windlass.job import HUNG, Job, JobState, Reason

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

QUICK = ("--hang-limit", "10s")
# Ends with the number of the signal that it has a handler for, see watch.py.
ENDED_AS_FIRST_PROCESS = 24


def the_job(site: Site, job_id: str) -> Job:
    job = site.store.get(job_id)
    assert job is not None
    return job


def assert_hung_once(job: Job, function: str) -> None:
    """It cost one worker, and ran into its timeout in a child after that."""
    first, *rest = job.history
    assert first.error is not None
    assert (first.error.reason, first.error.kind) == (Reason.WORKER_LOST, HUNG)
    assert f"in {function}\n" in (first.error.traceback or "").partition("\n\n")[0]
    assert [each.error and each.error.reason for each in rest] == [Reason.TIMEOUT] * 2


def test_a_supervised_worker_that_hangs_is_killed_and_its_job_runs_in_a_child_next(site: Site) -> None:
    site.fleet(2, *QUICK)
    before = {worker.pid for worker in site.store.workers()}
    [job_id] = site.enqueue(bomb.draft())
    until(lambda: the_job(site, job_id).state is JobState.DEAD, "the job has used up its attempts")
    until(lambda: sum(gone(pid) for pid in before) == 1, "one worker is killed, and the other is not")
    assert_hung_once(the_job(site, job_id), "bomb")
    assert "worker.hung" in site.said()


def test_a_worker_that_runs_alone_is_killed_by_its_guard(site: Site) -> None:
    worker = site.start("tests.crash.app:queue", *QUICK)
    [job_id] = site.enqueue(bomb_async.draft())
    assert worker.wait(PATIENCE) != 0
    until(lambda: the_job(site, job_id).hang, "the store knows why")
    site.start("tests.crash.app:queue", *QUICK)
    until(lambda: the_job(site, job_id).state is JobState.DEAD, "the job has used up its attempts")
    assert_hung_once(the_job(site, job_id), "bomb_async")


def test_two_signals_end_a_worker_that_hangs_whatever_its_limit(site: Site) -> None:
    worker = site.start("tests.crash.app:queue", "--hang-limit", "10m")
    site.enqueue(bomb.draft())
    until(lambda: "worker.silent" in site.said(), "the worker hangs")
    worker.terminate()
    worker.terminate()
    assert worker.wait(PATIENCE) != 0


def test_without_a_limit_nobody_watches(site: Site) -> None:
    worker = site.start("tests.crash.app:queue", "--hang-limit", "off")
    [job_id] = site.enqueue(work.draft(0.1))
    until(lambda: the_job(site, job_id).state is JobState.COMPLETED, "the job is done")
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
    assert children.read_text() == ""


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-pf", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs the right to make a pid namespace",
)
def test_the_first_process_of_a_container_is_ended_as_well(site: Site) -> None:
    worker = site.start(
        "tests.crash.app:queue", *QUICK, before=("unshare", "-pf", "--kill-child", "--mount-proc")
    )
    site.enqueue(bomb.draft())
    assert worker.wait(PATIENCE) == ENDED_AS_FIRST_PROCESS


EMBEDDED = """
import ctypes, json, logging, os, sys, threading
from windlass import Queue

told = []

class Kept(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "worker.hung":
            told.append(record.stacks)

logging.getLogger("windlass").addHandler(Kept())
queue = Queue(sys.argv[1])

@queue.job
def holds_the_lock() -> None:
    # It sleeps in C, and no other thread can run.
    ctypes.PyDLL(None).system(b"sleep 9")

with queue.worker(hang_limit="5s") as worker:
    # Watched after its first seconds.
    while worker.parts.liveness.box is None:
        threading.Event().wait(0.1)
    # More than once, in case the machine is so busy that the guard itself cannot look.
    while not told:
        ended = holds_the_lock.enqueue().wait(float(sys.argv[2]))
        threading.Event().wait(2)
    health = worker.health()
print(json.dumps([health.ok, health.why, told[0], ended.state]))
"""


def test_a_worker_inside_another_program_is_never_killed_and_tells_where_it_hung(tmp_path: Path) -> None:
    line = [sys.executable, "-c", EMBEDDED, str(tmp_path / "jobs.db"), str(PATIENCE)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=WHOLE_RUN, check=False)
    assert done.returncode == 0, done.stderr
    ok, why, stacks, state = msgspec.json.decode(done.stdout)
    assert (ok, state) == (False, "completed")
    assert "did not answer" in why
    assert "in holds_the_lock" in stacks
    assert "worker.silent" in done.stderr
