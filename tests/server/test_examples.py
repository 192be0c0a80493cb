"""Do the workers in other languages work, also when they are killed?"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import House
from tests.waiting import PATIENCE
from windlass import JobState

HERE = Path(__file__).parents[2] / "examples/http"
WORKERS = {"sh": ("sh", str(HERE / "worker.sh")), "js": ("node", str(HERE / "worker.mjs"))}


@pytest.fixture(params=WORKERS)
def command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    command = WORKERS[request.param]
    for program in (command[0], "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here: apt-get install {program}")
    return command


@contextlib.contextmanager
def started(command: tuple[str, ...], house: House, name: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"WINDLASS_URL": house.url, "WORKER_NAME": name}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        # The whole group: a killed shell leaves its curl behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def greet(house: House) -> None:
    @house.queue.job(max_attempts=5)
    def greet(name: str) -> str:
        return f"hello, {name}"

    house.queue.publish()


def test_a_worker_in_another_language_runs_jobs_and_stops_when_told(
    house: House, command: tuple[str, ...]
) -> None:
    greet(house)
    good = [house.queue.enqueue("greet", {"name": f"n{number}"}) for number in range(5)]
    bad = house.queue.enqueue("greet", {"name": ""})
    with started(command, house, "w") as process:
        assert [job.result(PATIENCE) for job in good] == [f"hello, n{number}" for number in range(5)]
        assert bad.wait(PATIENCE).state is JobState.DEAD
        process.terminate()
        process.wait(PATIENCE)
    [row] = [worker for worker in house.queue.store.workers() if worker.id.startswith("~w~")]
    assert row.state == "stopped"


@pytest.mark.slow
def test_jobs_of_a_killed_worker_run_elsewhere(house: House, command: tuple[str, ...]) -> None:
    greet(house)
    jobs = house.queue.enqueue_many(house.queue.draft("greet", {"name": f"n{n}"}) for n in range(40))
    some = threading.Event()
    with started(command, house, "first"):
        while not any(job.state is JobState.COMPLETED for job in jobs[:10]):
            some.wait(0.05)
    # Killed by then. What it held is taken back by the server, which is the only one of ours here.
    with started(command, house, "second"):
        assert {job.wait(PATIENCE).state for job in jobs} == {JobState.COMPLETED}
    assert {job.result(PATIENCE) for job in jobs} == {f"hello, n{n}" for n in range(40)}
