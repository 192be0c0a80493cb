"""What if a claim comes twice? The second finds what the first one took, and takes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from windlass.store.protocol import Claimed, Want
from windlass.store.verbs import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.store.transaction import Tx

T = TypeVar("T")


def once(tx: Tx, verb: Callable[..., T], want: Want, *args: object) -> T | Claimed:
    """Claim by `verb`, unless leases in the worker's name end with the mark of this request."""
    if want.mark is not None:
        held = running.held_by(tx, want.worker)
        found = [lease for lease in held if lease.token.replace("-", "").endswith(want.mark)]
        if found:
            return Claimed(found, repeated=True)
    return verb(tx, want, *args)
