"""Does a supervisor keep its workers, and does nothing survive whoever is killed?"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.crash.app import breed, hang, hold, hold_apart, poison, work, work_apart
from tests.crash.processes import ROOT, Site, on_both
from tests.history.record import Verb
from tests.servers.ports import free_port
from tests.waiting import PATIENCE, gone, until
from windlass.job import JobState, Reason
from windlass.store.jobs import Filter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Every process that it began, however far down."""
    return psutil.Process(process.pid).children(recursive=True)


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if each.is_running() and not gone(each.pid)]


def bred(site: Site) -> list[psutil.Process]:
    """The sleepers that `breed` began and that are still there."""
    numbers = [int(event.kind.partition(":")[2]) for event in site.events() if event.kind.startswith("bred")]
    found = []
    for number in numbers:
        # It may be gone at any moment.
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(number)
            if process.name() == "sleep" and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def answer(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE) as told:
            return told.status, told.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@on_both
def test_f01_nothing_survives_a_killed_supervisor_and_its_jobs_run_elsewhere(site: Site) -> None:
    """Four workers and eight children under load."""
    supervisor = site.fleet(4, "--pool", "apart=hold_apart,breed:2", "--pool", "light=hold,work:4")
    apart = site.enqueue(*(hold_apart.draft(site.gate) for _ in range(7)))
    [bred_by] = site.enqueue(breed.draft(1000))
    light = site.enqueue(*(hold.draft(site.gate) for _ in range(16)))
    waiting = site.enqueue(*(work.draft(0.01) for _ in range(200)))
    until(lambda: all(site.starts(job_id) for job_id in (*apart, bred_by, *light)), "everything runs")
    everybody = [*below(supervisor), *bred(site)]
    # Four workers, a guard each, eight children and what one of them bred.
    assert len(everybody) >= 4 + 4 + 8 + 2
    running = [*apart, *light]
    supervisor.kill()
    supervisor.wait(PATIENCE)
    until(lambda: not living(everybody), "nobody is left")
    assert bred(site) == []
    site.let_go()
    elsewhere = site.worker(slots=30)
    until(lambda: all(_state(site, each) is JobState.COMPLETED for each in (*running, *waiting)), "all end")
    for job_id in running:
        job = site.store.get(job_id)
        assert job is not None
        # Seen to be gone, rather than waited for until their leases ran out.
        assert [entry.error and entry.error.reason for entry in job.history] == [Reason.WORKER_LOST, None]
    elsewhere.terminate()
    assert elsewhere.wait(PATIENCE) == 0


def test_children_and_their_descendants_end_with_a_killed_worker(site: Site) -> None:
    worker = site.worker()
    [job_id] = site.enqueue(breed.draft(1000))
    until(lambda: site.starts(job_id), "the job runs")
    everybody = [*below(worker), *bred(site)]
    assert len(bred(site)) == 2
    worker.kill()
    worker.wait(PATIENCE)
    until(lambda: not living(everybody), "nobody is left")
    assert bred(site) == []
    assert _state(site, job_id) is JobState.PROCESSING, "of which the store has not heard"


def test_f11_a_worker_that_is_killed_is_replaced_and_its_jobs_are_handed_back_at_once(site: Site) -> None:
    supervisor = site.fleet(2)
    first = {worker.pid for worker in site.store.workers()}
    jobs = site.enqueue(*(hold.draft(site.gate) for _ in range(12)))
    until(lambda: all(site.starts(job_id) for job_id in jobs), "all jobs run")
    victim = site.starts(jobs[0])[0].pid
    with site.recorder.fault(Verb.KILL, supervisor.name):
        os.kill(victim, signal.SIGKILL)
    lost = [job_id for job_id in jobs if site.starts(job_id)[0].pid == victim]
    until(lambda: all(len(site.starts(job_id)) == 2 for job_id in lost), "they run again")
    site.let_go()
    until(lambda: {each.pid for each in site.store.workers()} - first, "another one takes its place")
    until(lambda: all(_state(site, each) is JobState.COMPLETED for each in jobs), "all complete")
    assert "worker.restarting" in site.said()
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_f26_a_signal_to_the_supervisor_ends_all_gently(site: Site, number: signal.Signals) -> None:
    supervisor = site.fleet(2)
    jobs = site.enqueue(*(work_apart.draft(1.0) for _ in range(2)))
    until(lambda: all(site.starts(job_id) for job_id in jobs), "they run")
    everybody = below(supervisor)
    supervisor.send_signal(number)
    assert supervisor.wait(PATIENCE) == 0
    until(lambda: not living(everybody), "nobody is left")
    assert {_state(site, job_id) for job_id in jobs} == {JobState.COMPLETED}
    assert {worker.state for worker in site.store.workers()} == {"stopped"}


def test_worker_stop_ends_a_fleet_with_its_supervisor(site: Site) -> None:
    supervisor = site.fleet(2)
    windlass = Path(sys.executable).with_name("windlass")
    subprocess.run(
        [windlass, "--db", site.url, "worker", "stop"], check=True, capture_output=True, timeout=PATIENCE
    )
    assert supervisor.wait(PATIENCE) == 0


def test_a_fleet_that_dies_at_once_again_and_again_is_given_up(site: Site, tmp_path: Path) -> None:
    (tmp_path / "doomed.py").write_text(
        "import os\nfrom windlass import Queue\nqueue = Queue()\n"
        "@queue.job\ndef noop() -> None: ...\n"
        "@queue.on_worker_start\ndef die() -> None: os._exit(9)\n"
    )
    supervisor = site.start("doomed:queue", "--count", "3", joining=0, folder=tmp_path)
    assert supervisor.wait(PATIENCE) == 1
    assert "supervisor.gives_up" in site.said()


def test_a_fleet_outlives_jobs_that_kill_one_worker_after_the_other(site: Site) -> None:
    supervisor = site.fleet(3)
    # Each takes two workers with it before it is a suspect: more than a fleet that cannot begin is given.
    deadly = site.enqueue(*(poison.draft() for _ in range(3)))
    until(lambda: all(_state(site, each) is JobState.DEAD for each in deadly), "they have done their worst")
    assert supervisor.poll() is None
    [job_id] = site.enqueue(work.draft(0))
    until(lambda: _state(site, job_id) is JobState.COMPLETED, "it works")


def test_the_health_address_fails_for_a_worker_that_is_alive_but_stands_still(site: Site) -> None:
    port = free_port()
    site.fleet(2, "--probe", str(port))
    until(lambda: answer(port)[0] == 200, "all is well")
    frozen = site.store.workers()[0].pid
    os.kill(frozen, signal.SIGSTOP)
    try:
        until(lambda: answer(port)[0] == 503, "the health address says so")
        assert "has said nothing" in answer(port)[1]
    finally:
        os.kill(frozen, signal.SIGCONT)
    until(lambda: answer(port)[0] == 200, "all is well again")


def test_files_that_change_start_the_workers_anew(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "crash" / "app.py", folder / "watched.py")
    supervisor = site.start("watched:queue", "--watch", folder=folder)
    [first] = [worker.pid for worker in site.store.workers()]
    watched = folder / "watched.py"
    watched.write_text(watched.read_text() + "\n# changed\n")
    until(lambda: {worker.pid for worker in site.store.workers()} - {first}, "a new worker joins")
    [job_id] = site.enqueue(work.draft(0))
    until(lambda: _state(site, job_id) is JobState.COMPLETED, "it works")
    # Half a line was saved: nothing is given up, the next change may fix it.
    whole = watched.read_text()
    watched.write_text(whole + "def half(:\n")
    until(lambda: "supervisor.waits_for_change" in site.said(), "it cannot be loaded")
    watched.write_text(whole)
    [job_id] = site.enqueue(work.draft(0))
    until(lambda: _state(site, job_id) is JobState.COMPLETED, "it works again")
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_worker_whose_threads_do_not_end_is_started_anew(site: Site, count: str) -> None:
    site.start("tests.crash.app:queue", "--count", count, joining=int(count))

    def leaks() -> bool:
        """There is always something more that hangs, for whoever has a slot left."""
        if not site.store.count(Filter(states=(JobState.PENDING,)), limit=1):
            site.enqueue(hang.draft())
        return "worker.leaks" in site.said()

    until(leaks, "the leak is seen")
    until(lambda: "worker.stopped" in site.said(), "it drains")
    [job_id] = site.enqueue(work.draft(0))
    until(lambda: _state(site, job_id) is JobState.COMPLETED, "it works again")
    until(lambda: site.said().count("worker.started") > int(count), "another one takes its place")
    assert "stopped" in {worker.state for worker in site.store.workers()}
    hung = site.store.find(Filter(types=("hang",), states=(JobState.DEAD,)), limit=100).jobs
    assert {job.error and job.error.reason for job in hung} == {Reason.TIMEOUT}


def test_one_interrupt_during_a_reload_is_a_normal_stop(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "crash" / "app.py", folder / "watched.py")
    supervisor = site.start("watched:queue", "--watch", folder=folder)
    [job_id] = site.enqueue(hold.draft(site.gate))
    until(lambda: site.starts(job_id), "the job runs")
    watched = folder / "watched.py"
    watched.write_text(watched.read_text() + "\n# changed\n")
    until(lambda: "worker.draining" in site.said(), "the worker drains, to be reloaded")
    supervisor.send_signal(signal.SIGINT)
    site.let_go()
    assert supervisor.wait(PATIENCE) == 0
    assert _state(site, job_id) is JobState.COMPLETED
    assert len(site.starts(job_id)) == 1


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_successor_works_while_the_old_worker_finishes_its_long_job(site: Site, count: str) -> None:
    process = site.start("tests.crash.app:queue", "--concurrency", "5", "--count", count, joining=int(count))
    long = site.enqueue(*(hold.draft(site.gate) for _ in range(int(count))))
    until(lambda: all(site.starts(each) for each in long), "the long jobs run")
    # Whoever has which: at least one worker gets more than it puts up with.
    site.enqueue(*(hang.draft() for _ in range(4 * int(count))))
    until(lambda: "worker.succeeded" in site.said(), "a successor takes over")
    [job_id] = site.enqueue(work.draft(0))
    until(lambda: _state(site, job_id) is JobState.COMPLETED, "a successor works")
    assert {_state(site, each) for each in long} == {JobState.PROCESSING}
    site.let_go()
    until(lambda: {_state(site, each) for each in long} == {JobState.COMPLETED}, "the long jobs finish")
    assert {len(site.starts(each)) for each in long} == {1}
    until(lambda: len(_working(site)) == int(count), "the old ones leave")
    [job_id] = site.enqueue(work.draft(0))
    until(lambda: _state(site, job_id) is JobState.COMPLETED, "the successors go on")
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert _working(site) == []


def test_a_signal_during_the_handover_ends_both_and_keeps_every_attempt(site: Site) -> None:
    process = site.start("tests.crash.app:queue", "--concurrency", "5")
    [long] = site.enqueue(hold.draft(site.gate))
    until(lambda: site.starts(long), "the long job runs")
    site.enqueue(*(hang.draft() for _ in range(4)))
    until(lambda: "worker.succeeded" in site.said(), "a successor takes over")
    [other] = site.enqueue(hold.draft(site.gate))
    until(lambda: site.starts(other), "the successor has a job as well")
    process.terminate()
    site.let_go()
    assert process.wait(PATIENCE) == 0
    assert {_state(site, each) for each in (long, other)} == {JobState.COMPLETED}
    assert _working(site) == []


def _working(site: Site) -> list[str]:
    return [worker.id for worker in site.store.workers() if worker.state in ("running", "draining")]


def _state(site: Site, job_id: str) -> JobState | None:
    job = site.store.get(job_id)
    return None if job is None else job.state


@on_both
def test_f43_a_worker_that_gets_two_seconds_loses_nothing(site: Site) -> None:
    victim = site.worker()
    jobs = site.enqueue(*(each.draft(site.gate) for each in (hold, hold_apart) for _ in range(3)))
    until(lambda: len([each for each in jobs if site.starts(each)]) >= 5, "they run")
    victim.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        victim.wait(2)
    victim.kill()
    victim.wait(PATIENCE)
    site.let_go()
    site.worker()
    until(lambda: all(_state(site, each) is JobState.COMPLETED for each in jobs), "all complete elsewhere")
    for job_id in jobs:
        job = site.store.get(job_id)
        assert job is not None
        assert {entry.error.reason for entry in job.history if entry.error} <= {
            Reason.WORKER_LOST,
            Reason.INTERRUPTED,
        }
