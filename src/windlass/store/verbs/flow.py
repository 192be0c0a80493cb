"""How are types paused, and how do workers hear of it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.store.flow import Pause, Switches
from windlass.store.verbs import access, breaking

if TYPE_CHECKING:
    from windlass.store.transaction import Tx


def switches(tx: Tx) -> Switches:
    """What is held back now."""
    return Switches(pauses=_pauses(tx), breakers=breaking.breakers(tx), failing=breaking.failing(tx))


def pause(tx: Tx, job_type: str, by: str, why: str) -> Pause:
    """Claim no jobs of a type; the pause that stands."""
    if tx.change("pause", type=job_type, who=by, why=access.said(why), now=tx.now):
        access.note(
            tx, "pause", "type", job_type, by=by, why=why, before={"paused": False}, after={"paused": True}
        )
        tx.change("revise")
    return _pauses(tx)[job_type]


def resume(tx: Tx, job_type: str, by: str, why: str) -> bool:
    """Claim them again."""
    resumed = tx.change("resume", type=job_type)
    if resumed:
        access.note(
            tx, "resume", "type", job_type, by=by, why=why, before={"paused": True}, after={"paused": False}
        )
        tx.change("revise")
    return bool(resumed)


def revision(tx: Tx) -> int:
    """Rises with every change of what is set, paused or switched."""
    row = tx.row("revision")
    return 0 if row is None else int(row["value"])


def _pauses(tx: Tx) -> dict[str, Pause]:
    return {
        row["type"]: Pause(type=row["type"], by=row["who"], why=row["why"], at=from_micros(row["paused_at"]))
        for row in tx.rows("pauses")
    }
