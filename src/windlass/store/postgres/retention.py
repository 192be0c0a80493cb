"""When do records go? Rows while a day is small or not yet over, whole days when they are large."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors, sql

from windlass.clock import span
from windlass.store import chains, upkeep
from windlass.store.postgres.arrays import texts, words
from windlass.store.postgres.schema import DAYS_AHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.engine import Row
    from windlass.store.postgres.session import Connection, PostgresTx
    from windlass.store.upkeep import Retention

DAY = 86_400_000_000
# A day of less than this is cleared row by row, to the second; a larger one goes whole when it is over.
_LARGE_DAY = 32 * 1024 * 1024
# Others may be doing the same at this moment: the next round finds what is left.
_IN_USE = (
    errors.LockNotAvailable,
    errors.ObjectInUse,
    errors.ObjectNotInPrerequisiteState,
    errors.UndefinedTable,
    errors.DeadlockDetected,
)


# Two who prune at once may wait for each other; the server then ends one of them, which begins again.
_TRIES = 5


def prune(tx: PostgresTx, connection: Connection, keep: Retention, limit: int, by: str) -> int:
    """Delete one batch of records past their retention, their keys with them; each step commits by itself."""
    for _ in range(_TRIES - 1):
        with suppress(errors.DeadlockDetected):
            return _prune(tx, connection, keep, limit, by)
    return _prune(tx, connection, keep, limit, by)


def _prune(tx: PostgresTx, connection: Connection, keep: Retention, limit: int, by: str) -> int:
    make_days(tx)
    before = tx.now - span(keep.ended)
    pruned = 0
    for day in tx.rows("archive_days"):
        if day["loose"]:
            _drop(connection, day["name"])
        elif day["begins"] < before and pruned < limit:
            pruned += _prune_day(tx, connection, day, before, limit - pruned)
    if pruned < limit:
        pruned += _prune_dead(tx, tx.now - span(keep.dead), limit - pruned, by)
    upkeep.prune_notes(tx, keep)
    chains.sweep(tx)
    return pruned


def make_days(tx: PostgresTx) -> None:
    """The archive's partitions for today and a week ahead."""
    [made] = tx.rows("make_days", now=tx.given, days=DAYS_AHEAD)
    tx.learn(made["now"])


def _prune_day(tx: PostgresTx, connection: Connection, day: Row, before: int, limit: int) -> int:
    ends = day["begins"] + DAY
    over = ends <= before
    bounds = {"since": day["begins"], "before": min(before, ends)}
    if day["pending"]:
        _detach(connection, day["name"], pending=True)
        return 0
    if day["size"] < _LARGE_DAY:
        with connection.transaction():
            pruned = _prune_rows(tx, bounds, limit)
        if over and pruned < limit and not tx.rows("count_day", limit=1, **bounds)[0]["count"]:
            _detach(connection, day["name"], pending=False)
        return pruned
    if not over:
        return 0
    freed = sum(tx.change(f"{whose}_of_day", limit=limit, **bounds) for whose in ("keys", "answered"))
    if freed:
        return freed
    counted: int = tx.rows("count_day", limit=limit, **bounds)[0]["count"]
    _detach(connection, day["name"], pending=False)
    return counted


def _prune_rows(tx: PostgresTx, bounds: dict[str, int], limit: int) -> int:
    return _free(tx, tx.rows("prune_day", limit=limit, **bounds))


def _prune_dead(tx: PostgresTx, before: int, limit: int, by: str) -> int:
    [past] = tx.rows("any_dead", before=before)
    if not past["found"]:
        return 0
    with tx.part():
        gone = tx.rows("prune_dead", before=before, limit=limit)
        upkeep.note_pruned(tx, gone, by)
        return _free(tx, gone)


def _free(tx: PostgresTx, gone: Sequence[Row]) -> int:
    keyed = [row for row in gone if row["key"] is not None]
    if keyed:
        tx.change(
            "free_keys",
            scopes=texts(row["caller"] for row in keyed),
            keys=texts(row["key"] for row in keyed),
            ids=words(row["id"] for row in keyed),
        )
    if gone:
        tx.change("free_answered", ids=words(row["id"] for row in gone))
    return len(gone)


def _detach(connection: Connection, name: str, *, pending: bool) -> None:
    """Take a day out of the archive while others read it, then drop it.

    A plain drop would wait behind a long reader and stop every settle meanwhile.
    """
    how = sql.SQL("finalize" if pending else "concurrently")
    day = sql.Identifier("windlass", name)
    with suppress(*_IN_USE):
        connection.execute(sql.SQL("alter table windlass.archive detach partition {} {}").format(day, how))
        connection.execute(sql.SQL("drop table if exists {}").format(day))


def _drop(connection: Connection, name: str) -> None:
    """A day that was detached and not dropped."""
    with suppress(*_IN_USE, psycopg.errors.WrongObjectType):
        connection.execute(sql.SQL("drop table if exists {}").format(sql.Identifier("windlass", name)))
