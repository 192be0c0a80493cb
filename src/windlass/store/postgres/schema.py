"""Is the schema in this database the one that this code knows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import StoreMismatch
from windlass.store import statements
from windlass.store.postgres.session import DIALECT

if TYPE_CHECKING:
    from windlass.store.postgres.session import Connection, PostgresTx

# So far ahead the archive's days are made.
DAYS_AHEAD = 8
_OLDEST_SERVER = 150000


def newest() -> int:
    """The number of the newest migration that this code knows."""
    return statements.migrations(DIALECT)[-1][0]


def present(tx: PostgresTx) -> int | None:
    """The number of the last migration that the database has seen; None if it has none of our tables."""
    [there] = tx.rows("has_schema")
    if not there["schema"]:
        return None
    [row] = tx.rows("schema_number")
    return int(row["number"] or 0)


def prepare(connection: Connection, tx: PostgresTx, shown: str, *, create: bool) -> None:
    """Bring a new database up to the newest schema; refuse one that this code must not touch."""
    _check_server(connection, shown)
    number = present(tx)
    if number is None:
        if not create:
            raise StoreMismatch(f"{shown} has no Windlass tables; `windlass db migrate` makes them")
        bring_up(connection, tx, shown)
    elif number > newest():
        raise _too_new(shown, number)
    elif number < newest():
        raise StoreMismatch(
            f"{shown} has schema {number}, this Windlass needs {newest()}: run `windlass db migrate`",
        )


def bring_up(connection: Connection, tx: PostgresTx, shown: str) -> list[str]:
    """Apply every migration that the database has not seen, in one transaction; their names."""
    applied: list[str] = []
    with connection.transaction():
        # Whoever comes second waits here, and then finds everything done.
        tx.rows("lock_schema")
        done = present(tx) or 0
        if done > newest():
            raise _too_new(shown, done)
        for number, name, text in statements.migrations(DIALECT):
            if number > done:
                if number == 1:
                    tx.change("make_schema")
                connection.execute(text.encode())
                tx.change("note_migration", number=number, name=name, now=tx.now)
                applied.append(f"{number:04}_{name}")
        tx.rows("make_days", now=tx.now, days=DAYS_AHEAD)
    return applied


def _too_new(shown: str, number: int) -> StoreMismatch:
    return StoreMismatch(
        f"{shown} has schema {number}, but this Windlass knows up to {newest()}: install a newer Windlass",
    )


def _check_server(connection: Connection, shown: str) -> None:
    if connection.info.server_version < _OLDEST_SERVER:
        found = connection.info.server_version // 10000
        raise StoreMismatch(f"{shown} is PostgreSQL {found}; Windlass needs 15 or newer")
