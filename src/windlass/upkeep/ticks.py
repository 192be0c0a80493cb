"""When did what must happen again and again last succeed? Noted in memory, told to the store now and then.

A job queue whose reaper, pruner or scheduler has stopped looks healthy for hours. Each of them says here that
it came to the end of a pass; that costs one statement every half a minute, however many jobs there are. A
process that is killed takes at most so long with it, so an age that is shown is never too low.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from windlass.clock import Clock
from windlass.loop import Loop
from windlass.store.store import Store

REAP = "reap"
PROMOTE = "promote"
SCHEDULE = "schedule"
PRUNE = "prune"
EVERY = timedelta(seconds=30)
_FIRST = timedelta(seconds=2)
_JITTER = 0.1


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


def ignore(_: str) -> None:
    """Nobody asks."""
