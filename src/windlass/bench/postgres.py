"""What PostgreSQL itself can do on this server: the store's own statements, and nothing around them.

Also how many statements a process sends, counted by libpq's own trace of each connection. The server's count
of transactions would include its vacuum's and those of other programs.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.pq.abc import PGconn

from windlass import connect
from windlass.bench.raw import PAYLOAD
from windlass.clock import span, uuid7
from windlass.store import rows, statements

_BATCH = 500
# Where the claim's answer has them.
_SEQ, _TOKEN = 6, 31
_LEASE = span(timedelta(seconds=60))
_HISTORY = (
    '[{"number":1,"claim":1,"worker":"raw","started_at":"2026-01-01T00:00:00.000001Z",'
    '"finished_at":"0001-01-01T00:00:00Z","outcome":"completed","seconds":0.000010}]'
)
_SETTINGS = (
    "-c jit=off -c plan_cache_mode=force_generic_plan "
    "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_bitmapscan=off"
)


def inserts(place: Server, count: int, *, size: int = 1) -> float:
    """Durable inserts a second: so many rows by one statement and one commit."""
    raw = _Raw(place.fresh("inserts"))
    begun = perf_counter()
    for _ in range(count // size):
        raw.insert(size)
    return raw.rate(count, begun)


def single_claims(place: Server, count: int) -> list[float]:
    """Milliseconds of an insert and a claim of what it made, one after the other on one connection."""
    raw = _Raw(place.fresh("claims"))
    delays = []
    for _ in range(count):
        begun = perf_counter()
        raw.insert(1)
        raw.claim(1)
        delays.append((perf_counter() - begun) * 1000)
    raw.close()
    return delays


def whole_cycles(place: Server, count: int) -> float:
    """Jobs a second through claim and settle in batches of 500 on one connection, each a durable commit."""
    raw = _Raw(place.fresh("cycles"))
    for _ in range(count // _BATCH):
        raw.insert(_BATCH)
    begun = perf_counter()
    done = 0
    while claimed := raw.claim():
        raw.complete(claimed)
        done += len(claimed)
    return raw.rate(done, begun)


def _array(values: Iterable[str]) -> str:
    return "{" + ",".join(values) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


_NEW = {"type": "noop", "payload": _quoted(PAYLOAD), **dict.fromkeys(("tenant", "caller"), '""')}
_NUMBERS = {"priority": "5", "schema_version": "1", "max_attempts": "5"}
_CLAIM = {"types": ["noop"], "versions": [1], "afters": [""], "slack": 1.0, "promoted": True, "floor": 0}
_UNSAID = dict.fromkeys(("now", "channel", "hint", "turn", "mark"))


class _Raw:
    """A connection, and the statements of the store."""

    def __init__(self, url: str) -> None:
        connect.migrate(url)
        self._connection = psycopg.connect(
            url, autocommit=True, cursor_factory=psycopg.RawCursor, options=_SETTINGS
        )
        self._connection.prepare_threshold = 0
        self._texts = {name: statements.numbered(text) for name, text in statements.load("postgres").items()}

    def insert(self, count: int) -> None:
        columns = {name: _array([value] * count) for name, value in (_NEW | _NUMBERS).items()}
        # Arrays that are too short are filled up with nulls.
        empty = dict.fromkeys((*rows.NEW, "delay", "at"), "{}")
        self._run("enqueue_new", {**empty, **columns, "id": _array(uuid7() for _ in range(count))})

    def claim(self, limit: int = _BATCH) -> list[tuple[int, str]]:
        found = self._run("claim_batch", {**_CLAIM, "limit": limit, "lease": _LEASE, "worker": "raw"})
        return [(row[_SEQ], str(row[_TOKEN])) for row in found if row[_SEQ] is not None]

    def complete(self, claimed: list[tuple[int, str]]) -> None:
        done = {
            "seqs": _array(str(seq) for seq, _ in claimed),
            **dict.fromkeys(("tokens", "last_tokens"), _array(token for _, token in claimed)),
            "states": _array(["completed"] * len(claimed)),
            "histories": _array([_quoted(_HISTORY)] * len(claimed)),
            **dict.fromkeys(("reasons", "errors", "results"), "{}"),
        }
        self._run("settle_finish", {**done, "marked": False})

    def rate(self, count: int, begun: float) -> float:
        took = perf_counter() - begun
        self.close()
        return count / took

    def close(self) -> None:
        self._connection.close()

    def _run(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        text, names = self._texts[name]
        given = _UNSAID | values
        cursor = self._connection.execute(text.encode(), [given[each] for each in names])
        return cursor.fetchall() if cursor.description else []


class Server:
    """New databases on a PostgreSQL server, dropped in the end; what is in the given one is not touched."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count(1)
        self._made: list[str] = []

    def fresh(self, name: str, *, beside: bool = False) -> str:
        """The URL of a new database; those of earlier cases are dropped first: none disturbs another."""
        if not beside:
            self.drop()
        database = f"windlass_bench_{name}_{os.getpid()}_{next(self._numbers)}"
        self.run(sql.SQL("create database {}").format(sql.Identifier(database)))
        self._made.append(database)
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{database}"))

    def drop(self) -> None:
        """Drop what was made."""
        while self._made:
            name = sql.Identifier(self._made.pop())
            with suppress(psycopg.errors.InvalidCatalogName):
                self.run(sql.SQL("drop database {} with (force)").format(name))

    def run(self, statement: sql.Composed | sql.SQL) -> list[tuple[Any, ...]]:
        """Run a statement on the given database; its rows."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


# What we send once for each statement: its text alone, or the order to run what was bound before.
_STATEMENT = re.compile(rb"\tF\t\d+\t(?:Query|Execute)\t")


class Wire:
    """Follows the connections that this process opens from now on."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="windlass-wire-")
        self._numbers = itertools.count(1)
        begin = psycopg.Connection.__init__

        def followed(connection: psycopg.Connection[Any], server: PGconn, *args: Any, **options: Any) -> None:
            begin(connection, server, *args, **options)
            server.trace(self._file())

        psycopg.Connection.__init__ = followed  # type: ignore[method-assign, assignment]

    def statements(self) -> int:
        """How many were sent so far."""
        traces = Path(self._folder.name).iterdir()
        return sum(len(_STATEMENT.findall(trace.read_bytes())) for trace in traces)

    def _file(self) -> int:
        # Of its own: lines of several would mix. libpq keeps it open and writes line by line.
        path = Path(self._folder.name) / str(next(self._numbers))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
