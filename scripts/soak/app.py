"""What do the workers of a soak run? Thirty types that record their executions and do little else.

`WINDLASS_DATABASE_URL` names the store.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from soak.plan import TYPES
from tests.history.record import from_environment
from windlass import Context, Queue, Retry, RetryableError

FAST_RETRY = Retry(kind="fixed", base=0.2, jitter=0.1)
MAX_ATTEMPTS = 8
# Every 200th job fails the first time.
FAILING = 200
# Every 100th takes a while: kills find something to cut off.
LONG = 100
LONG_SECONDS = 0.5
NAMES = tuple(f"team{number % 6}.task{number:02}" for number in range(TYPES))

queue = Queue()
recorder = from_environment()


def _on_thread(ctx: Context, n: int) -> None:
    """Nothing, on a thread."""
    with recorder.run(ctx.id, ctx.attempt):
        if n % LONG == 1:
            time.sleep(LONG_SECONDS)
        _fail_sometimes(ctx, n)


async def _on_loop(ctx: Context, n: int) -> None:
    """Nothing, on the worker's loop."""
    with recorder.run(ctx.id, ctx.attempt):
        if n % LONG == 1:
            await asyncio.sleep(LONG_SECONDS)
        _fail_sometimes(ctx, n)


def _fail_sometimes(ctx: Context, n: int) -> None:
    if n % FAILING == 0 and ctx.attempt == 1:
        raise RetryableError("asked to fail")


JOBS = [
    queue.job(name=name, max_attempts=MAX_ATTEMPTS, retry=FAST_RETRY)(_on_loop if number % 2 else _on_thread)
    for number, name in enumerate(NAMES)
]
