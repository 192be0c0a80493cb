"""What do the workers of the flow's storms run? `WINDLASS_DATABASE_URL` names the store."""

import asyncio
import os
import time
from pathlib import Path

from windlass import Queue, Retry

queue = Queue()
UP = Path(os.environ.get("FLOW_UP", "up"))
queue.limit("crm", concurrency=2)


@queue.job(concurrency=3, max_attempts=20)
async def few() -> None:
    """At most three at once."""
    await asyncio.sleep(0.05)


@queue.job(rate="50/s", max_attempts=20)
async def often() -> None:
    """At most fifty a second."""


@queue.job(limit_key="crm", max_attempts=20)
async def contact() -> None:
    """Shares two permits with deals."""
    await asyncio.sleep(0.03)


@queue.job(limit_key="crm", max_attempts=20)
async def deal() -> None:
    """Shares two permits with contacts."""
    await asyncio.sleep(0.03)


@queue.job
async def free() -> None:
    """Nothing stands in its way."""


@queue.job
async def turn() -> None:
    """Keeps its slot for a moment."""
    await asyncio.sleep(0.01)


@queue.job(max_attempts=20)
async def sole(name: str, seconds: float, request: str) -> None:
    """One of a name at a time; writes down when it runs, and for which request."""
    begun = time.time()
    await asyncio.sleep(seconds)
    _note(f"{name} {request} {begun:.6f} {time.time():.6f}")


@queue.job(max_attempts=20, retry=Retry(kind="fixed", base=1, jitter=0.5))
async def sync() -> None:
    """Calls a dependency, which is up as long as a file is there."""
    _note(f"{time.time():.6f} {os.getpid()}")
    if not UP.exists():  # noqa: ASYNC240 - a moment
        raise ConnectionError("the dependency is down")


def _note(line: str) -> None:
    """One write for each line, so that lines of several processes never mix."""
    log = os.open(os.environ["FLOW_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, f"{line}\n".encode())
    finally:
        os.close(log)
