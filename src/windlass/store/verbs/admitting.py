"""How many jobs wait? Counted by one process every few seconds; producers read what it found."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.store.flow import Depths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windlass.store.transaction import Row, Tx


def depths(tx: Tx) -> Depths:
    """As last counted."""
    found = tx.rows("depths")
    return told(found, tx.now) if found else Depths()


def told(found: Sequence[Row], now: int) -> Depths:
    """What the rows of a count say."""
    counted_at = max(row["counted_at"] for row in found)
    return Depths(
        pending={row["type"]: row["pending"] for row in found if row["type"]},
        at=from_micros(counted_at),
        # A count of the future was made before the clock was set back.
        age=timedelta(microseconds=abs(now - counted_at)),
    )


def pending(tx: Tx, older_than: timedelta) -> dict[str, int] | None:
    """Counted anew, by type; None if somebody has counted lately. A read: nobody who writes waits for it."""
    known = depths(tx)
    if _is_fresh(known, older_than):
        return None
    counts = dict.fromkeys(known.pending, 0)
    for row in tx.rows("count_pending"):
        counts[row["type"]] = counts.get(row["type"], 0) + row["count"]
    return counts


def note(tx: Tx, counts: Mapping[str, int], older_than: timedelta) -> Depths:
    """Keep what was counted, unless somebody else was faster."""
    known = depths(tx)
    if _is_fresh(known, older_than):
        return known
    # Also when nothing waits there must be a row that says when that was seen.
    for name, count in sorted({**counts, "": 0}.items()):
        tx.change("note_depth", type=name, pending=count, now=tx.now)
    return Depths(pending=counts, at=from_micros(tx.now), age=timedelta(0))


def _is_fresh(known: Depths, older_than: timedelta) -> bool:
    return known.age is not None and known.age <= older_than
