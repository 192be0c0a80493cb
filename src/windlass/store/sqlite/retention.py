"""When do records go? Row by row, a batch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import span
from windlass.store import rows
from windlass.store.sqlite.enqueue import enqueue
from windlass.store.verbs import chaining, upkeep

if TYPE_CHECKING:
    from windlass.store.keeping import Retention
    from windlass.store.sqlite.connection import SqliteTx


def prune(tx: SqliteTx, keep: Retention, limit: int) -> int:
    """Delete one batch of records past their retention, their keys with them."""
    chaining.sweep(tx, enqueue)
    tx.change("note_highest")
    pruned = _prune(tx, "ended", tx.now - span(keep.ended), limit)
    if pruned < limit:
        pruned += _prune(tx, "dead", tx.now - span(keep.dead), limit - pruned)
    upkeep.prune_notes(tx, keep)
    return pruned


def _prune(tx: SqliteTx, which: str, before: int, limit: int) -> int:
    gone = tx.rows(f"prune_{which}", before=before, limit=limit)
    for row in gone:
        if row["key"] is not None:
            tx.change("free_key", caller=row["caller"], key=row["key"], job_id=row["id"])
    if gone:
        tx.change("free_answered", ids=rows.json_text([row["id"] for row in gone]))
    return len(gone)
