"""What do the workers of kill_run.py run, and what do its producers enqueue?

`WINDLASS_DATABASE_URL` names the store, `KILL_RUN_LOG` the file in which each execution is written down.
"""

import asyncio
import os
import random
import time
from pathlib import Path

from windlass import Context, Queue, Retry, RetryableError
from windlass.errors import StoreError
from windlass.job import NewJob

MAX_ATTEMPTS = 5
# The share of jobs whose first attempt fails.
FAILING = 0.02
PAUSE = 0.2
FAST_RETRY = Retry(kind="fixed", base=0.2, jitter=0.1)

# The worker: a suspect runs in a child of it.
WORKER = os.getppid() if "WINDLASS_CHILD" in os.environ else os.getpid()

queue = Queue(shell=True)  # noqa: S604 - shell jobs are a part of the load


def note(event: str, job: str, attempt: int) -> None:
    """Write down, in one write that no death can tear, that an execution began, ended or failed."""
    line = f"{time.time():.6f} {event} {job} {attempt} {WORKER}\n"
    log = os.open(os.environ["KILL_RUN_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, line.encode())
    finally:
        os.close(log)


@queue.job(max_attempts=MAX_ATTEMPTS, retry=FAST_RETRY)
def work(ctx: Context, seconds: float, fail_first: bool = False) -> None:  # noqa: FBT001, FBT002 - a payload's field
    """Work on a thread, and fail the first time if asked to."""
    note("start", ctx.id, ctx.attempt)
    time.sleep(seconds)
    if fail_first and ctx.attempt == 1:
        note("fail", ctx.id, ctx.attempt)
        raise RetryableError("asked to fail")
    note("end", ctx.id, ctx.attempt)


@queue.job(max_attempts=MAX_ATTEMPTS, retry=FAST_RETRY)
async def work_async(ctx: Context, seconds: float) -> None:
    """Work on the worker's loop."""
    note("start", ctx.id, ctx.attempt)
    await asyncio.sleep(seconds)
    note("end", ctx.id, ctx.attempt)


def command(seconds: float) -> str:
    """The same as a shell job: its parent is the worker."""
    who = '"$(date +%s.%N)" {} "$WINDLASS_JOB_ID" "$WINDLASS_ATTEMPT" "$PPID"'
    line = f'printf "%s %s %s %s %s\\n" {who} >> "$KILL_RUN_LOG"'
    return "; ".join([line.format("start"), f"sleep {seconds:.3f}", line.format("end")])


# --- who produces -------------------------------------------------------------------------------


def produce(count: int, seed: int, accepted: Path) -> None:
    """Enqueue jobs one by one and in batches; an id is written down durably once it was answered."""
    chance = random.Random(seed)
    wait_for_the_store()
    with accepted.open("w") as file:
        while count > 0:
            size = min(count, chance.choice([1, 1, 1, 5, 20]))
            drafts = [draft(chance) for _ in range(size)]
            file.writelines(f"{name}\n" for name in accepted_ids(drafts))
            file.flush()
            os.fsync(file.fileno())
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


def accepted_ids(drafts: list[NewJob]) -> list[str]:
    """The ids of these jobs, once they are accepted; the same drafts sent again make no second job."""
    while True:
        try:
            return [handle.id for handle in queue.enqueue_many(drafts)]
        except StoreError as error:
            if not error.retryable:
                raise
            time.sleep(PAUSE)


def draft(chance: random.Random) -> NewJob:
    """A job of some kind and length: many short ones, some of seconds."""
    low, high = chance.choices([(0.003, 0.05), (0.1, 0.6), (1.0, 3.0)], [70, 25, 5])[0]
    seconds = round(chance.uniform(low, high), 3)
    kind = chance.choices(["thread", "loop", "shell"], [50, 45, 5])[0]
    if kind == "shell":
        return queue.draft("shell", {"command": command(seconds)}, max_attempts=MAX_ATTEMPTS)
    if kind == "loop":
        return work_async.draft(seconds)
    return work.draft(seconds, fail_first=chance.random() < FAILING)
