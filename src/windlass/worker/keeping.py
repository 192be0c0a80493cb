"""Which type is passed over again and again, since smaller jobs take whatever memory comes free?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import timedelta

from windlass.clock import Clock
from windlass.job import Lease, View
from windlass.store.samples import Standing
from windlass.store.store import Store
from windlass.worker.pool import Pool

# So long a job may wait for memory before it is kept for its type.
_PATIENCE = timedelta(seconds=30)
_LOOK_SECONDS = 10.0
# What the last sample says of a type that was asked for is old news for so long; and whoever does not come
# when there is room (another limit holds them, a newer release is meant) is waited for ever less often.
_ASKED_SECONDS = 30.0
_LONGEST_SECONDS = 600.0
_MOST_DOUBLINGS = 5


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
        # Whether there was room at the last look for the type that memory is kept for.
        self._roomy = False
        # How often in a row a type was given room in vain, and until when none is kept for it.
        self._in_vain: Counter[str] = Counter()
        self._not_before: dict[str, float] = {}

    def took(self, leases: Iterable[Lease]) -> None:
        """These were claimed."""
        if self._budget is not None:
            priorities = (lease.job.priority for lease in leases if lease.job.type in self._needs)
            self._lowest = min(self._lowest, *priorities, math.inf)

    def asked(self, types: Container[str], leases: Iterable[Lease]) -> bool:
        """Jobs of these types were asked for: who had memory kept has got it, or does not need it.

        True if others may have it again.
        """
        if self._budget is None or self._budget.kept not in types:
            return False
        kept = self._budget.kept
        self._put_off(kept, in_vain=all(lease.job.type != kept for lease in leases))
        self._keep("")
        return True

    def look(self, shut: Callable[[str], bool]) -> bool:
        """Now and then: see who waits for memory, and keep it for the one who should have had it first.

        True if it is kept no more for the one that it was kept for.
        """
        now = self._clock.monotonic()
        if self._budget is None or now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        lowest, self._lowest = self._lowest, math.inf
        kept, left = self._budget.kept, self._budget.left
        if not kept:
            self._keep(self._first(self._tight(left, now), lowest, shut))
            return False
        if self._roomy:
            # There has been room for a while: what it lacks is a slot, and others shall not wait for that.
            self._put_off(kept, in_vain=True)
            self._keep("")
        else:
            # It stays so while its type waits, also when nobody passes it any more.
            self._keep(self._first({kept}, -math.inf, shut))
            self._roomy = self._needs[kept] <= left
        return self._budget.kept != kept

    def _keep(self, job_type: str) -> None:
        if self._budget is not None:
            self._budget.keep(job_type, self._needs.get(job_type, 0))
            self._roomy = False

    def _put_off(self, job_type: str, *, in_vain: bool) -> None:
        """Keep nothing for a type for a while."""
        doublings = min(self._in_vain[job_type], _MOST_DOUBLINGS) if in_vain else 0
        self._in_vain[job_type] = doublings + in_vain
        pause = min(_ASKED_SECONDS * 2**doublings, _LONGEST_SECONDS)
        self._not_before[job_type] = self._clock.monotonic() + pause

    def _tight(self, left: int, now: float) -> set[str]:
        """Types that there is no room for now, and that were not asked for lately."""
        return {
            name
            for name, need in self._needs.items()
            if need > left and now >= self._not_before.get(name, -math.inf)
        }

    def _first(self, types: set[str], least: float, shut: Callable[[str], bool]) -> str:
        """That of the types whose jobs have waited for too long, of such a priority at least; or none."""
        if not types or least == math.inf:
            return ""
        due = [each for each in self._store.sample().standing if self._waits(each) and not shut(each.type)]
        late = [each for each in due if each.type in types and each.priority >= least and _is_late(each)]
        first = max(late, key=lambda each: (each.priority, each.oldest or _PATIENCE), default=None)
        if first is None or any(_goes_before(each, first) for each in due):
            return ""
        return first.type

    def _waits(self, each: Standing) -> bool:
        return each.type in self._needs and each.view == View.DUE


def _is_late(each: Standing) -> bool:
    return each.oldest is not None and each.oldest >= _PATIENCE


def _goes_before(each: Standing, first: Standing) -> bool:
    """Whether it is more urgent and comes at once: what has waited for long lacks something else."""
    return each.type != first.type and each.priority > first.priority and not _is_late(each)
