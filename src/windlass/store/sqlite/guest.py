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
    guest = _checked(connection, path)
    if has_wal_reset_bug():
        guest.execute("pragma wal_autocheckpoint = 0")
    factory = guest.row_factory
    guest.row_factory = sqlite3.Row
    try:
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
        if isinstance(failure, StoreBusy) and guest.in_transaction:
            raise StoreBusy(
                f"the caller's transaction on {path} began with a read and others have written since: "
                "begin immediate first, then read and enqueue",
            ) from error
        raise failure from error
    finally:
        guest.row_factory = factory


def _checked(connection: object, path: str) -> sqlite3.Connection:
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidValue(
            "connection", connection, f"a {sqlite3.Connection.__module__}.Connection on {path}"
        )
    files = {row[1]: row[2] for row in connection.execute("pragma database_list")}
    main = files.get("main", "")
    if path == MEMORY or not main or not os.path.samefile(main, path):  # noqa: PTH121 - two names, one file
        raise InvalidValue("connection", main or MEMORY, f"a connection to the queue's own file {path}")
    return connection
