"""How are due jobs taken where there is one writer?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import span
from windlass.errors import StoreUnavailable
from windlass.store import limits, rows, running
from windlass.store.engine import Claimed, Want
from windlass.store.fleet import claimable, next_due
from windlass.store.lanes import Lanes, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windlass.store.engine import Tx
    from windlass.store.limits import Standing
    from windlass.store.sqlite.connection import SqliteTx

_PROMOTED_AT_ONCE = 1000


def once_joined(tx: SqliteTx, verb: Callable[..., Claimed], want: Want, *args: object) -> Claimed:
    """Claim by `verb`, once for each request, from the file that knows the worker and from no other."""
    if want.generation is not None and want.generation != tx.generation:
        raise StoreUnavailable(
            f"the store's file was replaced, and worker {want.worker} has not joined the new file yet; "
            "nothing was claimed: ask again"
        )
    return running.once(tx, verb, want, *args)


def claim(tx: Tx, want: Want) -> Claimed:
    """Take up to `want.limit` due jobs, at a cost that does not depend on what is not claimable."""
    _promote(tx, want.types)
    if want.reader:
        _offer_unread(tx, want)
    lanes = (
        Lanes(tx, name, known, after=want.turns.get(name, "")).first(want.limit)
        for name, known in want.types.items()
    )
    picked = in_order(each for found in lanes for each in found)[: want.limit]
    if not picked:
        return Claimed([], next_due(tx, want.types))
    seqs = rows.json_text([candidate.seq for candidate in picked])
    until = tx.now + span(want.lease)
    tx.change("claim", picked=seqs, worker=want.worker, mark=want.mark, lease=span(want.lease), now=tx.now)
    [told] = tx.rows("claimed", picked=seqs)
    place = {candidate.seq: number for number, candidate in enumerate(picked)}
    leases = rows.leases_from(told["taken"], worker=want.worker, now=tx.now, until=until)
    leases.sort(key=lambda lease: place[lease.job.seq])
    return Claimed(leases, next_due(tx, want.types))


def claim_within_limits(tx: Tx, want: Want, standing: Standing) -> Claimed:
    """The same where some of the types are restricted; what was seen before only tells where to look."""
    if want.reader:
        _offer_unread(tx, want)
        # What was just offered was not due when somebody looked.
        standing = limits.look(tx, want)
    return limits.claim(tx, want, standing, promote=_promote, plain=claim)


def nothing_to_claim(tx: Tx, want: Want) -> Claimed | None:
    """The answer to a claim that would find nothing, without a write; None if it may find something."""
    return None if want.reader or claimable(tx, want.types) else Claimed([], next_due(tx, want.types))


def nothing_within_limits(tx: Tx, want: Want) -> Claimed | Standing:
    """The same where some of the types are restricted; how their limits stand, if it may find something."""
    free = {name: version for name, version in want.types.items() if name not in want.restricted}
    standing = limits.look(tx, want)
    outlook = limits.Outlook(want, standing, tx.now)
    if want.reader or outlook.ready or claimable(tx, free):
        return standing
    return Claimed([], next_due(tx, free), outlook.wait.time, held_back=outlook.held_back)


def _offer_unread(tx: Tx, want: Want) -> None:
    """Jobs that others could not read become due, and are claimed in the same transaction."""
    types = rows.json_text(list(want.types))
    found = tx.rows("unread_for", types=types, reader=want.reader, limit=want.limit)
    seqs = rows.json_text([row["seq"] for row in found])
    tx.change("unread_due", seqs=seqs, now=tx.now)
    tx.change("show_unread", seqs=seqs)


def _promote(tx: Tx, types: Iterable[str]) -> None:
    for job_type in types:
        tx.change("promote_type", type=job_type, now=tx.now, limit=_PROMOTED_AT_ONCE)
