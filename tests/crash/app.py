"""What do the workers of the crash tests run?

`WINDLASS_DATABASE_URL` names the store, `CRASH_LOG` the file in which executions are written down.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from windlass import Context, Queue, Retry

# A test that only makes drafts with these functions opens no file.
queue = Queue(os.environ.get("WINDLASS_DATABASE_URL", "sqlite:///:memory:"))
AT_ONCE = Retry(kind="fixed", base=0, jitter=0)


def note(ctx: Context, event: str) -> None:
    """Write an event down in one write that no death can tear."""
    log = os.open(os.environ["CRASH_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, f"{event} {ctx.id} {ctx.attempt} {os.getpid()}\n".encode())
    finally:
        os.close(log)


@queue.job(max_attempts=5, retry=AT_ONCE)
def work(ctx: Context, seconds: float) -> str:
    note(ctx, "start")
    time.sleep(seconds)
    note(ctx, "end")
    return f"attempt {ctx.attempt}"


@queue.job(max_attempts=5, retry=AT_ONCE)
async def work_async(ctx: Context, seconds: float) -> str:
    note(ctx, "start")
    await asyncio.sleep(seconds)
    note(ctx, "end")
    return f"attempt {ctx.attempt}"


@queue.job(max_attempts=3, retry=AT_ONCE, timeout="3s")
def bomb() -> None:
    """Holds the GIL for as long as nobody kills its process."""
    re.match(r"(a+)+$", "a" * 50 + "b")


@queue.job(max_attempts=3, retry=AT_ONCE, timeout="3s")
async def bomb_async() -> None:
    re.match(r"(a+)+$", "a" * 50 + "b")


@queue.job(max_attempts=5, retry=AT_ONCE)
def hold(ctx: Context, until: str) -> str:
    """Runs until the test makes that file, however long the test takes for what it does meanwhile."""
    return _held(ctx, until)


@queue.job(max_attempts=5, retry=AT_ONCE, executor="process")
def hold_apart(ctx: Context, until: str) -> str:
    return _held(ctx, until)


def _held(ctx: Context, until: str) -> str:
    note(ctx, "start")
    while not Path(until).exists():
        time.sleep(0.02)
    note(ctx, "end")
    return f"attempt {ctx.attempt}"


@queue.job(max_attempts=3, retry=AT_ONCE)
def poison(ctx: Context) -> None:
    """A job that takes its worker with it, every time."""
    note(ctx, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@queue.job(max_attempts=3, retry=AT_ONCE)
def send(ctx: Context) -> str:
    """An effect that nothing undoes, and after it, the first time, a moment in which the worker may die."""
    note(ctx, "start")
    with ctx.once("mail") as mail:
        if mail.answer == "new":
            note(ctx, "sent")
    if ctx.attempt == 1:
        note(ctx, "waits")
        time.sleep(1000)
    return mail.answer


@queue.job(max_attempts=5, retry=AT_ONCE, executor="process")
def work_apart(ctx: Context, seconds: float) -> str:
    note(ctx, "start")
    time.sleep(seconds)
    note(ctx, "end")
    return f"attempt {ctx.attempt}"


@queue.job(max_attempts=1, executor="process")
def breed(ctx: Context, seconds: float) -> None:
    """Descendants in sessions of their own, which must not outlive anybody."""
    for _ in range(2):
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        note(ctx, f"bred:{child.pid}")
    note(ctx, "start")
    time.sleep(seconds)


@queue.job(max_attempts=1, timeout=0.2)
def hang(ctx: Context) -> None:
    """A thread that no exception reaches: it waits in C."""
    note(ctx, "start")
    time.sleep(1000)
