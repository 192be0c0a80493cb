"""What do the workers of kill_run.py run, and what do its producers enqueue?

`WINDLASS_DATABASE_URL` names the store.
"""

import asyncio
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history.record import Verb, from_environment, shell_command
from windlass import Context, Queue, Retry, RetryableError
from windlass.errors import StoreError
from windlass.job import NewJob

MAX_ATTEMPTS = 5
# The share of jobs whose first attempt fails.
FAILING = 0.02
PAUSE = 0.2
FAST_RETRY = Retry(kind="fixed", base=0.2, jitter=0.1)

queue = Queue(shell=True)  # noqa: S604 - shell jobs are a part of the load
recorder = from_environment()


@queue.job(max_attempts=MAX_ATTEMPTS, retry=FAST_RETRY)
def work(ctx: Context, seconds: float, fail_first: bool = False) -> None:  # noqa: FBT001, FBT002 - a payload's field
    """Work on a thread, and fail the first time if asked to."""
    with recorder.run(ctx.id, ctx.attempt):
        time.sleep(seconds)
        if fail_first and ctx.attempt == 1:
            raise RetryableError("asked to fail")


@queue.job(max_attempts=MAX_ATTEMPTS, retry=FAST_RETRY)
async def work_async(ctx: Context, seconds: float) -> None:
    """Work on the worker's loop."""
    with recorder.run(ctx.id, ctx.attempt):
        await asyncio.sleep(seconds)


# --- who produces -------------------------------------------------------------------------------


def produce(count: int, seed: int) -> None:
    """Enqueue jobs one by one and in batches."""
    chance = random.Random(seed)
    wait_for_the_store()
    while count > 0:
        size = min(count, chance.choice([1, 1, 1, 5, 20]))
        enqueue([draft(chance) for _ in range(size)])
        count -= size


def wait_for_the_store() -> None:
    """Come again until the store can be opened: a producer may begin while its server is away."""
    while True:
        try:
            queue.store.now()
        except StoreError as error:
            if not error.retryable:
                raise
            time.sleep(PAUSE)
        else:
            return


def enqueue(drafts: list[NewJob]) -> None:
    """Send jobs until they are accepted; the same drafts sent again make no second job."""
    while True:
        try:
            with recorder.call(Verb.ENQUEUE, *(each.id for each in drafts), refused=()) as answer:
                answer.ids = [handle.id for handle in queue.enqueue_many(drafts)]
        except StoreError as error:
            if not error.retryable:
                raise
            time.sleep(PAUSE)
        else:
            return


def draft(chance: random.Random) -> NewJob:
    """A job of some kind and length: many short ones, some of seconds."""
    low, high = chance.choices([(0.003, 0.05), (0.1, 0.6), (1.0, 3.0)], [70, 25, 5])[0]
    seconds = round(chance.uniform(low, high), 3)
    kind = chance.choices(["thread", "loop", "shell"], [50, 45, 5])[0]
    if kind == "shell":
        return queue.draft(
            "shell", {"command": shell_command(f"sleep {seconds:.3f}")}, max_attempts=MAX_ATTEMPTS
        )
    if kind == "loop":
        return work_async.draft(seconds)
    return work.draft(seconds, fail_first=chance.random() < FAILING)
