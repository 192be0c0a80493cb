"""Workers that are blocked, worn or told to end."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import Any

from bad_day.stage import Scenario, Stage, StageBroken

APP = """
import asyncio, os, time
from windlass import Queue

queue = Queue()


@queue.job(max_attempts=3)
async def quick() -> None:
    await asyncio.sleep(0)


@queue.job(max_attempts=1, timeout=600)
async def nap(until: str) -> None:
    while not os.path.exists(until):
        time.sleep(0.05)


@queue.job(max_attempts=1, timeout=3)
async def spin() -> None:
    while True:
        pass


@queue.job(max_attempts=1, timeout=3, priority=9)
async def cancels_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


@queue.job(max_attempts=1, timeout=1)
def hang() -> None:
    time.sleep(120)


@queue.job(max_attempts=1, timeout=2)
def late() -> None:
    time.sleep(16)


@queue.job(max_attempts=3, timeout=600)
def report(until: str) -> None:
    while not os.path.exists(until):
        time.sleep(0.05)


@queue.job(max_attempts=3)
def mail() -> None:
    pass


@queue.job(max_attempts=1)
def moves() -> None:
    os.chdir("/")
"""
_LONGEST_WAIT = 10.0
_WELL, _UNWELL = 200, 503
_numbers = itertools.count(1)
SHORT = {"WINDLASS_WORKER_GRACE": "3s", "WINDLASS_WORKER_EXIT_AFTER": "5s"}


def blocked_loop(stage: Stage) -> None:
    """`time.sleep` in an `async def`, 60 jobs behind it, and another worker that is idle."""
    stage.write("app.py", APP)
    port = _free_port()
    stage.worker("app:queue", "--probe", str(port), log="blocked.log")
    [nap] = _enqueue(stage, "nap", until=_gate(stage))
    stage.until(lambda: stage.job(nap)["state"] == "processing", 20)
    stage.worker("app:queue", log="idle.log")
    jobs = _enqueue(stage, *["quick"] * 60)
    done = stage.until(lambda: _all(stage, jobs, "completed"), 25)
    # A loop counts as blocked after a second.
    stage.until(lambda: _health(port)[0] == _UNWELL, 10)
    code, told = _health(port)
    stage.promise(
        "/health answers 503 and names the blocker", held=code == _UNWELL and "nap" in told, seen=told[:90]
    )
    waited = _longest_wait(stage, jobs)
    seen = f"{stage.states('--type', 'quick')}, the last claim after {waited:.1f} s"
    stage.promise("60 jobs do not wait for the blocker", held=done and waited < _LONGEST_WAIT, seen=seen)
    _open(stage)
    ended = stage.until(lambda: stage.job(nap)["state"] == "completed", 30)
    stage.promise("the blocker itself completes", held=ended, seen=stage.job(nap)["state"])
    stage.promise("no attempt was spent", held=_attempts(stage, jobs) == {1}, seen=_attempts(stage, jobs))
    well = stage.until(lambda: _health(port)[0] == _WELL, 10)
    stage.promise("/health is well afterwards", held=well, seen=_health(port)[0])


def stuck_loop(stage: Stage) -> None:
    """An `async def` that never returns: past its timeout a new process takes over."""
    stage.write("app.py", APP)
    worker = stage.worker("app:queue")
    [spin] = _enqueue(stage, "spin")
    stage.until(lambda: stage.job(spin)["state"] == "processing", 20)
    [report] = _enqueue(stage, "report", until=_gate(stage))
    jobs = _enqueue(stage, *["quick"] * 10)
    done = stage.until(lambda: _all(stage, jobs, "completed"), 30)
    stage.promise("jobs for the loop run again", held=done, seen=stage.states("--type", "quick"))
    waited = _longest_wait(stage, jobs)
    stage.promise(
        "none of them waits longer than 20 s", held=waited < 2 * _LONGEST_WAIT, seen=f"{waited:.1f} s"
    )
    error = stage.job(spin)["error"] or {}
    stage.promise("the blocker's attempt has timed out", held=error.get("reason") == "timeout", seen=error)
    _open(stage)
    finished = stage.until(lambda: stage.job(report)["state"] == "completed", 30)
    attempts = _attempts(stage, [report])
    stage.promise(
        "a job on a thread finished undisturbed",
        held=finished and attempts == {1},
        seen=f"{stage.job(report)['state']}, attempts {attempts}",
    )
    _promise_end(stage, worker, lambda: worker.send_signal(signal.SIGTERM), 40)


def cancelled_neighbours(stage: Stage) -> None:
    """A handler cancels every task of the loop, also those that have not begun."""
    stage.write("app.py", APP)
    _, *jobs = _enqueue(stage, "cancels_all", *["quick"] * 5)
    stage.worker("app:queue", "--concurrency", "6")
    done = stage.until(lambda: _all(stage, jobs, "completed"), 12)
    stage.promise("its neighbours complete", held=done, seen=stage.states("--type", "quick"))
    more = _enqueue(stage, *["quick"] * 6)
    again = stage.until(lambda: _all(stage, more, "completed"), 12)
    stage.promise("no slot is lost", held=again, seen=stage.states("--type", "quick"))


def late_threads(stage: Stage) -> None:
    """Four threads run on past their timeout beside a long job: mail is still sent, and the four end."""
    _late(stage, "late", "--concurrency", "5")


def endless_threads(stage: Stage) -> None:
    """The same with threads that never end: a successor takes over, and all end on SIGTERM."""
    worker = _late(stage, "hang", "--concurrency", "5")
    _promise_end(stage, worker, lambda: worker.send_signal(signal.SIGTERM), 40)


def endless_threads_supervised(stage: Stage) -> None:
    """The same for a worker that has a supervisor; one, so that no other can take the mail."""
    worker = _late(stage, "hang", "--concurrency", "5", "--watch")
    _promise_end(stage, worker, lambda: worker.send_signal(signal.SIGTERM), 40)


def term_with_held_slots(stage: Stage) -> None:
    """SIGTERM to a worker with four threads that never end."""
    worker = _worn(stage)
    _promise_end(stage, worker, lambda: worker.send_signal(signal.SIGTERM), 12)


def stop_with_held_slots(stage: Stage) -> None:
    """`worker stop` with four threads that never end."""
    worker = _worn(stage)
    told: list[Any] = []

    def stop() -> None:
        told.append(stage.windlass("worker", "stop", "--within", "12s"))

    _promise_end(stage, worker, stop, 2)
    stage.promise("worker stop exits 0", held=told[0].returncode == 0, seen=told[0].stdout + told[0].stderr)


def restart_after_chdir(stage: Stage) -> None:
    """A job has changed the process's folder, then the worker must be replaced."""
    stage.write("app.py", APP)
    worker = stage.worker("app:queue", "--concurrency", "5")
    [moved] = _enqueue(stage, "moves")
    stage.until(lambda: stage.job(moved)["state"] == "completed", 20)
    _enqueue(stage, *["hang"] * 5)
    stage.until(lambda: "worker.leaks" in stage.log(), 40)
    [mail] = _enqueue(stage, "mail")
    done = stage.until(lambda: stage.job(mail)["state"] == "completed", 25)
    stage.promise(
        "a new process takes over", held=done, seen=stage.log().splitlines()[-1][:200] if not done else "yes"
    )
    stage.promise("the process is there", held=worker.poll() is None, seen=worker.poll())


def watch_and_one_interrupt(stage: Stage) -> None:
    """--watch: a file changes, the worker drains to be reloaded, and then one Ctrl-C."""
    stage.write("app.py", APP)
    worker = stage.worker("app:queue", "--watch")
    [report] = _enqueue(stage, "report", until=_gate(stage))
    stage.until(lambda: stage.job(report)["state"] == "processing", 20)
    stage.write("app.py", APP + "# changed\n")
    stage.until(lambda: "worker.draining" in stage.log(), 20)
    worker.send_signal(signal.SIGINT)
    time.sleep(1)
    _promise_end(stage, worker, lambda: _open(stage), 40)
    job = stage.job(report)
    held = job["state"] == "completed" and _attempts(stage, [report]) == {1}
    stage.promise("the running job finished in peace", held=held, seen=f"{job['state']}, {job['attempts']}")
    stage.promise(
        "nobody was taken for dead", held="worker.dead" not in stage.log(), seen="worker.dead" in stage.log()
    )


def _late(stage: Stage, kind: str, *words: str) -> subprocess.Popen[bytes]:
    """Every slot is taken: by late threads and by a long job."""
    stage.write("app.py", APP)
    worker = stage.worker("app:queue", *words)
    reports = _enqueue(stage, "report", until=_gate(stage))
    stage.until(lambda: _all(stage, reports, "processing"), 20)
    _enqueue(stage, *[kind] * 4)
    stage.until(lambda: "worker.leaks" in stage.log(), 40)
    time.sleep(2)
    [mail] = _enqueue(stage, "mail")
    done = stage.until(lambda: stage.job(mail)["state"] == "completed", 25)
    waited = _longest_wait(stage, [mail])
    seen = f"{waited:.1f} s" if done else "waits for the long jobs"
    stage.promise("mail waits less than 10 s", held=done and waited < _LONGEST_WAIT, seen=seen)
    _open(stage)
    finished = stage.until(lambda: _all(stage, reports, "completed"), 60)
    attempts = _attempts(stage, reports)
    stage.promise(
        "the long jobs finish undisturbed", held=finished and attempts == {1}, seen=f"attempts {attempts}"
    )
    return worker


def _worn(stage: Stage) -> subprocess.Popen[bytes]:
    stage.write("app.py", APP)
    worker = stage.worker("app:queue", "--concurrency", "5", env=SHORT)
    [report] = _enqueue(stage, "report", until=_gate(stage))
    stage.until(lambda: stage.job(report)["state"] == "processing", 20)
    _enqueue(stage, *["hang"] * 4)
    stage.until(lambda: "worker.leaks" in stage.log(), 40)
    return worker


def _promise_end(
    stage: Stage, worker: subprocess.Popen[bytes], ask: Callable[[], object], seconds: float
) -> None:
    begun = time.monotonic()
    ask()
    ended = stage.until(lambda: worker.poll() is not None, seconds)
    stage.promise(
        "the process ends with code 0",
        held=ended and worker.returncode == 0,
        seen=f"{worker.poll()} after {time.monotonic() - begun:.1f} s",
    )
    left = stage.json("worker", "health")["workers"]
    stage.promise("no worker is left", held=not left, seen=[each["id"] for each in left])


def _gate(stage: Stage) -> str:
    """The file that long jobs wait for."""
    return str(stage.folder / "gate")


def _open(stage: Stage) -> None:
    """Let the long jobs end."""
    stage.write("gate", "")


def _enqueue(stage: Stage, *types: str, **payload: Any) -> list[str]:
    """Enqueue a job of each type, all at once; their keys."""
    keys = [f"{each}-{next(_numbers)}" for each in types]
    jobs = [{"type": each, "payload": payload, "id": key} for each, key in zip(types, keys, strict=True)]
    stage.write("jobs.ndjson", "".join(json.dumps(job) + "\n" for job in jobs))
    done = stage.windlass("enqueue", "--app", "app:queue", "--file", "jobs.ndjson")
    if done.returncode:
        raise StageBroken(done.stderr)
    return keys


def _found(stage: Stage, keys: list[str]) -> list[dict[str, Any]]:
    return [job for job in stage.jobs() if job["key"] in keys]


def _all(stage: Stage, keys: list[str], state: str) -> bool:
    return all(job["state"] == state for job in _found(stage, keys))


def _attempts(stage: Stage, keys: list[str]) -> set[int]:
    return {job["attempts"] for job in _found(stage, keys)}


def _longest_wait(stage: Stage, keys: list[str]) -> float:
    """Seconds from enqueue to start, as the store has them."""

    def at(job: dict[str, Any], name: str) -> datetime:
        return datetime.fromisoformat(job[name])

    found = [job for job in _found(stage, keys) if job["started_at"]]
    waits = [(at(job, "started_at") - at(job, "created_at")).total_seconds() for job in found]
    return max(waits) if len(waits) == len(keys) else math.inf


def _health(port: int) -> tuple[int, str]:
    with contextlib.suppress(OSError):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as told:
                return told.status, told.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
    return 0, "no answer"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


SCENARIOS = [
    Scenario("5", "blocked-loop", "an async def blocks its loop", blocked_loop),
    Scenario("5", "stuck-loop", "an async def blocks its loop for ever", stuck_loop),
    Scenario("6", "cancelled-neighbours", "a handler cancels all tasks", cancelled_neighbours),
    Scenario("7", "late-threads", "four threads end late", late_threads),
    Scenario("7", "endless-threads", "four threads never end, one process", endless_threads),
    Scenario("7", "endless-supervised", "four threads never end, supervised", endless_threads_supervised),
    Scenario("8", "term-held-slots", "SIGTERM with held slots", term_with_held_slots),
    Scenario("8", "stop-held-slots", "worker stop with held slots", stop_with_held_slots),
    Scenario("8", "chdir", "a worker is replaced after os.chdir", restart_after_chdir),
    Scenario("8", "watch-interrupt", "--watch: a reload, then one Ctrl-C", watch_and_one_interrupt),
]
