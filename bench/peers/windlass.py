"""Windlass, on SQLite or PostgreSQL by the URL alone."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from functools import cache
from typing import Any

from bench.drive import contract, tasks
from windlass import Queue, connect

queue = Queue(contract.url())
HANDLERS = {name: queue.job(name=name)(function) for name, function in tasks.ASYNC.items()}
_ON_POSTGRES = connect.is_postgres(contract.url())
# Each part by an index of its own, so that asking costs the same however many jobs of other types there are.
_UNFINISHED = """
    select exists (select 1 from {jobs} where due = 1 and type in ({types}))
        or exists (select 1 from {jobs} where state = 'processing')
        or exists (select 1 from {jobs} where state = 'pending' and {later} and type in ({types}))
""".format(
    jobs="windlass.jobs" if _ON_POSTGRES else "windlass_jobs",
    later="due < 1" if _ON_POSTGRES else "due = 0",
    types=", ".join(f"'{name}'" for name in tasks.NAMES),
)
_WEEK = 7 * 86_400
_CHUNK = 10_000


class Windlass(contract.Driver):
    """Handlers are coroutines; everything is at its defaults."""

    settings = (
        "defaults of `windlass worker start`; `async def` handlers, 100 slots, answers after a durable commit"
    )

    def setup(self) -> None:
        """The first use makes the tables."""
        queue.store.now()
        self._looking = _connected()

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        HANDLERS[name].enqueue(body)

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs."""
        queue.enqueue_many(HANDLERS[name].draft(body) for body in bodies)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [sys.executable, "-m", "windlass", "worker", "start", "bench.peers.windlass:queue"]
        return words if concurrency is None else [*words, "--concurrency", str(concurrency)]

    def unfinished(self) -> bool:
        """Whether a job is pending or processing."""
        [found] = self._looking.execute(_UNFINISHED).fetchall()
        return bool(found[0])

    def crowd(self, kind: str, count: int) -> None:
        """Rows of another type, for next week, or in the archive."""
        if kind == "archived":
            _copy_archived(count)
            return
        job = _other().options(delay=_WEEK) if kind == "scheduled" else _other()
        for start in range(0, count, _CHUNK):
            queue.enqueue_many(job.draft("x") for _ in range(min(_CHUNK, count - start)))

    def close(self) -> None:
        """Let go of the store."""
        self._looking.close()
        queue.close()

    def version(self) -> str:
        """This tree."""
        return "this tree"


driver = Windlass


@cache
def _other() -> Any:
    """A type that no worker serves: only this process knows it."""

    @queue.job(name="other")
    async def other(body: str) -> None:
        """Never run."""

    return other


def _connected() -> Any:
    """A connection beside the queue's own."""
    if not _ON_POSTGRES:
        return sqlite3.connect(connect.sqlite_path(contract.url()), isolation_level=None)
    # An extra, which a run on SQLite does without.
    import psycopg  # noqa: PLC0415

    return psycopg.connect(contract.url(), autocommit=True)


def _copy_archived(count: int) -> None:
    """Copy one archived job many times, each with a number and an id of its own."""
    if _ON_POSTGRES:
        with closing(_connected()) as server:
            columns = server.execute("select * from windlass.archive limit 0").description or ()
            names = [column.name for column in columns]
            changed = {"seq": "nextval('windlass.jobs_seq_seq')", "id": "gen_random_uuid()"}
            one = "(select * from windlass.archive limit 1) as one"
            text = _copying("windlass.archive", names, changed, f"{one}, generate_series(1, {count})")
            server.execute(text.encode())
        return
    with closing(_connected()) as file:
        names = [each[0] for each in file.execute("select * from windlass_archive limit 0").description]
        changed = {"seq": "-n", "id": "lower(hex(randomblob(16)))"}
        numbers = (
            f"(with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {count})"
        )
        one = "(select * from windlass_archive where seq > 0 limit 1)"
        file.execute(_copying("windlass_archive", names, changed, f"{one}, {numbers} select n from numbers)"))


def _copying(table: str, names: list[str], changed: dict[str, str], source: str) -> str:
    values = [changed.get(name, name) for name in names]
    return f"insert into {table} ({', '.join(names)}) select {', '.join(values)} from {source}"
