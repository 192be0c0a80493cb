"""How does a worker notice what other processes commit to a shared file?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from windlass.loop import Loop
from windlass.wakeup.local import LocalWakeup

_EVERY = timedelta(milliseconds=20)
# Looking costs little, waking up for it costs more: after so many looks in vain every second one is left out.
_PATIENCE = 10


class Watch:
    """Notifies when a version number moves; looks at it only while somebody has subscribed."""

    deaf = False

    def __init__(self, version: Callable[[], int], *, every: timedelta = _EVERY) -> None:
        self._version = version
        self._every = every
        self._still = 0
        self._local = LocalWakeup()
        self._lock = threading.Lock()
        self._subscribers = 0
        self._seen: int | None = None
        self._loop: Loop | None = None

    def notify(self) -> None:
        """Tell whoever waits in this process, without waiting for the next look."""
        self._local.notify()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` at each hint, on any thread; it must be quick, such as an event's `set`."""
        with self._lock:
            self._local.subscribe(callback)
            self._subscribers += 1
            if self._loop is None:
                self._seen = None
                self._loop = Loop("watch", self.tick, every=self._every)
                self._loop.start()

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Call it no more."""
        with self._lock:
            self._local.unsubscribe(callback)
            self._subscribers -= 1
            ended = self._let_go() if self._subscribers == 0 else None
        if ended is not None:
            ended.stop()

    def close(self) -> None:
        """Stop looking."""
        with self._lock:
            self._local.close()
            self._subscribers = 0
            ended = self._let_go()
        if ended is not None:
            ended.stop()

    def tick(self) -> float:
        """Look once; answers when to look again."""
        version = self._version()
        self._still += 1
        if version != self._seen:
            # The first look only learns where the number stands.
            moved, self._seen = self._seen is not None, version
            self._still = 0
            if moved:
                self._local.notify()
        return self._every.total_seconds() * (1 if self._still < _PATIENCE else 2)

    def _let_go(self) -> Loop | None:
        loop, self._loop = self._loop, None
        return loop
