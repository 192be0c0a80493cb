"""Which type is passed over again and again, since smaller jobs take whatever memory comes free?"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import timedelta

from windlass.clock import Clock
from windlass.job import Lease, View
from windlass.store.observing import Standing
from windlass.store.protocol import Store
from windlass.worker.pool import Pool

# So long a job may wait for memory before it is kept for its type.
_PATIENCE = timedelta(seconds=30)
_LOOK_SECONDS = 10.0
# What the last sample says of a type that was asked for is old news for so long.
_ASKED_SECONDS = 30.0


class Keeping:
    """Keeps memory free for one type at a time, until it has been asked for with room for it.

    Only against jobs of the same or a lower priority: more urgent ones go first, whatever they need. What
    waits, and how long, is known by the last sample of the store.
    """

    def __init__(self, store: Store, pools: Sequence[Pool], *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        sharing = [pool for pool in pools if pool.shares_memory]
        self._budget = sharing[0].budget if sharing else None
        self._needs = {name: need for pool in sharing for name, need in pool.memory.items()}
        # The lowest priority of what took memory since the last look.
        self._lowest = math.inf
        self._next_look = 0.0
        self._asked: dict[str, float] = {}

    def took(self, leases: Iterable[Lease]) -> None:
        """These were claimed."""
        if self._budget is not None:
            priorities = (lease.job.priority for lease in leases if lease.job.type in self._needs)
            self._lowest = min(self._lowest, *priorities, math.inf)

    def asked(self, types: Container[str]) -> None:
        """Jobs of these types were asked for: who had memory kept has got it, or does not need it."""
        if self._budget is not None and self._budget.kept in types:
            self._asked[self._budget.kept] = self._clock.monotonic()
            self._budget.keep("", 0)

    def look(self, shut: Callable[[str], bool]) -> None:
        """Now and then: see who waits for memory, and keep it for the one who should have had it first."""
        now = self._clock.monotonic()
        if self._budget is None or now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        lowest, self._lowest = self._lowest, math.inf
        if kept := self._budget.kept:
            # It stays so while its type waits, also when nobody passes it any more.
            waits = self._waiting({kept}, -math.inf)
        else:
            waits = self._waiting(self._tight(self._budget.left, now), lowest)
        found = [each for each in waits if not shut(each.type)]
        first = max(found, key=lambda each: (each.priority, each.oldest or _PATIENCE), default=None)
        job_type = "" if first is None else first.type
        self._budget.keep(job_type, self._needs.get(job_type, 0))

    def _tight(self, left: int, now: float) -> set[str]:
        """Types that there is no room for now, and that were not asked for lately."""
        return {
            name
            for name, need in self._needs.items()
            if need > left and now - self._asked.get(name, -math.inf) >= _ASKED_SECONDS
        }

    def _waiting(self, types: set[str], least: float) -> list[Standing]:
        """Where their jobs have waited for too long, of such a priority at least."""
        if not types or least == math.inf:
            return []
        return [
            each
            for each in self._store.sample().standing
            if each.type in types
            and each.view == View.DUE
            and each.priority >= least
            and each.oldest is not None
            and each.oldest >= _PATIENCE
        ]
