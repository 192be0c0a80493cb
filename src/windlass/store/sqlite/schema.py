"""Is this file ours, and is its schema the one that this code knows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import StoreMismatch, StoreUnavailable
from windlass.store import statements
from windlass.store.sqlite.connection import MEMORY
from windlass.store.sqlite.library import sqlite3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.clock import Clock

DIALECT = "sqlite"


def newest() -> int:
    """The number of the newest migration that this code knows."""
    return statements.migrations(DIALECT)[-1][0]


def present(connection: sqlite3.Connection) -> int | None:
    """The number of the last migration that the file has seen; None if it has none of our tables."""
    if not _has_table(connection, "windlass_schema"):
        return None
    row = connection.execute("select max(number) as number from windlass_schema").fetchone()
    return int(row["number"] or 0)


def prepare(connection: sqlite3.Connection, path: str, clock: Clock, *, create: bool) -> None:
    """Bring a new file up to the newest schema; refuse one that this code must not touch."""
    if present(connection) is not None:
        check(connection, path)
    elif create or _is_empty(connection):
        bring_up(connection, path, clock)
    else:
        raise StoreMismatch(
            f"{path} is a database without Windlass tables; `windlass db migrate` adds them to it",
        )


def check(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a schema that this code does not know."""
    number = present(connection) or 0
    if number > newest():
        raise _too_new(path, number)
    if number < newest():
        raise StoreMismatch(
            f"{path} has schema {number}, this Windlass needs {newest()}: run `windlass db migrate`",
        )


def bring_up(connection: sqlite3.Connection, path: str, clock: Clock) -> list[str]:
    """Apply every migration that the file has not seen; their names."""
    number = present(connection)
    if number is None:
        _set_up(connection, path)
    elif number > newest():
        raise _too_new(path, number)
    return _migrate(connection, clock)


def _too_new(path: str, number: int) -> StoreMismatch:
    return StoreMismatch(
        f"{path} has schema {number}, but this Windlass knows up to {newest()}: install a newer Windlass",
    )


def _set_up(connection: sqlite3.Connection, path: str) -> None:
    """What can only be chosen while a file is new: room that is given back, and the write-ahead log."""
    if _is_empty(connection):
        connection.execute("pragma auto_vacuum = incremental")
    mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
    if path != MEMORY and mode != "wal":
        raise StoreUnavailable(
            f"{path} cannot use a write-ahead log here (journal mode {mode}); choose a local disk"
        )


def _migrate(connection: sqlite3.Connection, clock: Clock) -> list[str]:
    """Apply what is missing, all in one transaction; safe for two at once."""
    applied: list[str] = []
    connection.execute("begin exclusive")
    try:
        done = present(connection) or 0
        for number, name, text in statements.migrations(DIALECT):
            if number > done:
                for statement in _each(text):
                    connection.execute(statement)
                connection.execute(
                    "insert into windlass_schema (number, name, applied_at) values (?, ?, ?)",
                    (number, name, clock.micros()),
                )
                applied.append(f"{number:04}_{name}")
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
    return applied


def _each(text: str) -> Iterator[str]:
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    found = connection.execute("select 1 from sqlite_master where type = 'table' and name = ?", (name,))
    return found.fetchone() is not None


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("select 1 from sqlite_master limit 1").fetchone() is None
