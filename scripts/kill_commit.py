#!/usr/bin/env python3
"""Is there ever a handler's row without its job's completion, or the reverse, when somebody is killed?

Each round enqueues one job and starts a worker whose handler writes a row in `ctx.transaction()`, on a thread
or, with `--process`, in a child; between that write and the commit, or just after, the worker is killed with
SIGKILL, or every second time the child. Both are there, or neither. At the end a worker without a killer
finishes what is left: one row a job.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from windlass import Context, JobState, Queue, Retry


def pay(ctx: Context, number: int, *, above: bool) -> None:
    """The handler; its first attempt kills the process that it runs in, or the one above that."""
    with ctx.transaction() as connection:
        connection.execute(f"insert into payments values ({number})")  # noqa: S608 - a number of our own
        if ctx.attempt == 1:
            victim = os.getppid() if above else os.getpid()
            threading.Thread(target=strike, args=(victim,), daemon=True).start()


def strike(victim: int) -> None:
    """Kill a moment from now: before, in or after the commit."""
    time.sleep(random.uniform(0, 0.004))
    os.kill(victim, signal.SIGKILL)


def make(url: str, *, process: bool) -> tuple[Queue, Any]:
    """The application."""
    queue = Queue(url)
    retry = Retry(kind="fixed", base=0, jitter=0)
    return queue, queue.job(max_attempts=20, retry=retry, executor="process" if process else "thread")(pay)


def sql(url: str, text: str) -> list[tuple[Any, ...]]:
    """A statement on a connection of its own."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(text).fetchall()
    import psycopg  # noqa: PLC0415 - an extra

    with psycopg.connect(url, autocommit=True) as session:
        cursor = session.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


def look(url: str, number: int, job_id: str) -> tuple[int, int]:
    """The job's rows and its completions in one look: a server may be about to commit for the dead."""
    archive = "windlass_archive" if url.startswith("sqlite") else "windlass.archive"
    [found] = sql(
        url,
        f"select (select count(*) from payments where number = {number}),"  # noqa: S608 - a number of our own
        f" (select count(*) from {archive} where id = '{job_id}' and state = 'completed')",
    )
    return found[0], found[1]


def work(url: str, *, process: bool) -> None:
    """The worker's process: until it is killed, or nothing is left."""
    queue, _ = make(url, process=process)
    with queue.worker(threads=1, processes=1):
        while unfinished(queue):
            time.sleep(0.02)


def unfinished(queue: Queue) -> bool:
    """Whether any job has not ended."""
    counts = queue.store.counts().counts
    return any(each.state in (JobState.PENDING, JobState.PROCESSING) for each in counts)


def run(url: str, rounds: int, *, process: bool) -> int:
    """All rounds, and the verdict."""
    queue, pay = make(url, process=process)
    words = [sys.executable, __file__, "--worker", "--database", url, *(["--process"] if process else [])]
    queue.store.now()
    sql(url, "create table payments (number integer)")
    seen: Counter[str] = Counter()
    ids = []
    for number in range(rounds):
        job = pay.enqueue(number, above=process and number % 2 == 0)
        ids.append(job.id)
        subprocess.run(words, check=False)
        rows, done = look(url, number, job.id)
        seen[f"{'row' if rows else 'no row'}, {'completed' if done else 'not completed'}"] += 1
        if rows != done:
            print(f"BROKEN in round {number}: {rows} rows, {done} completions")
            return 1
    subprocess.run(words, check=True)
    written = Counter(number for (number,) in sql(url, "select number from payments"))
    wrong = [number for number in range(rounds) if written[number] != 1]
    open_ = [job_id for job_id in ids if queue.get(job_id).state is not JobState.COMPLETED]
    for what, count in sorted(seen.items()):
        print(f"after the kill: {what}: {count}")
    print(
        f"{rounds} rounds, at the end {len(wrong)} jobs without exactly one row, {len(open_)} not completed"
    )
    queue.close()
    return 1 if wrong or open_ else 0


def run_on_server(rounds: int, *, process: bool) -> int:
    """All rounds on a PostgreSQL of their own, whose commits wait for the disk."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.servers import postgres  # noqa: PLC0415 - found only by the line above, and not needed by workers

    with postgres.running(min(postgres.majors()), durable=True) as server:
        return run(server.new_database(), rounds, process=process)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--database", help="a fresh one; a file of its own by default")
    parser.add_argument("--process", action="store_true", help="in a child; kill it, or its worker")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.database, process=options.process)
        return 0
    if options.postgres:
        return run_on_server(options.rounds, process=options.process)
    with tempfile.TemporaryDirectory() as folder:
        return run(options.database or f"sqlite:///{folder}/jobs.db", options.rounds, process=options.process)


if __name__ == "__main__":
    sys.exit(main())
