"""What do the workers of the crash tests run?

`WINDLASS_DATABASE_URL` names the store.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

from tests.history.record import Verb, from_environment
from windlass import Context, Queue, Retry

# A test that only makes drafts with these functions opens no file.
queue = Queue(os.environ.get("WINDLASS_DATABASE_URL", "sqlite:///:memory:"))
AT_ONCE = Retry(kind="fixed", base=0, jitter=0)
recorder = from_environment()


def note(ctx: Context, event: str) -> None:
    """Record something that happens at once."""
    with recorder.call(event, ctx.id, attempt=ctx.attempt, note=str(os.getpid())):
        pass


def running(ctx: Context) -> AbstractContextManager[None]:
    """Record an execution."""
    return recorder.run(ctx.id, ctx.attempt, note=str(os.getpid()))


@queue.job(max_attempts=5, retry=AT_ONCE)
def work(ctx: Context, seconds: float) -> str:
    with running(ctx):
        time.sleep(seconds)
    return f"attempt {ctx.attempt}"


@queue.job(max_attempts=5, retry=AT_ONCE)
async def work_async(ctx: Context, seconds: float) -> str:
    with running(ctx):
        await asyncio.sleep(seconds)
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
    with running(ctx):
        while not Path(until).exists():
            time.sleep(0.02)
    return f"attempt {ctx.attempt}"


@queue.job(max_attempts=3, retry=AT_ONCE)
def poison(ctx: Context) -> None:
    """A job that takes its worker with it, every time."""
    with running(ctx), recorder.fault(Verb.KILL, recorder.process):
        os.kill(os.getpid(), signal.SIGKILL)


@queue.job(max_attempts=3, retry=AT_ONCE)
def send(ctx: Context) -> str:
    """An effect that nothing undoes, and after it, the first time, a moment in which the worker may die."""
    with running(ctx):
        with ctx.once("mail") as mail:
            if mail.answer == "new":
                note(ctx, "sent")
        if ctx.attempt == 1:
            note(ctx, "waits")
            time.sleep(1000)
        return mail.answer


@queue.job(max_attempts=5, retry=AT_ONCE, executor="process")
def work_apart(ctx: Context, seconds: float) -> str:
    with running(ctx):
        time.sleep(seconds)
    return f"attempt {ctx.attempt}"


@queue.job(max_attempts=1, executor="process")
def breed(ctx: Context, seconds: float) -> None:
    """Descendants in sessions of their own, which must not outlive anybody."""
    for _ in range(2):
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        note(ctx, f"bred:{child.pid}")
    with running(ctx):
        time.sleep(seconds)


@queue.job(max_attempts=1, timeout=0.2)
def hang(ctx: Context) -> None:
    """A thread that no exception reaches: it waits in C."""
    with running(ctx):
        time.sleep(1000)
