"""How are types paused, and how do workers hear of it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import from_micros, span
from windlass.store.flow import HANG, ISOLATED, Pause, Switches
from windlass.store.verbs import access, breaking

if TYPE_CHECKING:
    from windlass.store.transaction import Row, Tx


def switches(tx: Tx) -> Switches:
    """What is held back now; of names that are failing every worker tells what it sees."""
    found = tx.rows("switches")
    failing = {row["name"]: row["changed_at"] for row in found if row["what"] == "failing"}
    hangs = {name: at for name, at in failing.items() if name.startswith(HANG)}
    return Switches(
        pauses={row["name"]: _pause(row) for row in found if row["what"] == "pause"},
        breakers={row["name"]: breaking.breaker_from(row) for row in found if row["what"] == "breaker"},
        failing=frozenset(failing) - hangs.keys(),
        hanging=frozenset(
            name.removeprefix(HANG) for name, at in hangs.items() if at > tx.now - span(ISOLATED)
        ),
    )


def pause(tx: Tx, job_type: str, *, by: str = "", why: str = "") -> Pause:
    """Claim no jobs of a type until it is resumed; if it is paused already, that pause stays."""
    if tx.change("pause", type=job_type, who=by, why=access.said(why), now=tx.now):
        access.note(
            tx, "pause", "type", job_type, by=by, why=why, before={"paused": False}, after={"paused": True}
        )
        tx.change("revise")
    return switches(tx).pauses[job_type]


def resume(tx: Tx, job_type: str, *, by: str = "", why: str = "") -> bool:
    """Claim jobs of a type again; False if it was not paused."""
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


def _pause(row: Row) -> Pause:
    return Pause(type=row["name"], by=row["who"], why=row["why"], at=from_micros(row["changed_at"]))
