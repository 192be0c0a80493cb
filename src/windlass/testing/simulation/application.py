"""The application that every simulated process imports, and what its handlers do."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.context import Context
from windlass.errors import FatalError, Snooze
from windlass.queue import Queue

if TYPE_CHECKING:
    from windlass.testing.simulation.process import Process

TYPES = ("plain", "limited", "flaky")
TICK = "tick"
LIMIT = 2
_EVERY = timedelta(seconds=30)
# What a handler does, and how often of a hundred.
_DEEDS = {"return": 60, "fail": 20, "give up": 5, "snooze": 5, "enqueue": 5, "transact": 10}
_FLAKY = {"return": 30, "fail": 70}


def register(process: Process) -> None:
    """What a process of its release knows: both releases run the same types, at different times."""
    queue = process.queue

    def handle(ctx: Context, number: int) -> int:
        process.world.note_start(process, ctx)
        return _act(ctx, queue, number, calm=process.world.calm)

    def tick(ctx: Context) -> None:
        handle(ctx, 0)

    for name in TYPES:
        concurrency = LIMIT if name == "limited" else None
        queue.job(name=name, max_attempts=3, concurrency=concurrency)(handle)  # type: ignore[arg-type]
    queue.job(name=TICK, every=process.release * _EVERY, max_attempts=2)(tick)


def _act(ctx: Context, queue: Queue, number: int, *, calm: bool) -> int:
    deeds = {"return": 1} if calm else _FLAKY if ctx.type == "flaky" else _DEEDS
    [deed] = random.choices(list(deeds), list(deeds.values()))
    if deed == "fail":
        raise ValueError("bad luck")
    if deed == "give up":
        raise FatalError("hopeless")
    if deed == "snooze":
        raise Snooze(timedelta(seconds=random.choice((1, 20))))
    if deed == "enqueue":
        ctx.enqueue(queue.draft("plain", {"number": number + 1000}))
    if deed == "transact":
        with ctx.transaction() as connection:
            connection.execute("insert into effects values (?)", (ctx.id,))
    return number
