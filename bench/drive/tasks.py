"""What work do all peers do? Each takes one text, and each exists as a plain function and as a coroutine.

In a worker, the first call waits at a gate, so that a drain begins when every process has started and not
while one of them still imports its modules.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

FOLDER = "BENCH_FOLDER"
GATE, READY, MARKS = "gate", "ready", "marks"
WAIT_SECONDS = 0.02
CPU_SECONDS = 0.005
LONG_SECONDS = 15.0
NAMES = ("noop", "wait", "spin", "mark", "long")

_open = False


def noop(body: str) -> None:  # noqa: ARG001 - what a job of 200 bytes carries
    """Do nothing."""
    if not _open:
        _pass_gate()


def wait(body: str) -> None:
    """Wait as for an answer from elsewhere."""
    noop(body)
    time.sleep(WAIT_SECONDS)


def spin(body: str) -> None:
    """Use the processor; what other threads use is not counted."""
    noop(body)
    until = time.thread_time() + CPU_SECONDS
    while time.thread_time() < until:
        pass


def mark(body: str) -> None:
    """Tell when this began."""
    tell("mark", body)


def long(body: str) -> None:
    """Run for seconds, and tell when it began and ended."""
    tell("start", body)
    time.sleep(LONG_SECONDS)
    tell("end", body)


async def noop_async(body: str) -> None:
    """Do nothing."""
    noop(body)


async def wait_async(body: str) -> None:
    """Wait as for an answer from elsewhere."""
    noop(body)
    await asyncio.sleep(WAIT_SECONDS)


async def spin_async(body: str) -> None:
    """Use the processor, on the loop."""
    spin(body)


async def mark_async(body: str) -> None:
    """Tell when this began."""
    mark(body)


async def long_async(body: str) -> None:
    """Run for seconds, and tell when it began and ended."""
    tell("start", body)
    await asyncio.sleep(LONG_SECONDS)
    tell("end", body)


SYNC = {"noop": noop, "wait": wait, "spin": spin, "mark": mark, "long": long}
ASYNC = {
    "noop": noop_async,
    "wait": wait_async,
    "spin": spin_async,
    "mark": mark_async,
    "long": long_async,
}


def tell(what: str, body: str) -> None:
    """Say something to the driver, with the time on the clock that all processes share."""
    message = f"{what} {body} {time.monotonic_ns()} {os.getpid()}\n"
    with (_folder() / MARKS).open("wb", buffering=0) as out:
        out.write(message.encode())


def _pass_gate() -> None:
    global _open  # noqa: PLW0603 - once a process
    gate = _folder() / GATE
    if not gate.exists():
        (_folder() / f"{READY}-{os.getpid()}").touch()
        while not gate.exists():
            time.sleep(0.001)
    _open = True


def _folder() -> Path:
    return Path(os.environ[FOLDER])
