"""When do records go? Row by row, a batch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import span
from windlass.store import chains, rows, upkeep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.engine import Row
    from windlass.store.sqlite.connection import SqliteTx
    from windlass.store.upkeep import Retention


def prune(tx: SqliteTx, keep: Retention, limit: int, by: str) -> int:
    """Delete one batch of records past their retention, their keys with them."""
    chains.sweep(tx)
    tx.change("note_highest")
    pruned = _free(tx, tx.rows("prune_ended", before=tx.now - span(keep.ended), limit=limit))
    if pruned < limit:
        dead = tx.rows("prune_dead", before=tx.now - span(keep.dead), limit=limit - pruned)
        upkeep.note_pruned(tx, dead, by)
        pruned += _free(tx, dead)
    upkeep.prune_notes(tx, keep)
    return pruned


def _free(tx: SqliteTx, gone: Sequence[Row]) -> int:
    for row in gone:
        if row["key"] is not None:
            tx.change("free_key", scope=row["caller"], key=row["key"], job_id=row["id"])
    if gone:
        tx.change("free_answered", ids=rows.json_text([row["id"] for row in gone]))
    return len(gone)
