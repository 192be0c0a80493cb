"""How are jobs taken whose types are restricted? In a transaction, under the locks of their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.store.postgres import claim as plain
from windlass.store.verbs import limiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.postgres.session import PostgresTx
    from windlass.store.protocol import Claimed, Want

_PROMOTED_AT_ONCE = 1000


def claim(tx: PostgresTx, want: Want, floors: plain.Floors) -> Claimed:
    """Restricted types first, as far as they have permits; the others as ever, in statements of their own."""
    return limiting.claim(
        tx,
        want,
        promote=lambda _, types: _promote(tx, types),
        plain=lambda _, others: plain.claim(tx, others, floors),
    )


def _promote(tx: PostgresTx, types: Sequence[str]) -> None:
    tx.change("promote_types", types=list(types), now=tx.now, limit=_PROMOTED_AT_ONCE)
