"""How are due jobs taken by many machines at once, in the order that is promised?"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from windlass.clock import span
from windlass.store import rows
from windlass.store.protocol import Claimed, Want

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from windlass.job import Lease
    from windlass.store.postgres.session import PostgresTx
    from windlass.store.transaction import Row

_PROMOTED_AT_ONCE = 1000
# How much further a lane is read than it must be: more when others were taking the same jobs.
_SLACKS = (1.0, 2.0, 4.0, 8.0, 16.0)
# So many dead rows remain only if something keeps them from being cleaned up.
_MANY_DEAD = 20_000
_FLOOR_SECONDS = 1.0
# Claims of so many go one after the other; a smaller one would wait longer than it takes.
_LARGE = 100
_TURN_SECONDS = 0.004
_TURN_TRIES = 25


class Floors:
    """Below which seq nothing need be looked for, by the types that are wanted together.

    Claimed jobs leave dead entries at the head of their lanes. They stay as long as somebody else's
    transaction is open, and a claim that walks over all of them becomes slower with every job. What it found
    behind them is then remembered for a moment; so long a job that comes back with a lower number may wait.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: dict[tuple[str, ...], tuple[int, float]] = {}

    def get(self, types: Iterable[str]) -> int:
        """The floor for these types; 0 if there is none."""
        floor, until = self._known.get(tuple(types), (0, 0.0))
        return floor if self._clock() < until else 0

    def learn(self, types: Iterable[str], head: int | None, dead: int) -> None:
        """A claim without a floor found `head` to be the first of all jobs of the highest priority."""
        if head is not None and dead > _MANY_DEAD:
            self._known[tuple(types)] = (head, self._clock() + _FLOOR_SECONDS)


def claim_in_turn(tx: PostgresTx, want: Want, floors: Floors) -> Claimed:
    """The same, but large claims of the same types wait for each other for a moment.

    At one moment they would all want the same jobs: each walks over what the others have locked, and asks
    again. It saves work and nothing else: whoever has waited for long enough claims all the same.
    """
    if want.limit < _LARGE:
        return claim(tx, want, floors)
    with _turn(tx, ",".join(sorted(want.types))):
        return claim(tx, want, floors)


@contextmanager
def _turn(tx: PostgresTx, types: str) -> Iterator[None]:
    pause = threading.Event()
    ours = any(_is_ours(tx, types) or pause.wait(_TURN_SECONDS) for _ in range(_TURN_TRIES))
    try:
        yield
    finally:
        if ours:
            # If that fails the session is at its end, and the turn with it.
            with suppress(psycopg.Error):
                tx.rows("pass_turn", types=types)


def _is_ours(tx: PostgresTx, types: str) -> bool:
    [row] = tx.rows("take_turn", types=types)
    return bool(row["ours"])


def claim(tx: PostgresTx, want: Want, floors: Floors) -> Claimed:
    """Take up to `want.limit` jobs: one statement, and another where the first had to stop early."""
    if want.limit <= 0 or not want.types:
        return Claimed([], _next_due(_ask(tx, want, 0, slack=1.0, promoted=True, floor=0)[0]))
    leases: list[Lease] = []
    promoted = False
    hindered = 0
    while True:
        slack = _SLACKS[min(hindered, len(_SLACKS) - 1)]
        floor = floors.get(want.types)
        found = _ask(tx, want, want.limit - len(leases), slack=slack, promoted=promoted, floor=floor)
        state = found[0]
        if not floor:
            floors.learn(want.types, state["head"], state["dead"])
        if not promoted and state["later"] is not None and state["later"] <= state["clock"]:
            tx.change("promote_types", types=list(want.types), now=state["clock"], limit=_PROMOTED_AT_ONCE)
            promoted = True
            continue
        taken = sorted((row for row in found if row["seq"] is not None), key=_place)
        leases += [rows.lease_from(row) for row in taken]
        hindered += 1
        if len(leases) >= want.limit or not state["more"] or (not taken and hindered > len(_SLACKS)):
            return Claimed(leases, _next_due(state))


def _ask(
    tx: PostgresTx, want: Want, limit: int, *, slack: float, promoted: bool, floor: int
) -> Sequence[Row]:
    return tx.rows(
        "claim_batch",
        types=list(want.types),
        versions=list(want.types.values()),
        afters=[want.turns.get(name, "") for name in want.types],
        limit=limit,
        slack=slack,
        promoted=promoted,
        floor=floor,
        worker=want.worker,
        mark=want.mark,
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
