"""When do the records of ended jobs go?"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import timedelta

from windlass import settings
from windlass.loop import Loop
from windlass.store.keeping import Retention
from windlass.store.protocol import Store
from windlass.upkeep import ticks

log = logging.getLogger("windlass.pruner")

_EVERY = timedelta(minutes=10)
_BATCH = 1_000
# Long enough for a worker's own writes to come between two batches.
_BETWEEN_BATCHES = 0.1


class Pruner:
    """Deletes what is past its retention, in batches, slowly."""

    def __init__(self, store: Store, ticked: Callable[[str], None] = ticks.ignore) -> None:
        self._store = store
        self._ticked = ticked
        self._pruned = 0

    def tick(self) -> float | None:
        """Delete one batch; answers the pause before the next one, None when nothing is left."""
        kept = settings.read(self._store.settings())
        pruned = self._store.prune(Retention(ended=kept.keep_ended, dead=kept.keep_dead), limit=_BATCH)
        self._pruned += pruned
        if pruned:
            return _BETWEEN_BATCHES
        if self._pruned:
            log.info("store.pruned", extra={"jobs": self._pruned})
            self._pruned = 0
        self._ticked(ticks.PRUNE)
        return None

    def loop(self, chance: Callable[[], float] = random.random) -> Loop:
        """The pruner's own slow loop; workers that start together do not prune together."""
        return Loop("pruner", self.tick, every=_EVERY, first=_EVERY * chance(), jitter=_JITTER)


_JITTER = 0.1
