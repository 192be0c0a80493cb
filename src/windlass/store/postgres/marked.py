"""What if one claim comes to two servers at once? One of them waits, and finds what the other took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.store import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.store.engine import Claimed, Want
    from windlass.store.postgres.claim import Floors
    from windlass.store.postgres.session import PostgresTx


def once(verb: Callable[..., Claimed], tx: PostgresTx, want: Want, floors: Floors) -> Claimed:
    """Claim by `verb`, unless this request has. In a transaction: others look after its commit."""
    with tx.part():
        tx.rows("lock_request", mark=want.mark)
        return running.once(tx, verb, want, floors)
