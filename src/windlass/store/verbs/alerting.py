"""Which alerts hold, since when, and who has been told?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.clock import from_micros, span
from windlass.store.observing import LOOKED, Noticed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.store.transaction import Tx


# Not an alert: the row of one who is about to tell somebody, with the alert's name and labels as its labels.
_TELLING = "telling"
# Longer than all tries to reach a webhook.
_CLAIMED_FOR = timedelta(minutes=1)


def noticed(tx: Tx) -> list[Noticed]:
    """Alerts whose condition held when last looked, or whose end was not sent yet."""
    return [
        Noticed(
            name=row["name"],
            labels=row["labels"],
            since=from_micros(row["since"]),
            seen_at=from_micros(row["seen_at"]),
            value=row["value"],
            told=bool(row["told"]),
        )
        for row in tx.rows("alerts", telling=_TELLING)
    ]


def notice(tx: Tx, holding: Mapping[tuple[str, str], float]) -> list[Noticed]:
    """Keep which alerts hold now, by name and labels, with their values.

    Answers all that hold, and those that hold no more but whose end was not sent yet.
    """
    tx.change("forget_claims", telling=_TELLING, before=tx.now - span(_CLAIMED_FOR))
    held = {(LOOKED, ""): 0.0, **holding}
    for name, labels in sorted(held):
        tx.change("note_alert", name=name, labels=labels, value=held[name, labels], now=tx.now)
    for each in noticed(tx):
        if (each.name, each.labels) not in held and not each.told:
            tx.change("forget_alert", name=each.name, labels=each.labels)
    return noticed(tx)


def may_tell(tx: Tx, name: str, labels: str, *, fires: bool) -> bool:
    """Claim the right to send an alert, or its end.

    True for one of those who ask, who then says `told`; if it does not within a minute, others may.
    """
    claim = {"telling": _TELLING, "of": _claim(name, labels), "now": tx.now}
    return bool(tx.change("claim_alert", name=name, labels=labels, told=int(fires), **claim))


def told(tx: Tx, name: str, labels: str, *, fires: bool | None) -> None:
    """Keep that an alert was sent, or its end; None: nobody could be reached, others may try."""
    if fires is not None:
        tx.change("tell_alert", name=name, labels=labels, told=int(fires))
    tx.change("forget_alert", name=_TELLING, labels=_claim(name, labels))


def _claim(name: str, labels: str) -> str:
    return f"{name} {labels}"
