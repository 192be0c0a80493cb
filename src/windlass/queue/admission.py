"""Are so many jobs waiting that no more should be taken?"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.errors import QueueFull
from windlass.settings import ALL, Settings
from windlass.store.flow import Depths

if TYPE_CHECKING:
    from windlass.job import NewJob
    from windlass.queue.opening import Opening
    from windlass.store.store import Store

log = logging.getLogger("windlass.admission")

_REFRESH_SECONDS = 1.0
_WARN_SECONDS = 60.0
# Workers look more often; without them whoever enqueues does.
_OLD = timedelta(seconds=30)


class Admission:
    """Knows about how many jobs wait: as counted some seconds ago, and what this process has added since.

    Not exact, and need not be: what is refused at 500,000 may as well be refused a few thousand later.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._depths = Depths()
        self._added: Counter[str] = Counter()
        self._place: Store | None = None
        self._next_look = -math.inf
        # So many more of these types cannot come near a limit before the next look.
        self._room = 0
        self._roomy: set[str] = set()
        self._warned = -math.inf

    def check(
        self,
        jobs: Sequence[NewJob],
        store: Store,
        settings: Callable[[], Settings],
        *,
        guest: bool = False,
        soft: bool = False,
    ) -> None:
        """Refuse jobs, all of them, if too many wait. A guest's transaction must not wait for our count.

        `soft`: whoever comes over the network is refused where others are only warned.
        """
        if store is not self._place or self._opening.monotonic() >= self._next_look:
            self._look(store, guest=guest)
        if self._depths.elsewhere:
            return
        # Plain loops: every enqueue goes through them.
        roomy = len(jobs) <= self._room
        for job in jobs:
            roomy = roomy and job.type in self._roomy
        if not roomy:
            try:
                self._check_closely(jobs, settings(), soft=soft)
            except QueueFull:
                # A request that was accepted before adds nothing: the answer is the jobs that are there.
                if not store.accepted(jobs):
                    raise
                return
        self._room -= len(jobs)
        for job in jobs:
            self._added[job.type] += 1

    def _check_closely(self, jobs: Sequence[NewJob], settings: Settings, *, soft: bool) -> None:
        # Copied in one step: other threads add theirs meanwhile.
        depths = Counter(self._depths.pending) + Counter(self._added)
        coming = Counter(job.type for job in jobs)
        total = depths.total()
        for name, count in coming.items():
            self._judge(name, f"of type {name}", depths[name], count, settings, soft=soft)
        self._judge(ALL, "in all", total, len(jobs), settings, soft=soft)
        self._roomy = {*depths, *coming}
        left = [_lower(settings, name) - depths[name] for name in self._roomy]
        self._room = min(_lower(settings, ALL) - total, *left)

    def _judge(self, name: str, of: str, depth: int, count: int, settings: Settings, *, soft: bool) -> None:
        most, warned = settings.hard_depth(name), settings.soft_depth(name)
        if depth + count > most:
            raise QueueFull(of, depth, most)
        if depth + count > warned:
            if soft:
                raise QueueFull(of, depth, warned, "soft_depth")
            self._warn(of, depth, warned)

    def _warn(self, of: str, depth: int, soft: int) -> None:
        now = self._opening.monotonic()
        if now - self._warned >= _WARN_SECONDS:
            self._warned = now
            note = "more are taken, up to hard_depth"
            log.warning("queue.deep", extra={"jobs": depth, "of": of, "soft_depth": soft, "note": note})

    def _look(self, store: Store, *, guest: bool) -> None:
        """How many does the store say are waiting? Then every job is looked at closely once."""
        now = self._opening.monotonic()
        found = store.depths()
        if not guest and not found.elsewhere and (found.age is None or found.age > _OLD):
            found = store.take_sample(_OLD).depths()
        if self._place is not store or found.at != self._depths.at:
            # Counted since we looked: what we had added is in it.
            self._added.clear()
        self._depths, self._room = found, 0
        self._place, self._next_look = store, now + _REFRESH_SECONDS


def _lower(settings: Settings, name: str) -> int:
    return min(settings.soft_depth(name), settings.hard_depth(name))
