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
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history import result
from tests.history.check import Rules, check
from tests.history.end import look
from tests.history.processes import Process
from tests.history.record import Reader, Recorder, Verb, from_environment
from tests.servers import postgres
from windlass import Context, JobState, Queue, Retry

recorder = from_environment()


def pay(ctx: Context, number: int, *, above: bool) -> None:
    """The handler; its first attempt kills the process that it runs in, or the one above that."""
    # The end is recorded before the commit, which completes the job.
    with ctx.transaction() as connection, recorder.run(ctx.id, ctx.attempt):
        connection.execute(f"insert into payments values ({number})")  # noqa: S608 - a number of our own
        if ctx.attempt == 1:
            victim = os.getppid() if above else os.getpid()
            threading.Thread(target=strike, args=(victim, ctx.id), daemon=True).start()


def strike(victim: int, job: str) -> None:
    """Kill a moment from now: before, in or after the commit."""
    time.sleep(random.uniform(0, 0.004))
    with recorder.fault(Verb.KILL, recorder.process, job=job):
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


def look_for(url: str, number: int, job_id: str) -> tuple[int, int]:
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


def run(url: str, folder: Path, options: argparse.Namespace) -> bool:
    """All rounds, and the verdict."""
    process = options.process
    queue, pay = make(url, process=process)
    notes = Recorder(folder / "history")
    words = [sys.executable, __file__, "--worker", "--database", url, *(["--process"] if process else [])]
    queue.store.now()
    sql(url, "create table payments (number integer)")
    shown = result.Result("kill-commit", url)
    seen: Counter[str] = Counter()
    torn = []
    for number in range(options.rounds):
        draft = pay.draft(number, above=process and number % 2 == 0)
        notes.enqueue(queue.store, [draft])
        Process(words, notes).wait()
        rows, done = look_for(url, number, draft.id)
        seen[f"{'row' if rows else 'no row'}, {'completed' if done else 'not completed'}"] += 1
        torn += [number] if rows != done else []
    last = Process(words, notes).wait()
    written = Counter(number for (number,) in sql(url, "select number from payments"))
    wrong = [number for number in range(options.rounds) if written[number] != 1]
    for what, count in sorted(seen.items()):
        print(f"after the kill: {what}: {count}")
    check(Reader(notes.path).read(), look(queue.store, url), Rules()).add_to(shown)
    shown.promise("after a kill a row and its completion are both there, or neither", torn, held=not torn)
    shown.promise("each job has one row in the end", result.few(wrong), held=not wrong)
    shown.promise("a worker that is not killed finishes", f"exit code {last}", held=last == 0)
    queue.close()
    return shown.close(options.json)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=result.count, default=200)
    parser.add_argument("--database", help="a fresh one; a file of its own by default")
    parser.add_argument("--process", action="store_true", help="in a child; kill it, or its worker")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    result.add_option(parser)
    options = parser.parse_args()
    if options.worker:
        work(options.database, process=options.process)
        return 0
    if options.database and options.postgres:
        parser.error("--database and --postgres exclude each other")
    with ExitStack() as closing_:
        folder = Path(closing_.enter_context(tempfile.TemporaryDirectory()))
        url = options.database or f"sqlite:///{folder}/jobs.db"
        if options.postgres:
            # Its commits wait for the disk.
            running = postgres.running(min(postgres.majors()), durable=True)
            url = closing_.enter_context(running).new_database()
        return 0 if run(url, folder, options) else 1


if __name__ == "__main__":
    sys.exit(main())
