"""The store of a soak: where it is, what is in it from earlier days, and what happens to its server."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psutil
import psycopg

from tests.servers import postgres, standby
from windlass import connect

MAJOR = 15
MEGABYTE = 2**20
DAY = 86_400_000_000
# Records of an earlier day end in its last minute, so that no pruning takes a part of a later day with it.
_LAST = 60_000_000
_BODY = "x" * 60
_COLUMNS = """
    seq, id, type, state, priority, tenant, payload, schema_version, key, caller, max_attempts, attempts,
    claims, snoozes, interruptions, losses, replay_count, created_at, enqueued_at, updated_at, run_at,
    started_at, finished_at, worker
"""
_VALUES = """
    'past', 'completed', 5, '', '{{"body": "{body}"}}', 1, 'past-{day}-' || number, 'past', 5, 1,
    1, 0, 0, 0, 0, {at}, {at}, {at}, {at}, {at}, {at} + number, 'past'
"""
_POSTGRES = f"""
    with made as (
        insert into windlass.archive ({_COLUMNS})
        select nextval('windlass.jobs_seq_seq'), gen_random_uuid(), {_VALUES}
          from generate_series(1, {{count}}) as number
        returning id, caller, key
    )
    insert into windlass.keys (caller, key, job_id, digest) select caller, key, id, '' from made
"""  # noqa: S608 - words of our own
_SQLITE = f"""
    with recursive numbers (number) as (
        select 1 union all select number + 1 from numbers where number < {{count}}
    )
    insert into windlass_archive ({_COLUMNS})
    select (select coalesce(max(seq), 0) from windlass_archive) + number,
           lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-7' || substr(hex(randomblob(2)), 2)
                 || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))),
           {_VALUES}
      from numbers
"""  # noqa: S608 - words of our own
_SQLITE_KEYS = """
    insert into windlass_keys (caller, key, job_id, digest)
    select caller, key, id, '' from windlass_archive where type = 'past'
"""
_LEFT = "select count(*) from {}archive where finished_at < {}"
_PATIENCE = 120.0


class Place(Protocol):
    """A store, and what can be measured and done beside Windlass."""

    url: str

    def fill(self, days: Sequence[int]) -> None:
        """Add records of earlier days, the oldest first; the last one is the day before yesterday."""

    def left(self) -> int:
        """How many records of earlier days are in the archive."""

    def files(self) -> dict[str, float]:
        """Megabytes of files and of the server's memory."""

    def restart(self) -> None:
        """End the server at once, and start it again."""


class FilePlace:
    """A SQLite file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.db"
        self.url = f"sqlite:///{self._path}"

    def fill(self, days: Sequence[int]) -> None:
        """With the keys that go with the records."""
        connect.open(self.url).close()
        with closing(sqlite3.connect(self._path)) as connection:
            for day, count in enumerate(days):
                text = _SQLITE.format(count=count, body=_BODY, day=day, at=_ended(len(days) - day + 1))
                connection.execute(text)
            connection.execute(_SQLITE_KEYS)
            connection.commit()

    def left(self) -> int:
        """By SQL."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("pragma wal_autocheckpoint = 0")
            return int(connection.execute(_LEFT.format("windlass_", _ended(1))).fetchone()[0])

    def files(self) -> dict[str, float]:
        """The file and its log."""
        log = self._path.with_name("jobs.db-wal")
        return {
            "files": self._path.stat().st_size / MEGABYTE,
            "WAL": log.stat().st_size / MEGABYTE if log.exists() else 0.0,
        }

    def restart(self) -> None:
        """A file has no server."""


class ServerPlace:
    """A PostgreSQL server of our own, which waits for the disk at every commit."""

    def __init__(self, server: postgres.Server) -> None:
        self._server = server
        self.url = server.new_database()
        self._name = standby.name_of(self.url)

    def fill(self, days: Sequence[int]) -> None:
        """With the keys that go with the records."""
        connect.open(self.url).close()
        self._sql(f"select windlass.make_days({_ended(len(days) + 1)}, {len(days)})")
        for day, count in enumerate(days):
            text = _POSTGRES.format(count=count, body=_BODY, day=day, at=_ended(len(days) - day + 1))
            self._sql(text)
        self._sql("vacuum analyze")

    def left(self) -> int:
        """By SQL; of a server that is away it is asked again."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return int(self._sql(_LEFT.format("windlass.", _ended(1)))[0][0])
            except psycopg.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def files(self) -> dict[str, float]:
        """The database, the log, and what memory the server's processes have, shared memory once."""
        [(size, log)] = self._sql(
            f"select pg_database_size('{self._name}'), (select sum(size) from pg_ls_waldir())"  # noqa: S608 - our own
        )
        return {
            "files": float(size) / MEGABYTE,
            "WAL": float(log) / MEGABYTE,
            "memory of PostgreSQL": sum(map(_share, standby.processes(self._server))),
        }

    def restart(self) -> None:
        """As `pg_ctl restart -m immediate`."""
        standby.stop_at_once(self._server)
        self._server.start()

    def _sql(self, text: str) -> list[tuple[Any, ...]]:
        return self._server.run(text, self._name)


def _ended(days: int) -> int:
    """When the last minute of an earlier day began, in microseconds since 1970."""
    return (int(time.time() * 1_000_000) // DAY - days + 1) * DAY - _LAST


def _share(process: psutil.Process) -> float:
    """Megabytes of a process, of shared memory its share."""
    with contextlib.suppress(OSError, psutil.Error):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


@contextlib.contextmanager
def opened(store: str, folder: Path) -> Iterator[Place]:
    """A store for as long as the block lasts."""
    if store == "sqlite":
        yield FilePlace(folder)
        return
    # Its memory as in the benchmarks, and a log of PostgreSQL's usual length.
    with postgres.running(MAJOR, durable=True, shared_buffers="512MB", max_wal_size="1GB") as server:
        yield ServerPlace(server)
