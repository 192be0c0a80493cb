"""Which workers are dead, and which leases are given up? Counts silence; touches nothing.

Time counts against somebody only while the watchman sees them stand still *and* is itself well: an outage,
a frozen process or a jump of a clock must never turn the living fleet into corpses whose jobs all run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from windlass.job import Lease
from windlass.store.fleet import WorkerInfo

DEAD_AFTER = 10.0
UNRENEWED_AFTER = 10.0
MOST_PER_CHECK = 2.0
WELL_WITHIN = 3.0


class Pulse(msgspec.Struct, frozen=True):
    """How the watching worker itself is: when its last committed beat was sent, and how many gaps it had."""

    sent: float
    gaps: int


class Losses(msgspec.Struct, frozen=True):
    """Who is dead, and which leases of living workers nobody renews."""

    dead: list[WorkerInfo]
    unrenewed: list[Lease]


class Watchman:
    """Watches beats and expired leases from one check to the next."""

    def __init__(self, *, gone: Callable[[WorkerInfo], bool]) -> None:
        self._gone = gone
        self._workers = _Silences()
        self._leases = _Silences()
        self._checked: float | None = None
        self._gaps = 0

    def check(
        self, me: str, workers: Iterable[WorkerInfo], expired: Sequence[Lease], *, pulse: Pulse, now: float
    ) -> Losses:
        """What this check adds up to; `now` and the pulse are on one clock that only rises."""
        step = self._step(pulse, now)
        others = [worker for worker in workers if worker.id != me]
        silent = self._workers.count({(worker.id, worker.beat) for worker in others}, step)
        unrenewed = self._leases.count({(lease.token, lease.until) for lease in expired}, step)
        return Losses(
            [each for each in others if silent[each.id, each.beat] >= DEAD_AFTER or self._gone(each)],
            [each for each in expired if unrenewed[each.token, each.until] >= UNRENEWED_AFTER],
        )

    def _step(self, pulse: Pulse, now: float) -> float:
        """How much silence this check may add to whoever stands still."""
        elapsed = 0.0 if self._checked is None else now - self._checked
        self._checked = now
        well = now - pulse.sent <= WELL_WITHIN
        if not well or pulse.gaps != self._gaps:
            self._gaps = pulse.gaps
            self._workers.forget()
            self._leases.forget()
            return 0.0
        return min(elapsed, MOST_PER_CHECK)


class _Silences:
    """Seconds for which each thing was seen unmoved; one that moved, or is new, starts at zero."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[object, ...], float] = {}

    def count(self, seen: set[tuple[object, ...]], step: float) -> dict[tuple[object, ...], float]:
        known = self._seconds
        self._seconds = {each: known[each] + step if each in known else 0.0 for each in seen}
        return self._seconds

    def forget(self) -> None:
        self._seconds = dict.fromkeys(self._seconds, 0.0)
