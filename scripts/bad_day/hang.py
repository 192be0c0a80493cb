"""A worker that does not answer: a handler holds the GIL. And three cases in which nobody must be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path

from bad_day.stage import Scenario, Stage, StageBroken

APP = """
import re, time
from windlass import Queue, Retry

queue = Queue()
AT_ONCE = Retry(kind="fixed", base=0, jitter=0)

@queue.job(timeout="5s", max_attempts=3, retry=AT_ONCE)
def bomb() -> None:
    re.match(r"(a+)+$", "a" * 40 + "b")

@queue.job(timeout="5s", max_attempts=3, retry=AT_ONCE)
async def async_bomb() -> None:
    re.match(r"(a+)+$", "a" * 40 + "b")

@queue.job
def mail(number: int) -> int:
    return number

@queue.job(timeout="5m")
def spin(seconds: float) -> int:
    end, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turns += 1
    return turns

@queue.job(timeout="5m")
def rest(seconds: float) -> None:
    time.sleep(seconds)
"""

# A process of its own: starting the command line each second would say more about the machine.
MAILS = """
import sys, time
from app import mail
for number in range(int(sys.argv[1])):
    mail.enqueue(number=number)
    time.sleep(1)
"""

# So many that workers know the pace, and claim ahead.
WARM_UP = """
from app import queue, mail
queue.enqueue_many([mail.draft(number=number) for number in range(500)])
"""
TOGETHER = """
from app import queue, bomb, mail
drafts = [mail.draft(number=number) for number in range(500)]
for place in range(0, 500, 50):
    drafts.insert(place, bomb.draft())
queue.enqueue_many(drafts)
"""

HOLD = """
import sqlite3, sys, time
url = sys.argv[1]
if url.startswith("sqlite"):
    held = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
    held.execute("begin exclusive")
else:
    import psycopg
    held = psycopg.connect(url)
    held.execute("lock table windlass.workers, windlass.jobs in access exclusive mode")
print("holds", flush=True)
time.sleep(60)
held.rollback()
"""

LONGEST_WAIT = 20.0
MAILS_SENT = 90
WORKERS = 2
WARM = MAILS_TOGETHER = 500
BOMBS = 10
SPINS = 4


def gil(stage: Stage) -> None:
    """Two workers, a regex bomb, a mail each second."""
    stage.write("app.py", APP)
    _fleet(stage)
    mails = stage.start("-c", MAILS, str(MAILS_SENT), log="mails.log")
    time.sleep(2)
    stage.windlass("enqueue", "bomb")
    mails.wait(MAILS_SENT * 3)
    stage.until(lambda: stage.states("--type", "bomb").get("dead"), 60)
    sent = stage.jobs("--type", "mail")
    known = [each for job in sent if (each := _waited(job)) is not None]
    longest = max(known, default=-1.0)
    stage.promise(
        f"each of {MAILS_SENT} mails is sent, and none waits for longer than {LONGEST_WAIT:.0f} s",
        held=len(known) == MAILS_SENT and longest <= LONGEST_WAIT,
        seen=f"{len(known)} sent, the longest wait was {longest:.1f} s",
    )
    (job,) = stage.jobs("--type", "bomb")
    reasons = [_reason(each) for each in _history(stage, job["id"])]
    stage.promise(
        "the bomb hangs one worker, then runs into its timeout in a child",
        held=job["state"] == "dead" and reasons == ["worker_lost", "timeout", "timeout"],
        seen=f"{job['state']} after {reasons}",
    )
    _shows_where(stage, job["id"], "bomb")
    stage.promise(
        "the worker was killed once, and its log has the stacks",
        held=stage.log().count("worker.hung") == 1 and "in bomb" in stage.log(),
        seen=f"{stage.log().count('worker.hung')} killed",
    )


def gil_many(stage: Stage) -> None:
    """Ten bombs among 500 mails, of which workers have claimed many ahead."""
    stage.write("app.py", APP)
    _fleet(stage)
    stage.start("-c", WARM_UP, log="warm.log").wait(60)
    stage.until(lambda: stage.states("--type", "mail").get("completed", 0) >= WARM, 60)
    stage.start("-c", TOGETHER, log="together.log").wait(60)
    stage.until(lambda: stage.states("--type", "bomb").get("dead", 0) >= BOMBS, 180)
    stage.until(lambda: stage.states("--type", "mail").get("completed", 0) >= WARM + MAILS_TOGETHER, 60)
    known = [each for job in stage.jobs("--type", "mail") if (each := _waited(job)) is not None]
    longest = max(known, default=-1.0)
    stage.promise(
        f"mails wait no longer than {LONGEST_WAIT:.0f} s behind {BOMBS} bombs",
        held=len(known) == WARM + MAILS_TOGETHER and longest <= LONGEST_WAIT,
        seen=f"{len(known)} sent, the longest wait was {longest:.1f} s",
    )
    killed = stage.log().count("worker.hung")
    stage.promise("bombs hang each worker once at most", held=0 < killed <= WORKERS, seen=killed)
    bombs = stage.states("--type", "bomb")
    stage.promise("every bomb ends by its timeout", held=bombs == {"dead": BOMBS}, seen=bombs)


def gil_alone(stage: Stage) -> None:
    """A worker without a supervisor, killed by its guard; the next one knows what happened."""
    stage.write("app.py", APP)
    worker = stage.worker("app:queue")
    stage.windlass("enqueue", "async_bomb")
    code = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = worker.wait(40)
    stage.promise("a lone worker that hangs ends, with a code other than 0", held=bool(code), seen=code)
    if code is None:
        worker.kill()
    stage.worker("app:queue")
    stage.until(lambda: stage.states("--type", "async_bomb").get("dead"), 120)
    (job,) = stage.jobs("--type", "async_bomb")
    reasons = [_reason(each) for each in _history(stage, job["id"])]
    stage.promise(
        "the next worker runs the job in a child, where its timeout works",
        held=job["state"] == "dead" and reasons == ["worker_lost", "timeout", "timeout"],
        seen=f"{job['state']} after {reasons}",
    )
    shown = stage.windlass("show", job["id"]).stdout
    line = next(
        (text.strip() for text in shown.splitlines() if re.search(r"app\.py.* in async_bomb", text)), ""
    )
    stage.promise("`windlass show` tells where it hung", held=bool(line), seen=line)


def stopped(stage: Stage) -> None:
    """One worker of a supervisor and one that runs alone are stopped for 30 s."""
    stage.write("app.py", APP)
    alone = stage.worker("app:queue")
    workers = [alone.pid, *_fleet(stage)]
    for pid in workers[:2]:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(30)
    for pid in workers[:2]:
        os.kill(pid, signal.SIGCONT)
    time.sleep(3)
    _nobody_was_killed(stage, workers, "SIGSTOP for 30 s")


def starved(stage: Stage) -> None:
    """Workers with work to do share one core with processes that leave them nothing for 20 s."""
    stage.write("app.py", APP)
    core = min(os.sched_getaffinity(0))
    workers = _fleet(stage)
    for _ in range(SPINS):
        stage.windlass("enqueue", "spin", '{"seconds": 25}')
    stage.until(lambda: stage.states("--type", "spin").get("processing", 0) >= SPINS, 20)
    for pid in workers:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
    spinners = [stage.start("-c", "while True: pass") for _ in range(8)]
    for each in spinners:
        os.sched_setaffinity(each.pid, {core})
    time.sleep(20)
    for each in spinners:
        each.kill()
    _nobody_was_killed(stage, workers, "20 s without a core")


def away(stage: Stage) -> None:
    """The store does not answer for 60 s."""
    stage.write("app.py", APP)
    workers = _fleet(stage)
    stage.windlass("enqueue", "rest", '{"seconds": 20}')
    time.sleep(2)
    # Another process keeps everybody else out of the store.
    holder = stage.start("-c", HOLD, stage.url, log="holder.log")
    if not stage.until(lambda: "holds" in stage.log("holder.log"), 60):
        raise StageBroken(f"the store could not be held: {stage.log('holder.log')}")
    holder.wait(120)
    _nobody_was_killed(stage, workers, "a store that was away for 60 s")


SCENARIOS = [
    Scenario("4", "gil", "a regex holds the GIL of one of two workers while mails are sent", gil),
    Scenario("4", "gil-many", "ten regexes hold the GIL, mails wait behind them", gil_many),
    Scenario("4", "gil-alone", "a regex holds the GIL of the only worker", gil_alone),
    Scenario("4", "not-hung-stopped", "a worker is stopped for 30 s", stopped, ("sqlite",)),
    Scenario("4", "not-hung-starved", "workers get no core for 20 s", starved, ("sqlite",)),
    Scenario("4", "not-hung-store-away", "the store is away for 60 s", away),
]


def _fleet(stage: Stage) -> list[int]:
    """Start a supervisor; the processes of its workers."""
    before = stage.log().count("worker.started")
    supervisor = stage.worker("app:queue", "--count", str(WORKERS))
    stage.until(lambda: stage.log().count("worker.started") >= before + WORKERS, 60)
    return _children(supervisor.pid)


def _shows_where(stage: Stage, job: str, function: str) -> None:
    lines = stage.windlass("show", job).stdout.splitlines()
    found = next((line.strip() for line in lines if re.search(rf"app\.py.* in {function}$", line)), "")
    stage.promise("`windlass show` tells where it hung", held=bool(found), seen=found)


def _nobody_was_killed(stage: Stage, workers: list[int], what: str) -> None:
    """The same processes are there, and a new job is done."""
    stage.windlass("enqueue", "mail", '{"number": 1}')
    done = stage.until(lambda: stage.states("--type", "mail").get("completed"), 60)
    left = [pid for pid in workers if _lives(pid)]
    stage.promise(
        f"{what} kills no worker",
        held=left == workers and "worker.hung" not in stage.log(),
        seen=f"{len(left)} of {len(workers)} processes are still there, worker.hung was logged "
        f"{stage.log().count('worker.hung')} times",
    )
    stage.promise("a job that comes afterwards is done", held=done, seen=stage.states("--type", "mail"))


def _waited(job: dict[str, str]) -> float | None:
    if job["state"] != "completed":
        return None
    return (_moment(job["finished_at"]) - _moment(job["created_at"])).total_seconds()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _history(stage: Stage, job: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = stage.job(job)["history"]
    return found


def _reason(attempt: dict[str, object]) -> str:
    error = attempt.get("error")
    return str(error["reason"]) if isinstance(error, dict) else str(attempt.get("outcome"))


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
