"""Take due jobs, on many machines at once, in the order that is promised; extend and look at leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from itertools import repeat
from time import monotonic
from typing import Any

import msgspec
from psycopg import errors

from windlass.clock import from_micros, span
from windlass.job import Lease, Request
from windlass.settings import ALL, KEY
from windlass.store import fleet, limits, rows, running
from windlass.store.engine import Claimed, Want
from windlass.store.fleet import Look
from windlass.store.lanes import in_order
from windlass.store.postgres import hot
from windlass.store.postgres.session import PostgresTx, numbers, texts

_PROMOTED_AT_ONCE = 1000
# How much further a lane is read than it must be: more when others were taking the same jobs.
_SLACKS = (1.0, 2.0, 4.0, 8.0, 16.0)
# So many dead rows remain only if something keeps them from being cleaned up.
_MANY_DEAD = 20_000
_FLOOR_SECONDS = 1.0
# So few are taken by a short statement, all of them.
_FEW = 16
# Claims that find so many go one after the other; a smaller one would wait longer than it takes.
_LARGE = 100
_MOST_KINDS = 1_000
# So long a turn is waited for: who has it may be frozen.
_TURN_PATIENCE = "100ms"


class Floors:
    """Below which seq nothing need be looked for, by the types that are wanted together.

    Claimed jobs leave dead entries at the head of their lanes. They stay as long as somebody else's
    transaction is open, and a claim that walks over all of them becomes slower with every job. What it found
    behind them is then remembered for a moment; so long a job that comes back with a lower number may wait.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.known: dict[tuple[str, ...], tuple[int, float]] = {}

    def get(self, types: Iterable[str]) -> int:
        floor, until = self.known.get(tuple(types), (0, 0.0))
        return floor if self._clock() < until else 0

    def learn(self, types: Iterable[str], head: int) -> None:
        """A claim found `head` to be the first of all jobs of the highest priority, behind many dead rows."""
        self.known[tuple(types)] = (head, self._clock() + _FLOOR_SECONDS)


class Recent:
    """How many jobs the last claim of some types found. The next one will find about as many."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, ...], int] = {}
        # Turns that were another's the last time: they are waited for at once.
        self.crowded: set[str] = set()


def claim(tx: PostgresTx, want: Want, floors: Floors, recent: Recent | None) -> Claimed:
    """Take due jobs: once for each request, with what others could not read, and within limits.

    `recent` is None behind a pooler: a claim is then one transaction, which must not end because a turn is
    waited for in vain. The same holds for a request, which others look for after its commit, and for jobs
    that become due for this claim: before it ends nobody else sees them, and mostly all of them are taken.
    """
    whole = want.mark is not None or bool(want.reader)
    with tx.part() if whole else nullcontext():
        if want.mark is not None:
            tx.rows("lock_request", mark=want.mark)
            if (before := running.claimed_before(tx, want)) is not None:
                return before
        if want.reader:
            tx.change(
                "offer_unread", types=list(want.types), reader=want.reader, limit=want.limit, now=tx.given
            )
        recent = None if whole else recent
        if not want.restricted and not want.lowest:
            return _claim_free(tx, want, floors, recent)
        return limits.claim(
            tx,
            want,
            _look(tx, want),
            promote=lambda _, types: _promote(tx, types, tx.now),
            plain=lambda _, others: _claim_free(tx, others, floors, recent),
        )


def _claim_free(tx: PostgresTx, want: Want, floors: Floors, recent: Recent | None) -> Claimed:
    """Take jobs that nothing restricts, in the way that fits what was there recently.

    Where few jobs are, a claim is mostly the beginning and the end of its statement: a short one takes them
    all. Where many are, those who claim at one moment would all want the same: each walks over what the
    others have locked, and asks again. So they take turns. That saves work and nothing else: whoever has
    waited for long enough claims all the same.
    """
    values: dict[str, Any] = {
        "types": list(want.types),
        "versions": list(want.types.values()),
        "worker": want.worker,
        "mark": want.mark,
        "lease": span(want.lease),
        "now": tx.given,
    }
    if recent is None:
        return _claim_batch(tx, want, values, floors, None, set())
    types = tuple(want.types)
    found = recent.found.get(types, 0)
    claimed = _claim_few(tx, want, values, floors) if want.limit >= _FEW >= found else None
    if claimed is None:
        turn = ",".join(sorted(types)) if min(want.limit, found) >= _LARGE else None
        claimed = _claim_batch(tx, want, values, floors, turn, recent.crowded)
    if len(recent.found) >= _MOST_KINDS:
        # Workers over HTTP name any types in any order.
        recent.found.clear()
        recent.crowded.clear()
    recent.found[types] = len(claimed.leases)
    return claimed


def _claim_few(tx: PostgresTx, want: Want, values: Mapping[str, Any], floors: Floors) -> Claimed | None:
    """All that is due; None, and nothing taken, if that is too much or some of it must be promoted first."""
    floor = floors.get(want.types) if floors.known else 0
    # More than it wants is never locked: others would be kept from what it leaves.
    found = tx.tuples("claim_few", few=min(_FEW, want.limit - 1), floor=floor, **values)
    (now, later, dead, more), taken = _told(found, 4)
    if more:
        return None
    if taken and not floor and dead > _MANY_DEAD:
        floors.learn(want.types, min(seq for _, seq, *_ in taken))
    if len(taken) > 1:
        taken = in_order(taken, want.turns)
    leases = rows.leases_of(taken, worker=want.worker, now=now, until=now + span(want.lease))
    return Claimed(leases, None if later is None else rows.from_span(max(0, later - now)))


def _claim_batch(
    tx: PostgresTx, want: Want, values: dict[str, Any], floors: Floors, turn: str | None, crowded: set[str]
) -> Claimed:
    """Take up to `want.limit` jobs: one statement, and another where the first had to stop early.

    The turn is tried within the statement. Asked for by one of its own, its answer would wait here until the
    event loop lets go of the interpreter, and so would the claim. If it is another's, or was the last time,
    the server waits for it, and the claim stands behind it already.
    """
    leases: list[Lease] = []
    values["afters"] = [*map(want.turns.get, want.types, repeat(""))]
    # Nothing to take: only when the next one is due is asked.
    values["promoted"] = want.limit <= 0 or not want.types
    hindered = 0
    while True:
        slack = _SLACKS[min(hindered, len(_SLACKS) - 1)]
        floor = floors.get(want.types) if floors.known else 0
        values |= {"limit": max(0, want.limit - len(leases)), "slack": slack, "floor": floor, "turn": turn}
        if turn in crowded:
            waits = {"turn": turn, "patience": _TURN_PATIENCE}
            try:
                [[free]], found = tx.tuples_after("claim_turn", waits, "claim_batch", values)
            except errors.LockNotAvailable:
                # Whoever has waited for long enough claims all the same.
                turn = None
                continue
            if free:
                crowded.discard(turn)
        else:
            found = tx.tuples("claim_batch", **values)
        (now, ours, later, more, head, dead), taken = _told(found, 6)
        if turn is not None and not ours:
            # Nothing was taken.
            crowded.add(turn)
            continue
        if not floor and head is not None and dead > _MANY_DEAD:
            floors.learn(want.types, head)
        if not values["promoted"] and later is not None and later <= now:
            _promote(tx, want.types, now)
            values["promoted"] = True
            continue
        taken = in_order(taken, want.turns)
        leases += rows.leases_of(taken, worker=want.worker, now=now, until=now + span(want.lease))
        hindered += 1
        if len(leases) >= want.limit or not more or (not taken and hindered > len(_SLACKS)):
            return Claimed(leases, None if later is None else rows.from_span(max(0, later - now)))


def _told(found: Iterable[tuple[Any, ...]], width: int) -> tuple[tuple[Any, ...], list[rows.Taken]]:
    """One row says how it stands, in so many columns; the others have a job's own behind them."""
    state: tuple[Any, ...] = ()
    taken: list[rows.Taken] = []
    for row in found:
        if row[0] is None:
            taken.append(row[width:])
        else:
            state = row[:width]
    return state, taken


def _promote(tx: PostgresTx, types: Iterable[str], now: int) -> None:
    tx.change("promote_types", types=list(types), now=now, limit=_PROMOTED_AT_ONCE)


def _look(tx: PostgresTx, want: Want) -> limits.LimitState:
    """How the limits stand, in one statement: most of those who ask find that nothing can start."""
    if not limits.can_start(want):
        return limits.NOTHING
    known = limits.limits_of(want)
    found = tx.rows(
        "look_at_limits",
        types=texts(want.restricted),
        versions=numbers(want.types[name] for name in want.restricted),
        names=texts(known),
        kinds=texts(ALL if name == ALL else KEY if name.startswith(KEY) else "" for name in known),
        owners=texts(name.removeprefix(KEY) for name in known),
        mosts=numbers(limit.concurrency or 0 for limit in known.values()),
        now=tx.given,
    )
    tx.learn(found[0]["clock"])
    types = [row for row in found if row["running"] is None]
    stands = [row for row in found if row["running"] is not None]
    return limits.LimitState(
        due=frozenset(row["name"] for row in types if row["due"]),
        later={row["name"]: row["at"] for row in types if row["at"] is not None},
        running={row["name"]: row["running"] for row in stands},
        next_at={row["name"]: row["at"] for row in stands if row["at"] is not None},
    )


def extend(tx: PostgresTx, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
    """Move the leases' end: (kept with their new end, lost). One that is locked now is kept as it is."""
    if not leases:
        return [], []
    fence = hot.fence(leases)
    moved = tx.rows("extend_batch", now=tx.given, by=span(by), **fence)
    ends = {row["token"]: from_micros(row["lease_until"]) for row in moved}
    if len(ends) < len(leases):
        held = {row["token"] for row in tx.rows("settled_already", **fence) if row["held"]}
        ends = {lease.token: lease.until for lease in leases if lease.token in held} | ends
    kept = [
        msgspec.structs.replace(lease, until=ends[lease.token]) for lease in leases if lease.token in ends
    ]
    return kept, [lease for lease in leases if lease.token not in ends]


def look(tx: PostgresTx, worker: str, types: Mapping[str, int], reader: str = "") -> Look:
    """One read of all that a worker must know each second."""
    wanted = {"types": list(types), "versions": numbers(types.values())}
    [row] = tx.rows("look", worker=worker, reader=reader, now=tx.given, **wanted)
    later, fires = row["later"], row["fires"]
    return Look(
        now=from_micros(row["now"]),
        workers=[fleet.worker_from(each) for each in msgspec.json.decode(row["workers"])],
        requests={token: Request(request) for token, request in msgspec.json.decode(row["requests"]).items()},
        expired=row["expired"],
        orphaned=row["orphaned"],
        claimable=row["claimable"],
        next_due=None if later is None else rows.from_span(max(0, later - row["now"])),
        next_fire=None if fires is None else rows.from_span(fires - row["now"]),
        revision=row["revision"],
        unread=row["unread"],
    )
