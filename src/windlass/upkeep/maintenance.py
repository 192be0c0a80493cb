"""Delete records past their retention; note when each kind of upkeep last succeeded."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import timedelta

from windlass import settings
from windlass.clock import Clock, SystemClock
from windlass.loop import Loop
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.store.store import Store
from windlass.store.upkeep import Retention
from windlass.upkeep.membership import here

log = logging.getLogger("windlass.pruner")

_EVERY = timedelta(minutes=10)
_JITTER = 0.1
_BATCH = 1_000
# Long enough for a worker's own writes to come between two batches.
_BETWEEN_BATCHES = 0.1
# A dead letter is work that nobody has done: it goes only when the store's clock was seen to go on steadily
# for so long. One that was set wrong by a year, and is fixed within that time, costs none of them.
_WATCHED = timedelta(hours=1)
_NOT_NOW = timedelta(days=365 * 50)
# In whose name the audit log tells of dead letters that have gone.
_BY = "retention"
# A worker that runs until there is nothing left to do prunes in its end, but not for ever.
_MOST_BATCHES = 100
REAP = "reap"
PROMOTE = "promote"
SCHEDULE = "schedule"
PRUNE = "prune"
EVERY = timedelta(seconds=30)
_FIRST = timedelta(seconds=2)


class Ticks:
    """What one process has to tell."""

    def __init__(self, store: Store, who: Callable[[], str], *, clock: Clock) -> None:
        self._store = store
        self._who = who
        self._clock = clock
        self._at: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self.loop = Loop("ticks", self.tell, every=EVERY, first=_FIRST, jitter=_JITTER)

    def note(self, name: str) -> None:
        """A pass has come to its end; any thread may say so, as often as it likes."""
        self._at[name] = self._clock.monotonic()

    def tell(self) -> None:
        """Tell the store what is news."""
        now, noted = self._clock.monotonic(), dict(self._at)
        news = {name: timedelta(seconds=now - at) for name, at in noted.items() if self._told.get(name) != at}
        if news:
            self._store.note_ticks(news, self._who())
            self._told = noted


class Pruner:
    """Deletes what is past its retention, in batches, slowly."""

    def __init__(
        self,
        store: Store,
        ticked: Callable[[str], None] = lambda _: None,
        *,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        ledger: Ledger | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._ticked = ticked
        self._clock = clock or SystemClock()
        self._boot = here().boot
        self._pruned = 0
        # Workers that start together do not prune together.
        self.loop = Loop("pruner", self.tick, every=_EVERY, first=_EVERY * chance(), jitter=_JITTER)

    def tick(self) -> float | None:
        """Delete one batch; answers the pause before the next one, None when nothing is left."""
        kept = settings.read(self._store.settings())
        dead = kept.keep_dead if self._is_steady() else _NOT_NOW
        pruned = self._store.prune(Retention(ended=kept.keep_ended, dead=dead), limit=_BATCH, by=_BY)
        self._pruned += pruned
        if self._ledger is not None:
            self._ledger.count(names.PRUNED, pruned)
        if pruned:
            return _BETWEEN_BATCHES
        if self._pruned:
            log.info("store.pruned", extra={"jobs": self._pruned})
            self._pruned = 0
        self._ticked(PRUNE)
        return None

    def catch_up(self, stopped: Callable[[], bool]) -> None:
        """Prune now what is to be pruned, if nobody has for a while: this process is too short for the loop.

        A large backlog is left to the next one.
        """
        last = self._store.sight(_EVERY).ticks.get(PRUNE)
        if last is not None and self._store.now() - last < _EVERY:
            return
        for _ in range(_MOST_BATCHES):
            if stopped():
                return
            if self.tick() is None:
                self._store.note_ticks({PRUNE: timedelta(0)}, _BY)
                return

    def _is_steady(self) -> bool:
        """Whether the store's clock may be believed. The store remembers: this process may be a short one.

        Our own clock counts a machine's sleep, too: that is no jump.
        """
        watch = self._store.watch_clock(self._boot, self._clock.uptime())
        if watch.jump is not None:
            note = "dead letters are kept until it has gone on steadily for an hour"
            extra = {"seconds": round(watch.jump.total_seconds()), "note": note}
            log.warning("store.clock_jumped", extra=extra)
        return watch.steady_for >= _WATCHED
