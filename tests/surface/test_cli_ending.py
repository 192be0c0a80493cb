"""Is a worker's process gone in time, whatever its handlers, hooks and neighbours do?"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE, until

# Far above the worker's own three seconds, far below what the handlers would take.
IN_TIME = PATIENCE
APP = """
import asyncio, multiprocessing, os, pathlib, threading, time
from os import chdir
from windlass import Queue

queue = Queue()
fork = multiprocessing.get_context("fork")

def began():
    pathlib.Path("began").touch()

@queue.job
async def on_a_thread() -> None:
    began()
    await asyncio.to_thread(time.sleep, 1000)

@queue.job
async def swallows() -> None:
    began()
    while True:
        try:
            await asyncio.sleep(1000)
        except BaseException:
            pass

@queue.job
async def blocks() -> None:
    began()
    time.sleep(1000)

@queue.job
def thread_left_behind() -> None:
    threading.Thread(target=time.sleep, args=(1000,)).start()
    began()

@queue.job
def sleeps() -> None:
    began()
    time.sleep(1000)

@queue.job(max_attempts=1, timeout=0.2)
def hangs(number: int) -> None:
    time.sleep(1000)

@queue.job(priority=9)
def moves() -> None:
    chdir("/")

@queue.job(max_attempts=1)
def ends_a_child() -> int:
    child = fork.Process(target=time.sleep, args=(1000,))
    child.start()
    child.terminate()
    child.join(200)
    code = child.exitcode
    child.kill()
    return 999 if code is None else code

@queue.job(max_attempts=1)
def forks() -> int:
    if not (child := os.fork()):
        return 1
    for _ in range(20_000):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    return 999

@queue.job(max_attempts=1)
async def forks_async() -> int:
    return forks()
"""
HOOK = """
@queue.on_worker_stop
async def tidy() -> None:
    await asyncio.sleep(0)
"""
STUBBORN_HOOK = """
@queue.on_worker_stop
def tidy() -> None:
    time.sleep(1000)
"""


@pytest.fixture
def rough(windlass: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """An application that does all that a handler should not, for a worker with little time."""
    windlass.write("rough.py", APP)
    monkeypatch.setenv("WINDLASS_WORKER_GRACE", "200ms")
    monkeypatch.setenv("WINDLASS_WORKER_EXIT_AFTER", "3s")
    return windlass


@contextlib.contextmanager
def _working(windlass: Terminal, job_type: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that is in the middle of a job; ended by force if the test has not ended it."""
    windlass.ok("enqueue", job_type, "{}", "--app", "rough:queue")
    with windlass.start("worker", "start", "rough:queue") as process:
        try:
            until(Path("began").exists, "the job begins")
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("job_type", ["on_a_thread", "swallows", "blocks", "thread_left_behind", "sleeps"])
def test_what_handlers_leave_behind_does_not_hold_up_the_end(rough: Terminal, job_type: str) -> None:
    with _working(rough, job_type) as process:
        process.terminate()
        assert process.wait(IN_TIME) == 0


@contextlib.contextmanager
def _worn(windlass: Terminal, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A worker with more threads that do not end than it puts up with."""
    for number in range(4):
        windlass.ok("enqueue", "hangs", json.dumps({"number": number}), "--app", "rough:queue")
    command = command or ("worker", "start")
    with windlass.start(*command, "rough:queue", "--concurrency", "5") as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "worker.leaks" in line:
                    break
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_whose_threads_do_not_end(rough: Terminal, number: signal.Signals) -> None:
    with _worn(rough) as process:
        process.send_signal(number)
        assert process.wait(IN_TIME) == 0


def test_worker_stop_ends_a_worker_whose_threads_do_not_end(rough: Terminal) -> None:
    with _worn(rough) as process:
        rough.ok("worker", "stop", "--within", f"{IN_TIME:g}s")
        assert process.wait(IN_TIME) == 0


def test_a_worker_is_replaced_though_a_job_has_changed_the_folder(rough: Terminal) -> None:
    rough.ok("enqueue", "moves", "{}", "--app", "rough:queue")
    with _worn(rough) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "worker.started" in line:
                break
        process.terminate()
        assert process.wait(IN_TIME) == 0


def test_up_restarts_in_the_same_process_works_on_and_ends_by_a_signal(rough: Terminal) -> None:
    with _worn(rough, "up", "--no-server") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "worker.started" in line:
                break
        rough.ok("enqueue", "moves", "{}", "--app", "rough:queue", "--key", "after")
        until(lambda: json.loads(rough.ok("show", "after", "--json").out)["state"] == "completed")
        process.terminate()
        assert process.wait(IN_TIME) == 0


@pytest.mark.parametrize("hook", [HOOK, STUBBORN_HOOK])
def test_a_hook_does_not_hold_up_the_end(rough: Terminal, hook: str) -> None:
    rough.write("rough.py", APP + hook)
    with _working(rough, "blocks") as process:
        process.terminate()
        assert process.wait(IN_TIME) == 0


def test_a_store_that_others_have_locked_does_not_hold_up_the_end(rough: Terminal) -> None:
    with _working(rough, "sleeps") as process, _locked(rough):
        process.terminate()
        assert process.wait(IN_TIME) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_has_not_begun_ends_at_the_first_signal(
    rough: Terminal, number: signal.Signals
) -> None:
    rough.ok("enqueue", "sleeps", "{}", "--app", "rough:queue")
    with _locked(rough), rough.start("up", "rough:queue") as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "Ctrl-C stops it" in line:
                    break
            process.send_signal(number)
            assert process.wait(IN_TIME) == 0
        finally:
            process.kill()


def test_a_child_that_a_handler_forks_ends_by_signals_as_any_other(rough: Terminal) -> None:
    assert _result(rough, "ends_a_child") == -signal.SIGTERM


@pytest.mark.parametrize("job_type", ["forks", "forks_async"])
def test_a_child_that_returns_from_the_handler_is_gone(rough: Terminal, job_type: str) -> None:
    assert _result(rough, job_type) == 0


def test_what_the_application_registered_for_the_exit_is_still_called(rough: Terminal) -> None:
    rough.write("rough.py", APP + "import atexit\natexit.register(print, 'goodbye')\n")
    answer = rough.apart("worker", "start", "rough:queue", "--until-empty")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "goodbye")


def test_a_program_with_a_worker_inside_ends_although_a_coroutine_does_not(rough: Terminal) -> None:
    script = """
import time
from rough import pathlib, queue, swallows
with queue.worker(grace=0.1, exit_after=1.2):
    swallows.enqueue()
    while not pathlib.Path("began").exists():
        time.sleep(0.01)
"""
    path = rough.write("program.py", script)
    assert subprocess.run([sys.executable, str(path)], timeout=IN_TIME, check=False).returncode == 0


def _result(windlass: Terminal, job_type: str) -> object:
    windlass.ok("enqueue", job_type, "{}", "--app", "rough:queue", "--key", "k")
    assert windlass.apart("worker", "start", "rough:queue", "--until-empty").code == 0
    shown = windlass.ok("show", "k", "--json").out
    return json.loads(shown)["result"]


@contextlib.contextmanager
def _locked(windlass: Terminal) -> Iterator[None]:
    """Somebody else's write that does not end."""
    connection = sqlite3.connect(windlass.folder / "windlass.db", isolation_level=None)
    with contextlib.closing(connection):
        connection.execute("begin immediate")
        yield
