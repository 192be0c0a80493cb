"""Which jobs start where some of the types are restricted? Limits, breakers and shares (decision 009)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from windlass.clock import span
from windlass.store import rows
from windlass.store.protocol import Claimed, Want
from windlass.store.verbs.fleet import next_due
from windlass.store.verbs.lanes import Candidate, Lanes, in_order
from windlass.store.verbs.permits import Counter, Outlook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windlass.job import Lease
    from windlass.store.flow import Restriction
    from windlass.store.transaction import Tx
    from windlass.store.verbs.permits import Standing


def claim(
    tx: Tx,
    want: Want,
    standing: Standing,
    *,
    promote: Callable[[Tx, Sequence[str]], None],
    plain: Callable[[Tx, Want], Claimed],
) -> Claimed:
    """Take due jobs, those of restricted types only as far as there are permits; `plain` takes the others."""
    free = {name: version for name, version in want.types.items() if name not in want.restricted}
    outlook = Outlook(want, standing, tx.now)
    leases: list[Lease] = []
    if outlook.ready or want.lowest:
        with tx.part():
            leases = _take_restricted(tx, want, outlook, free, promote)
    rest = want.limit - len(leases)
    due = None
    if free and rest > 0:
        others = plain(tx, msgspec.structs.replace(want, types=free, limit=rest, restricted={}, lowest=0))
        leases = _in_order([*leases, *others.leases])
        due = others.next_due
    elif free:
        due = next_due(tx, free)
    wait = outlook.wait
    return Claimed(leases, due, wait.time, held_back=outlook.held_back, contended=wait.contended)


def _take_restricted(
    tx: Tx,
    want: Want,
    outlook: Outlook,
    free: Mapping[str, int],
    promote: Callable[[Tx, Sequence[str]], None],
) -> list[Lease]:
    come = [*outlook.overdue, *(free if want.lowest else ())]
    if come:
        promote(tx, come)
        outlook.wait.for_(next_due(tx, outlook.overdue))
    counter = Counter(tx, want, outlook)
    lowest = _lowest(tx, want, counter, outlook.ready, free) if want.lowest else []
    leases = _take(tx, want, lowest, counter)
    candidates = in_order(counter.first(outlook.ready))
    leases += _take(tx, want, _chosen(tx, counter.slots, candidates, free), counter)
    outlook.held_back |= counter.held_back
    return leases


def adopt(tx: Tx, restricted: Mapping[str, Restriction]) -> None:
    """Let running jobs that were claimed before a limit was known count under it."""
    for name, restriction in sorted(restricted.items()):
        tx.change("adopt", type=name, limit_key=restriction.key)


def hold(tx: Tx, leases: Iterable[Lease]) -> None:
    """Let work that outlives its attempt keep its permits, before the attempt is settled."""
    for lease in leases:
        tx.change("hold_permits", seq=lease.job.seq, token=lease.token)


def let_go(tx: Tx, tokens: Sequence[str]) -> None:
    """Work that went on after it was settled has ended: others may have its permits."""
    for token in sorted(tokens):
        tx.change("let_go", token=token)


def _chosen(
    tx: Tx, slots: int, candidates: Sequence[Candidate], free: Mapping[str, int]
) -> Sequence[Candidate]:
    """Those whose turn it is: jobs of unrestricted types with a higher priority go first, then older ones."""
    if not free or not candidates:
        return candidates
    chosen: list[Candidate] = []
    types = rows.json_text(dict(free))
    for priority in sorted({each.priority for each in candidates}, reverse=True):
        band = [each for each in candidates if each.priority == priority]
        room = max(0, slots - _rivals_above(tx, types, priority, slots) - len(chosen))
        if 2 * len(band) <= room:
            # The half that may go before older rivals is room for all of them.
            chosen += band
            continue
        row = tx.row("rivals_first", types=types, priority=priority) if room else None
        head = None if row is None else row["head"]
        older = [each for each in band if head is None or each.seq < head][:room]
        # Of those that came after the first rival about half: neither kind waits for the other's end.
        younger = [each for each in band if each not in older][: (room - len(older)) // 2]
        chosen += [*older, *younger]
    return chosen


def _rivals_above(tx: Tx, types: str, priority: int, most: int) -> int:
    row = tx.row("rivals_above", types=types, priority=priority, limit=most)
    return 0 if row is None else row["ahead"] or 0


def _lowest(
    tx: Tx, want: Want, counter: Counter, ready: Sequence[str], free: Mapping[str, int]
) -> list[Candidate]:
    """A few jobs of the lowest priority before the others: they have their share, whatever comes above."""
    found = counter.lowest(ready, want.lowest)
    for name, known in free.items():
        found += Lanes(tx, name, known, after=want.turns.get(name, "")).lowest(want.lowest)
    if not found:
        return []
    lowest = min(each.priority for each in found)
    return in_order(each for each in found if each.priority == lowest)[: want.lowest]


def _take(tx: Tx, want: Want, chosen: Sequence[Candidate], counter: Counter) -> list[Lease]:
    picked = counter.within(chosen)
    taken: list[Lease] = []
    for job_type in sorted({each.type for each in picked}):
        restriction = want.restricted.get(job_type)
        found = tx.rows(
            "claim_limited",
            picked=rows.json_text([each.seq for each in picked if each.type == job_type]),
            limit_key=None if restriction is None else restriction.key,
            worker=want.worker,
            mark=want.mark,
            until=tx.now + span(want.lease),
            now=tx.now,
        )
        taken += [rows.lease_from(row) for row in found]
    counter.note(taken)
    place = {each.seq: number for number, each in enumerate(picked)}
    return sorted(taken, key=lambda lease: place[lease.job.seq])


def _in_order(leases: list[Lease]) -> list[Lease]:
    """The higher priority first; else as they came."""
    return sorted(leases, key=lambda lease: -lease.job.priority)
