"""What do the tests run in child processes? Functions that a child can import."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from email.message import Message
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError

from windlass import Context, FatalError, Snooze
from windlass.job import NewJob


class Odd(Exception):
    """An exception that a type's rules may know."""

    def __init__(self, first: object, second: object) -> None:
        """Two arguments: such an exception cannot be rebuilt from its message."""
        super().__init__(f"{first} and {second}")


def add(a: int, b: int) -> int:
    return a + b


def pid() -> int:
    return os.getpid()


def keep(megabytes: int) -> int:
    """Memory that is never given back."""
    _kept.append(bytearray(b"x" * (megabytes * 2**20)))
    return os.getpid()


_kept: list[bytearray] = []


def talk(ctx: Context) -> None:
    sys.stdout.write("to stdout\n")
    os.write(2, b"to stderr\n")
    ctx.log.warning("from the context", extra={"step": 3})
    logging.getLogger("childjobs").warning("from a %s", "logger")


def tell(ctx: Context) -> dict[str, object]:
    return {
        "id": ctx.id,
        "attempt": ctx.attempt,
        "left": ctx.time_left(),
        "cancelled": ctx.cancelled,
        "pid": os.getpid(),
    }


async def tell_async(ctx: Context) -> dict[str, object]:
    await asyncio.sleep(0)
    return {"id": ctx.id, "pid": os.getpid()}


def odd() -> None:
    raise Odd("this", "that")


def odd_is_fatal(exception: BaseException) -> Literal["fatal"] | None:
    return "fatal" if isinstance(exception, Odd) else None


def answered(status: int) -> None:
    raise HTTPError("http://localhost/", status, "no", Message(), None)


def fatal() -> None:
    raise FatalError("never")


def snooze() -> None:
    raise Snooze(3600)


def unkeepable() -> object:
    return object()


def set_unkeepable(ctx: Context) -> None:
    with ctx.transaction():
        ctx.set_result(object())


def segfault() -> None:
    ctypes.string_at(0)


def leave(code: int) -> None:
    os._exit(code)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def allocate(megabytes: int) -> int:
    return len(bytearray(megabytes * 2**20))


def allocate_below(megabytes: int) -> None:
    """Two grandchildren, each below the limit, together above it."""
    program = f"import time; kept = b'x' * ({megabytes} * 2**20); time.sleep(60)"
    for each in [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]:
        each.wait()


def spin() -> None:
    while True:
        pass


def spin_below() -> None:
    subprocess.run([sys.executable, "-c", "while True: pass"], check=False)


def deaf() -> None:
    """Hears no signal, and is in no Python code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)  # noqa: TID251 - a handler may do as it likes


def tidy(path: str) -> None:
    """Leaves a word behind when it is broken off."""
    Path(path).write_text("began")
    try:
        time.sleep(1000)  # noqa: TID251 - a handler may do as it likes
    finally:
        Path(path).write_text("cleaned up")


async def tidy_async(path: str) -> None:
    Path(path).write_text("began")  # noqa: ASYNC240 - as it likes
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        Path(path).write_text("cleaned up")  # noqa: ASYNC240 - as it likes
        raise


def look(ctx: Context, path: str) -> None:
    """Sees for itself that it shall stop."""
    Path(path).write_text("began")
    ctx.wait_cancelled(1000)
    Path(path).write_text(f"saw it: {ctx.cancelled}")


def breed(path: str, *, crash: bool) -> None:
    """Grandchildren of every kind: in the group, in sessions of their own, orphaned."""
    sleepers = [
        subprocess.Popen(["sleep", "1000"]),
        subprocess.Popen(["sleep", "1000"], start_new_session=True),
    ]
    orphan = subprocess.run(["sh", "-c", _ORPHAN], check=True, capture_output=True, text=True).stdout
    numbers = [str(each.pid) for each in sleepers] + orphan.split()
    Path(path).write_text(" ".join(numbers))
    if crash:
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(1000)  # noqa: TID251 - a handler may do as it likes


_ORPHAN = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"


def fork_and_return() -> int:
    os.fork()
    return os.getpid()


def use_context(ctx: Context) -> list[object]:
    """All that a context can do from a process of its own."""
    ids = ctx.enqueue(NewJob(id=f"{ctx.id[:-4]}beef", type="pid", payload=b"{}"))
    with ctx.once("mail") as mail:
        first = mail.answer
    with ctx.once("mail") as mail:
        second = mail.answer
    before = ctx.time_left()
    return [ids, first, second, ctx.extend(before + 600) and ctx.time_left() > before + 500]


def come_far(ctx: Context, go: str) -> None:
    ctx.progress(3, of=4, message="nearly there")
    while not Path(go).exists() and not ctx.cancelled:
        ctx.wait_cancelled(0.01)


async def use_once_async(ctx: Context) -> list[str]:
    answers = []
    for _ in range(2):
        async with ctx.once("mail") as mail:
            answers.append(mail.answer)
    return answers


def versioned(to: str) -> str:
    return to


class Exits(Exception):
    """Reading it ends the program."""

    def __str__(self) -> str:
        raise SystemExit(1)


def raise_exits() -> None:
    raise Exits
