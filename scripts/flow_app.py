"""What do the workers of the flow's storms run? `WINDLASS_DATABASE_URL` names the store."""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history.record import from_environment
from windlass import Context, Queue, Retry

queue = Queue()
recorder = from_environment()
UP = Path(os.environ.get("FLOW_UP", "up"))
queue.limit("crm", concurrency=2)


@queue.job(concurrency=3, max_attempts=20)
async def few(ctx: Context) -> None:
    """At most three at once."""
    with recorder.run(ctx.id, ctx.attempt, note="few"):
        await asyncio.sleep(0.05)


@queue.job(rate="50/s", max_attempts=20)
async def often(ctx: Context) -> None:
    """At most fifty a second."""
    with recorder.run(ctx.id, ctx.attempt):
        pass


@queue.job(limit_key="crm", max_attempts=20)
async def contact(ctx: Context) -> None:
    """Shares two permits with deals."""
    with recorder.run(ctx.id, ctx.attempt, note="crm"):
        await asyncio.sleep(0.03)


@queue.job(limit_key="crm", max_attempts=20)
async def deal(ctx: Context) -> None:
    """Shares two permits with contacts."""
    with recorder.run(ctx.id, ctx.attempt, note="crm"):
        await asyncio.sleep(0.03)


@queue.job
async def free() -> None:
    """Nothing stands in its way."""


@queue.job
async def turn() -> None:
    """Keeps its slot for a moment."""
    await asyncio.sleep(0.01)


@queue.job(max_attempts=20)
async def sole(ctx: Context, name: str, seconds: float, request: str) -> None:
    """One of a name at a time; records for which request it runs."""
    with recorder.run(ctx.id, ctx.attempt, note=f"{name} {request}"):
        await asyncio.sleep(seconds)


@queue.job(max_attempts=20, retry=Retry(kind="fixed", base=1, jitter=0.5))
async def sync(ctx: Context) -> None:
    """Calls a dependency, which is up as long as a file is there."""
    with recorder.run(ctx.id, ctx.attempt):
        if not UP.exists():  # noqa: ASYNC240 - a moment
            raise ConnectionError("the dependency is down")
