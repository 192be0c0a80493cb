"""How does a job commit with the caller's own row? By writing it on the caller's connection."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.errors import InvalidValue, StoreBusy
from windlass.store.sqlite.connection import MEMORY, SqliteTx, explain
from windlass.store.sqlite.library import has_wal_reset_bug, sqlite3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windlass.clock import Clock


@contextmanager
def transaction(
    connection: object, path: str, statements: Mapping[str, str], clock: Clock
) -> Iterator[SqliteTx]:
    """A part of the caller's transaction; the commit is left to the caller."""
    guest = _checked(connection)
    _check_usable(guest)
    factories = guest.row_factory, guest.text_factory
    guest.row_factory, guest.text_factory = sqlite3.Row, str
    try:
        _check_file(guest, path)
        if has_wal_reset_bug():
            guest.execute("pragma wal_autocheckpoint = 0")
        if began := not guest.in_transaction:
            guest.execute("begin immediate")
        tx = SqliteTx(guest, statements, clock.micros())
        try:
            with tx.part():
                yield tx
        except BaseException:
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


def _checked(connection: object) -> sqlite3.Connection:
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidValue("connection", connection, f"a {sqlite3.Connection.__module__}.Connection")
    return connection


def _check_usable(guest: sqlite3.Connection) -> None:
    try:
        guest.execute("select 1")
    except sqlite3.ProgrammingError as error:
        raise InvalidValue(
            "connection", guest, f"open, and used in the thread that made it ({error})"
        ) from None


def _check_file(guest: sqlite3.Connection, path: str) -> None:
    """A job in another file than the queue's would never be found."""
    files = {row["name"]: row["file"] for row in guest.execute("pragma database_list")}
    main = files["main"]
    if path == MEMORY or not main or not os.path.samefile(main, path):  # noqa: PTH121 - two names, one file
        raise InvalidValue("connection", main or MEMORY, f"a connection to the queue's own file {path}")
