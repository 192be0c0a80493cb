"""How does a job commit with the caller's own row? By writing it on the caller's connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from windlass.errors import InvalidValue
from windlass.store.postgres.session import Connection, PostgresTx, adapt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windlass.clock import Clock
    from windlass.store.postgres.session import Statement


@contextmanager
def transaction(
    connection: object, statements: Mapping[str, Statement], clock: Clock | None
) -> Iterator[PostgresTx]:
    """A part of the caller's transaction; the commit is left to the caller."""
    if not isinstance(connection, psycopg.Connection):
        raise InvalidValue("connection", connection, "a psycopg.Connection")
    # The caller's own settings stay as they are: only our cursors read and write in our way.
    guest = cast("Connection", _Guest(connection))
    began = connection.info.transaction_status == TransactionStatus.IDLE
    if began:
        # Left open for the caller; without autocommit any statement begins one.
        connection.execute("begin" if connection.autocommit else "select")
    try:
        with connection.transaction():
            yield PostgresTx(guest, statements, clock)
    except BaseException:
        if began and not connection.closed:
            connection.rollback()
        raise


class _Guest:
    """The caller's connection as our statements see it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, text: bytes, values: list[object]) -> psycopg.Cursor[dict[str, object]]:
        cursor = psycopg.RawCursor(self._connection, row_factory=dict_row)
        adapt(cursor.adapters)
        return cursor.execute(text, values)
