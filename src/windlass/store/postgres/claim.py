"""How are due jobs taken by many machines at once, in the order that is promised?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.clock import span
from windlass.store import rows
from windlass.store.protocol import Claimed, Want

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.job import Lease
    from windlass.store.postgres.session import PostgresTx
    from windlass.store.transaction import Row

_PROMOTED_AT_ONCE = 1000
# How much further a lane is read than it must be: more when others were taking the same jobs.
_SLACKS = (1.0, 2.0, 4.0, 8.0, 16.0)


def claim(tx: PostgresTx, want: Want) -> Claimed:
    """Take up to `want.limit` jobs: one statement, and another where the first had to stop early."""
    if want.limit <= 0 or not want.types:
        return Claimed([], _next_due(_ask(tx, want, 0, slack=1.0, promoted=True)[0]))
    leases: list[Lease] = []
    promoted = False
    hindered = 0
    while True:
        slack = _SLACKS[min(hindered, len(_SLACKS) - 1)]
        found = _ask(tx, want, want.limit - len(leases), slack=slack, promoted=promoted)
        state = found[0]
        if not promoted and state["later"] is not None and state["later"] <= state["clock"]:
            tx.change("promote_types", types=list(want.types), now=state["clock"], limit=_PROMOTED_AT_ONCE)
            promoted = True
            continue
        taken = sorted((row for row in found if row["seq"] is not None), key=_place)
        leases += [rows.lease_from(row) for row in taken]
        hindered += 1
        if len(leases) >= want.limit or not state["more"] or (not taken and hindered > len(_SLACKS)):
            return Claimed(leases, _next_due(state))


def _ask(tx: PostgresTx, want: Want, limit: int, *, slack: float, promoted: bool) -> Sequence[Row]:
    return tx.rows(
        "claim_batch",
        types=list(want.types),
        versions=list(want.types.values()),
        afters=[want.turns.get(name, "") for name in want.types],
        limit=limit,
        slack=slack,
        promoted=promoted,
        worker=want.worker,
        lease=span(want.lease),
        now=tx.given,
    )


def _place(row: Row) -> int:
    place: int = row["place"]
    return place


def _next_due(state: Row) -> timedelta | None:
    if state["later"] is None:
        return None
    return timedelta(microseconds=max(0, state["later"] - state["clock"]))
