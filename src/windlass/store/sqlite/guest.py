"""How does a job commit with the caller's own row? By writing it on the caller's connection."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from windlass.errors import StoreBusy, must_be
from windlass.store.sqlite.connection import MEMORY, SqliteTx, explain
from windlass.store.sqlite.library import has_wal_reset_bug, sqlite3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from windlass.clock import Clock
    from windlass.store.bridge import Bridge


class AsyncGuest:
    """An aiosqlite connection as our statements see it: what it does, it does on its own thread."""

    def __init__(self, connection: Any, bridge: Bridge) -> None:
        theirs = type(connection).__module__.partition(".")[0] == "aiosqlite"
        # It speaks through Python's own library: two of them in one process do not see each other's locks.
        if not theirs or sqlite3.Connection.__module__ != "sqlite3":
            raise must_be("connection", connection, ALLOWED_ASYNC)
        self._connection = connection
        self._bridge = bridge

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    @property
    def row_factory(self) -> Any:
        return self._connection.row_factory

    @row_factory.setter
    def row_factory(self, factory: Any) -> None:
        self._connection.row_factory = factory

    @property
    def text_factory(self) -> Any:
        return self._connection.text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self._connection.text_factory = factory

    def execute(self, text: str, values: Mapping[str, object] | Sequence[object] = ()) -> _Answer:
        async def run() -> _Answer:
            async with self._connection.execute(text, values) as cursor:
                return _Answer(list(await cursor.fetchall()), cursor.rowcount)

        return self._bridge.wait(run())


class _Answer:
    """What a statement said, already fetched."""

    def __init__(self, rows: list[sqlite3.Row], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def fetchall(self) -> list[sqlite3.Row]:
        return self._rows

    def __iter__(self) -> Iterator[sqlite3.Row]:
        return iter(self._rows)


Guest = sqlite3.Connection | AsyncGuest

ALLOWED = f"a {sqlite3.Connection.__module__}.Connection, or a SQLAlchemy or Django connection over one"
ALLOWED_ASYNC = "an aiosqlite.Connection, or an async one of SQLAlchemy's over it"


@contextmanager
def transaction(
    guest: Guest,
    path: str,
    statements: Mapping[str, str],
    clock: Clock,
    *,
    prepare: Callable[[sqlite3.Connection], None],
) -> Iterator[SqliteTx]:
    """A part of the caller's transaction; the commit is left to the caller.

    `prepare` is called in the transaction before anything of ours is read or written.
    """
    _check_usable(guest)
    factories = guest.row_factory, guest.text_factory
    guest.row_factory, guest.text_factory = sqlite3.Row, str
    try:
        _check_file(guest, path)
        if has_wal_reset_bug():
            guest.execute("pragma wal_autocheckpoint = 0")
        if began := not guest.in_transaction:
            guest.execute("begin immediate")
        tx = SqliteTx(cast("sqlite3.Connection", guest), statements, clock.micros())
        try:
            with tx.part():
                prepare(cast("sqlite3.Connection", guest))
                if not began:
                    guest.execute(statements["take_write_lock"])
                yield tx
        except BaseException:  # wall: what we began we undo; the error goes on
            if began and guest.in_transaction:
                guest.execute("rollback")
            raise
    except sqlite3.OperationalError as error:
        failure = explain(error, path)
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT:
            raise StoreBusy(
                f"the caller's transaction on {path} began with a read and others have written since: "
                "begin immediate first, then read and enqueue",
            ) from error
        raise failure from error
    finally:
        guest.row_factory, guest.text_factory = factories


def checked(connection: object) -> sqlite3.Connection:
    """The connection, if it is one that we can write on."""
    if not isinstance(connection, sqlite3.Connection):
        raise must_be("connection", connection, ALLOWED)
    return connection


def _check_usable(guest: Guest) -> None:
    try:
        guest.execute("select 1")
    except sqlite3.ProgrammingError as error:
        raise must_be("connection", guest, f"open, and used in the thread that made it ({error})") from None


def _check_file(guest: Guest, path: str) -> None:
    """A job in another file than the queue's would never be found."""
    files = {row["name"]: row["file"] for row in guest.execute("pragma database_list")}
    main = files["main"]
    if path == MEMORY or not main or not os.path.samefile(main, path):  # noqa: PTH121 - two names, one file
        raise must_be("connection", main or MEMORY, f"a connection to the queue's own file {path}")
