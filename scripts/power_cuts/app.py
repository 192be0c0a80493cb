"""The producer and the worker that are recorded.

Both write into `marks` what they are about to do and what they were answered. The recorder keeps these lines
in one order with the writes to the store. Some end as if killed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from power_cuts.record import BACKUP, SWAPS
from power_cuts.verdict import CHILD
from windlass import Context, FatalError, Queue, Retry, RetryableError, connect
from windlass.job import JobState, Lease
from windlass.outcome import Cancelled, Dead, Done
from windlass.store.engine import Claimed, Settlement, Want
from windlass.store.sqlite import beside, connection, writer
from windlass.store.sqlite.store import SqliteStore

THREADS = 4
# A log of this size gives many checkpoints within a short recording. It is 4 MiB by default.
LOG_BYTES = 512 * 1024
LONGEST_WAIT, PAUSE = 200, 0.05
ENDINGS = ((Done, "completed"), (Dead, "dead"), (Cancelled, "cancelled"))

folder = os.environ["POWER_CUTS_FOLDER"]
queue = Queue(f"sqlite:///{folder}/jobs.db")
marks = os.open(f"{folder}/marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
FAST = Retry(kind="fixed", base=0, jitter=0)
# This process dies when it has written its last mark, if it is to die.
left: Iterator[int] = itertools.repeat(1)


def mark(event: str, *values: object) -> None:
    """Add a line to the common order."""
    os.write(marks, json.dumps([event, *values]).encode())
    if not next(left, 0):
        die()


def die() -> None:
    """End this process as if killed, between two calls of any of its threads."""
    os.write(marks, b"die")


@queue.job(retry=FAST)
def plain(ctx: Context, n: int, text: str) -> int:  # noqa: ARG001 - a field of the payload
    """A job that only ends."""
    mark("runs", ctx.id)
    return len(text)


@queue.job(retry=FAST, max_attempts=5)
def pay(ctx: Context, n: int, text: str) -> None:  # noqa: ARG001 - as above
    """A job whose own row commits with its completion."""
    mark("runs", ctx.id)
    with ctx.transaction() as own:
        own.execute("create table if not exists payments (job text, text text)")
        own.execute("insert into payments values (?, ?)", (ctx.id, text))
    mark("ended", ctx.id, "completed")


@queue.job(retry=FAST, max_attempts=5)
def fail(ctx: Context, n: int, text: str) -> None:
    """A job that fails at first; every second one for good."""
    mark("runs", ctx.id)
    raise FatalError(text) if n % 2 else RetryableError(text) if ctx.attempt == 1 else FatalError(text)


@queue.job(retry=FAST)
def split(ctx: Context, n: int, text: str) -> None:
    """A job that enqueues another one with its completion."""
    mark("runs", ctx.id)
    mark("sends", [CHILD + n])
    ctx.enqueue(plain.draft(CHILD + n, text))


def produce(chance: random.Random, numbers: Sequence[int]) -> None:
    """Enqueue jobs alone and in batches; cancel some."""
    left = list(numbers)
    while left:
        batch = [left.pop() for _ in range(min(len(left), chance.choice([1, 1, 1, 1, 6])))]
        text = "x" * chance.choice([10, 300, 9_000])
        kind: Any = chance.choice([plain, plain, pay, fail, split])
        mark("sends", batch)
        if len(batch) > 1:
            handles = queue.enqueue_many([kind.draft(n, text) for n in batch])
            mark("accepted", *([n, handle.id] for n, handle in zip(batch, handles, strict=True)))
        elif chance.random() < 0.2:  # noqa: PLR2004 - every fifth
            handle = plain.options(delay="1h", key=f"key-{batch[0]}").enqueue(batch[0], text)
            mark("accepted", [batch[0], handle.id])
            if queue.cancel(handle.id).done:
                mark("ended", handle.id, "cancelled")
        else:
            mark("accepted", [batch[0], kind.enqueue(batch[0], text).id])


def record_worker() -> None:
    """Mark each claim and each settle as soon as the store has answered."""
    claim, settle = SqliteStore.claim, SqliteStore.settle

    def marked_claim(self: SqliteStore, want: Want) -> Claimed:
        claimed = claim(self, want)
        if claimed.leases:
            mark("claimed", *([lease.job.id, lease.job.attempts] for lease in claimed.leases))
        return claimed

    def marked_settle(self: SqliteStore, settlements: Sequence[Settlement]) -> list[Lease]:
        lost = settle(self, settlements)
        gone = {lease.token for lease in lost}
        for each in settlements:
            for kind, state in ENDINGS:
                if isinstance(each.outcome, kind) and each.lease.token not in gone:
                    mark("ended", each.lease.job.id, state)
        return lost

    SqliteStore.claim = marked_claim  # type: ignore[method-assign]
    SqliteStore.settle = marked_settle  # type: ignore[method-assign]


def is_busy() -> bool:
    """Whether a job waits or runs."""
    states = {each.state for each in queue.store.counts().counts}
    return not states.isdisjoint((JobState.PENDING, JobState.PROCESSING))


def work() -> None:
    """Run jobs until the producer has ended and nothing is left."""
    record_worker()
    with queue.worker(threads=THREADS):
        print("ready", flush=True)
        sys.stdin.read()
        for _ in range(LONGEST_WAIT):
            if not is_busy():
                break
            time.sleep(PAUSE)


def swap(how: str) -> None:
    """Put the backup in the place of the store, by our own command or by hand."""
    mark("swaps")
    if how == "restore":
        connect.restore(queue.url, f"{folder}/{BACKUP}")
    else:
        Path(folder, BACKUP).rename(Path(folder, "jobs.db"))
        beside.sync_folder(f"{folder}/jobs.db")
    mark("swapped")


def configure(checkpoints: str, synchronous: str) -> None:
    """Choose who empties the log, and plant a fault: commits that do not wait for the disk."""
    pragmas = vars(connection)["_PRAGMAS"]
    assert vars(writer)["_LARGE_LOG"] > LOG_BYTES, "the log's size has another name by now"
    assert {"synchronous = full", "wal_autocheckpoint = 0"}.issubset(pragmas), pragmas
    vars(writer)["_LARGE_LOG"] = LOG_BYTES
    values = {"synchronous = full": f"synchronous = {synchronous}"}
    if checkpoints == "sqlite":
        values["wal_autocheckpoint = 0"] = f"wal_autocheckpoint = {LOG_BYTES // 4096}"
        vars(writer)["Checkpointer"].is_due = lambda _: False
    vars(connection)["_PRAGMAS"] = tuple(values.get(each, each) for each in pragmas)


def main() -> None:
    """Read the command line, and be a producer or a worker."""
    global left  # noqa: PLW0603 - read by all threads
    role, life, count, end, checkpoints, synchronous = sys.argv[1:]
    configure(checkpoints, synchronous)
    if end == "die":
        left = iter([1] * random.Random(life + role).randrange(1, 2 * int(count)))
    numbers = range(int(life) * int(count), (int(life) + 1) * int(count))
    threads = [
        threading.Thread(target=produce, args=(random.Random(f"{life} {n}"), numbers[n::THREADS]))
        for n in range(THREADS)
    ]
    if end in SWAPS:
        swap(end)
    elif role == "worker":
        work()
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if end == "close":
            queue.store.backup(f"{folder}/{BACKUP}")
            mark("saved", BACKUP)
    queue.close()


if __name__ == "__main__":
    main()
