"""How is the store kept small, and what have operators set?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.clock import from_micros, span
from windlass.store.verbs import access, history

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from windlass.store.keeping import Retention
    from windlass.store.transaction import Tx

# A person had a day to look.
_LATELY = timedelta(days=1)
_NOTES = (
    *("progress", "once", "batches", "checks"),
    *("workers", "failures", "tallies", "held"),
    *("history", "flushes"),
)


def promote(tx: Tx, limit: int) -> int:
    """Let scheduled jobs whose time has come stand in the claim index."""
    return tx.change("promote", now=tx.now, limit=limit)


def prune_notes(tx: Tx, keep: Retention) -> None:
    """Delete what was recorded beside jobs: of their runs, of the fleet, of what happened."""
    tx.change_all(
        [f"prune_{which}" for which in _NOTES],
        ended=tx.now - span(keep.ended),
        lately=tx.now - span(_LATELY),
        **history.bounds(tx.now),
    )
    history.prune_releases(tx)


def oldest_record(tx: Tx) -> datetime | None:
    """When the oldest record of the archive ended."""
    row = tx.row("oldest_record")
    return None if row is None or row["finished_at"] is None else from_micros(row["finished_at"])


def settings(tx: Tx) -> dict[str, str]:
    """What operators have set, by name."""
    return {row["name"]: row["value"] for row in tx.rows("settings")}


def set_settings(tx: Tx, changes: Mapping[str, str | None], by: str, why: str) -> None:
    """Store settings or, where there is no value, forget them."""
    # In a fixed order, so that two who set the same never wait for each other.
    for name in sorted(changes):
        _set(tx, name, changes[name], by, why)
    tx.change("revise")


def _set(tx: Tx, name: str, value: str | None, by: str, why: str) -> None:
    was = tx.row("setting", name=name)
    before = None if was is None else {"value": was["value"]}
    after = None if value is None else {"value": value}
    access.note(
        tx,
        "set" if value is not None else "reset",
        "setting",
        name,
        by=by,
        why=why,
        before=before,
        after=after,
    )
    if value is None:
        tx.change("reset_setting", name=name)
    else:
        tx.change("put_setting", name=name, value=value, now=tx.now)
