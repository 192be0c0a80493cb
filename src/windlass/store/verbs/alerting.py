"""Which alerts hold, since when, and who has been told?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.store.observing import LOOKED, Noticed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.store.transaction import Tx


def noticed(tx: Tx) -> list[Noticed]:
    """What is known."""
    return [
        Noticed(
            name=row["name"],
            labels=row["labels"],
            since=from_micros(row["since"]),
            seen_at=from_micros(row["seen_at"]),
            value=row["value"],
            told=bool(row["told"]),
        )
        for row in tx.rows("alerts")
    ]


def notice(tx: Tx, holding: Mapping[tuple[str, str], float]) -> list[Noticed]:
    """Keep which hold now. One that holds no more stays until whoever was told of it is told that."""
    held = {(LOOKED, ""): 0.0, **holding}
    for name, labels in sorted(held):
        tx.change("note_alert", name=name, labels=labels, value=held[name, labels], now=tx.now)
    for each in noticed(tx):
        if (each.name, each.labels) not in held and not each.told:
            tx.change("forget_alert", name=each.name, labels=each.labels)
    return noticed(tx)


def tell(tx: Tx, name: str, labels: str, fires: bool) -> bool:  # noqa: FBT001 - passed on by position
    """Only one of those who ask may tell."""
    return bool(tx.change("tell_alert", name=name, labels=labels, told=int(fires)))
