"""Who takes back the jobs of remote workers that are gone, if nobody but servers is there?

A server watches the fleet as each worker does, and judges by the same rules.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from windlass.clock import SystemClock
from windlass.loop import Loop
from windlass.server.flow import Flow
from windlass.store.fleet import Vitals
from windlass.store.store import Store
from windlass.upkeep import place
from windlass.upkeep.pruner import Pruner
from windlass.upkeep.reaper import Reaper
from windlass.upkeep.ticks import Ticks
from windlass.upkeep.watchman import Watchman
from windlass.wakeup.protocol import Wakeup
from windlass.worker.membership import Membership

_EVERY = timedelta(seconds=1)
_BEAT_SECONDS = 1.75


class Upkeep:
    """Watches, reaps and prunes, on threads of their own."""

    def __init__(self, store: Store, wakeup: Wakeup, flow: Flow) -> None:
        clock = SystemClock()
        self._store = store
        self._clock = clock
        self._membership = Membership(place.here(), clock)
        self._live = flow.live
        watchman = Watchman(gone=partial(place.is_gone, seen_from=self._membership.place))
        ticks = Ticks(store, lambda: self._membership.id, clock=clock)
        self._reaper = Reaper(
            store,
            wakeup,
            watchman,
            policy=self._live.policy,
            clock=clock,
            ticked=ticks.note,
            ledger=flow.ledger,
        )
        self._loops = (
            Loop("watch-fleet", self.tick, every=_EVERY, longest_pause=_EVERY),
            self._reaper.loop,
            Pruner(store, ticks.note, clock=clock, ledger=flow.ledger).loop,
            ticks.loop,
        )
        self._ledger = flow.ledger

    def start(self) -> None:
        """Begin to watch."""
        self._membership.confirm(self._clock.uptime(), self._store.generation)
        for loop in self._loops:
            loop.start(self._ledger.store_error)

    def stop(self) -> None:
        """Watch no more."""
        for loop in self._loops:
            loop.stop(1.0)

    def tick(self) -> None:
        """Look at the fleet; only while the store takes writes does anybody's silence count."""
        if self._clock.uptime() - self._membership.sent >= _BEAT_SECONDS:
            sent, generation = self._clock.uptime(), self._store.generation
            # A server has no row, so nothing is changed; but it was the store's writer that said so.
            self._store.beat(self._membership.id, Vitals())
            self._membership.confirm(sent, generation)
        look = self._store.look(self._membership.id, {})
        self._live.notice(look.revision)
        self._reaper.saw(self._membership.id, look, self._membership.pulse)
