"""How are jobs taken whose types are restricted? In a transaction, under the locks of their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.settings import ALL, KEY
from windlass.store import limits
from windlass.store.limits import NOTHING, Standing, can_start, limits_of
from windlass.store.postgres.arrays import numbers, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windlass.store.engine import Claimed, Want
    from windlass.store.postgres.claim import Floors
    from windlass.store.postgres.session import PostgresTx

    Plain = Callable[[PostgresTx, Want, Floors], Claimed]

_PROMOTED_AT_ONCE = 1000


def claim(plain: Plain, tx: PostgresTx, want: Want, floors: Floors) -> Claimed:
    """Restricted types first, as far as they have permits; the others as ever, by the `plain` claim."""
    return limits.claim(
        tx,
        want,
        _look(tx, want),
        promote=lambda _, types: _promote(tx, types),
        plain=lambda _, others: plain(tx, others, floors),
    )


def _look(tx: PostgresTx, want: Want) -> Standing:
    """How the limits stand, in one statement: most of those who ask find that nothing can start."""
    if not can_start(want):
        return NOTHING
    limits = limits_of(want)
    found = tx.rows(
        "look_at_limits",
        types=texts(want.restricted),
        versions=numbers(want.types[name] for name in want.restricted),
        names=texts(limits),
        kinds=texts(ALL if name == ALL else KEY if name.startswith(KEY) else "" for name in limits),
        owners=texts(name.removeprefix(KEY) for name in limits),
        mosts=numbers(limit.concurrency or 0 for limit in limits.values()),
        now=tx.given,
    )
    tx.tell(found[0]["clock"])
    types = [row for row in found if row["running"] is None]
    stands = [row for row in found if row["running"] is not None]
    return Standing(
        due=frozenset(row["name"] for row in types if row["due"]),
        later={row["name"]: row["at"] for row in types if row["at"] is not None},
        running={row["name"]: row["running"] for row in stands},
        next_at={row["name"]: row["at"] for row in stands if row["at"] is not None},
    )


def _promote(tx: PostgresTx, types: Sequence[str]) -> None:
    tx.change("promote_types", types=list(types), now=tx.now, limit=_PROMOTED_AT_ONCE)
