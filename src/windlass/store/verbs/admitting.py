"""How many jobs wait? Counted by one process every few seconds; producers read what it found."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.store.flow import Depths

if TYPE_CHECKING:
    from windlass.store.transaction import Tx


def depths(tx: Tx) -> Depths:
    """As last counted."""
    found = tx.rows("depths")
    if not found:
        return Depths()
    counted_at = max(row["counted_at"] for row in found)
    return Depths(
        pending={row["type"]: row["pending"] for row in found if row["type"]},
        at=from_micros(counted_at),
        # A count of the future was made before the clock was set back.
        age=timedelta(microseconds=abs(tx.now - counted_at)),
    )


def count_depths(tx: Tx, older_than: timedelta) -> Depths:
    """Counted anew, unless somebody else did so meanwhile."""
    known = depths(tx)
    if known.age is not None and known.age <= older_than:
        return known
    pending: dict[str, int] = {}
    for row in tx.rows("count_pending"):
        pending[row["type"]] = pending.get(row["type"], 0) + row["count"]
    for name in known.pending:
        pending.setdefault(name, 0)
    # Also when nothing waits there must be a row that says when that was seen.
    for name, count in sorted({**pending, "": 0}.items()):
        tx.change("note_depth", type=name, pending=count, now=tx.now)
    return Depths(pending=pending, at=from_micros(tx.now), age=timedelta(0))
