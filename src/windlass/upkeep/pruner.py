"""When do the records of ended jobs go?"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta

from windlass import settings
from windlass.clock import Clock, SystemClock
from windlass.loop import Loop
from windlass.store.keeping import Retention
from windlass.store.protocol import Store
from windlass.upkeep import ticks

log = logging.getLogger("windlass.pruner")

_EVERY = timedelta(minutes=10)
_BATCH = 1_000
# Long enough for a worker's own writes to come between two batches.
_BETWEEN_BATCHES = 0.1


# A dead letter is work that nobody has done: it goes only when the store's clock was seen to go on steadily
# for so long. One that was set wrong by a year, and is mended within that time, costs none of them.
_WATCHED = timedelta(hours=1)
_JUMP = timedelta(hours=1)
_NOT_NOW = timedelta(days=365 * 50)


class Pruner:
    """Deletes what is past its retention, in batches, slowly."""

    def __init__(
        self,
        store: Store,
        ticked: Callable[[str], None] = ticks.ignore,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._ticked = ticked
        self._clock = clock or SystemClock()
        self._pruned = 0
        # Since when the store's clock goes on as ours does: by both of them.
        self._steady_since: tuple[datetime, float] | None = None

    def tick(self) -> float | None:
        """Delete one batch; answers the pause before the next one, None when nothing is left."""
        kept = settings.read(self._store.settings())
        dead = kept.keep_dead if self._is_steady() else _NOT_NOW
        pruned = self._store.prune(Retention(ended=kept.keep_ended, dead=dead), limit=_BATCH)
        self._pruned += pruned
        if pruned:
            return _BETWEEN_BATCHES
        if self._pruned:
            log.info("store.pruned", extra={"jobs": self._pruned})
            self._pruned = 0
        self._ticked(ticks.PRUNE)
        return None

    def _is_steady(self) -> bool:
        """Whether the store's clock may be believed. Ours counts a machine's sleep, too: that is no jump."""
        now, risen = self._store.now(), self._clock.uptime()
        begun, began = self._steady_since or (now, risen)
        jump = now - begun - timedelta(seconds=risen - began)
        if abs(jump) > _JUMP:
            note = "dead letters are kept until it has gone on steadily for an hour"
            log.warning("store.clock_jumped", extra={"seconds": round(jump.total_seconds()), "note": note})
            begun, began = now, risen
        self._steady_since = (begun, began)
        return risen - began >= _WATCHED.total_seconds()

    def loop(self, chance: Callable[[], float] = random.random) -> Loop:
        """The pruner's own slow loop; workers that start together do not prune together."""
        return Loop("pruner", self.tick, every=_EVERY, first=_EVERY * chance(), jitter=_JITTER)


_JITTER = 0.1
