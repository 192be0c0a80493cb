"""What do the workers of shutdown_matrix.py, bad_company.py, churn.py and suspects.py run? All kinds of jobs.

`WINDLASS_DATABASE_URL` names the store.
"""

from __future__ import annotations

import _sqlite3
import asyncio
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history.record import Verb, from_environment
from windlass import Context, Queue, Retry
from windlass.worker import run
from windlass.worker.watch import TAG

if os.environ.get("FLEET_SUSPECTS") == "off":
    # To see what it would be like without: no job is ever a suspect.
    vars(run)["SUSPECT_AFTER"] = 10**9

queue = Queue(shell=True)  # noqa: S604 - commands are one of the kinds
AT_ONCE = Retry(kind="fixed", base=0, jitter=0)
recorder = from_environment()


# --- work of a given length, in each way of running ---


@queue.job(max_attempts=20, retry=AT_ONCE)
def on_thread(ctx: Context, seconds: float) -> None:
    """A `def`."""
    with recorder.run(ctx.id, ctx.attempt):
        time.sleep(seconds)


@queue.job(max_attempts=20, retry=AT_ONCE)
async def on_loop(ctx: Context, seconds: float) -> None:
    """An `async def`."""
    with recorder.run(ctx.id, ctx.attempt):
        await asyncio.sleep(seconds)


@queue.job(max_attempts=20, retry=AT_ONCE, executor="process")
def in_child(ctx: Context, seconds: float) -> None:
    """A process of its own."""
    with recorder.run(ctx.id, ctx.attempt):
        time.sleep(seconds)


@queue.job(max_attempts=20, retry=AT_ONCE, executor="process")
def in_tree(ctx: Context, seconds: float) -> None:
    """With a descendant that left for a session of its own."""
    with recorder.run(ctx.id, ctx.attempt):
        subprocess.run(["setsid", "sleep", str(seconds)], check=False)


# --- bad company ---


@queue.job(max_attempts=2, retry=AT_ONCE, executor="process")
def segfault() -> None:
    """Dies in C."""
    ctypes.string_at(0)


@queue.job(max_attempts=1, executor="process", memory="256MB")
def hoard() -> int:
    """Two gigabytes, page by page, so that they are really there."""
    return sum(bytearray(2 << 30)[:: os.sysconf("SC_PAGE_SIZE")])


@queue.job(max_attempts=1, executor="process", timeout=2)
def spin() -> None:
    """Never ends by itself."""
    while True:
        pass


@queue.job(max_attempts=1, executor="process", timeout=2)
def breed() -> None:
    """Grandchildren in sessions of their own, and a long sleep."""
    for _ in range(3):
        subprocess.Popen(["setsid", "sleep", "1000"])
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    time.sleep(1000)


@queue.job(max_attempts=1, timeout=20)
async def block() -> None:
    """Blocks the loop that it shares with others."""
    time.sleep(6)  # noqa: ASYNC251 - that is what is shown


@queue.job(max_attempts=1)
def good(number: int) -> int:
    """What must not notice any of that."""
    return number + 1


@queue.job(max_attempts=5, retry=AT_ONCE)
def poison(ctx: Context) -> None:
    """Takes the process that it runs in with it."""
    with recorder.run(ctx.id, ctx.attempt), recorder.fault(Verb.KILL, recorder.process):
        os.kill(os.getpid(), signal.SIGKILL)


# --- churn: a tenth of it fails, times out or crashes ---

_RAISES, _SLEEPS, _DIES = 0.05, 0.075, 0.1


@queue.job(max_attempts=1, timeout=0.05)
def churn_thread(ctx: Context, number: int) -> None:
    """One in twenty raises, one in forty does not end in time."""
    kind = random.Random(number).random()
    if kind < _RAISES:
        raise ValueError("as every twentieth")
    ctx.wait_cancelled(30 if kind < _SLEEPS else 0.001)


@queue.job(max_attempts=1, timeout=0.5, executor="process")
def churn_child(number: int) -> None:
    """The same, and one in forty takes its process with it."""
    kind = random.Random(number).random()
    if kind < _RAISES:
        raise ValueError("as every twentieth")
    if kind < _SLEEPS:
        time.sleep(30)
    elif kind < _DIES:
        os._exit(number % 7 + 1)


# --- what a worker's process says of its own memory, where it is asked to ---


class _Malloc(ctypes.Structure):
    """As the C library tells it."""

    _fields_ = tuple(
        (name, ctypes.c_size_t) for name in ("arena", "b", "c", "d", "mapped", "f", "g", "used", "free", "j")
    )


def memory_told() -> dict[str, float]:
    """Bytes in use and bytes kept for later by the C library, SQLite's part of them, and Python's blocks."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Malloc
    sqlite = ctypes.CDLL(_sqlite3.__file__)
    sqlite.sqlite3_memory_used.restype = ctypes.c_int64
    told = library.mallinfo2()
    return {
        "used": told.used + told.mapped,
        "free": told.free,
        "sqlite": sqlite.sqlite3_memory_used(),
        "blocks": sys.getallocatedblocks(),
    }


def _tell_memory(path: Path) -> None:
    life, fresh = uuid4().hex, path.with_suffix(".new")
    while True:
        fresh.write_text(json.dumps(memory_told() | {"life": life}), encoding="utf-8")
        fresh.replace(path)
        time.sleep(0.5)


if "FLEET_MEMORY" in os.environ and TAG not in os.environ:
    threading.Thread(target=_tell_memory, args=(Path(os.environ["FLEET_MEMORY"]),), daemon=True).start()


if __name__ == "__main__":
    sys.exit("this is what workers run; see the other scripts")
