"""How do producer and worker of one process find each other?"""

from __future__ import annotations

import threading
from collections.abc import Callable


class LocalWakeup:
    """Calls whoever subscribed, on the thread of whoever notifies."""

    deaf = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced, never changed: notify reads it without the lock.
        self._callbacks: tuple[Callable[[], None], ...] = ()

    def notify(self) -> None:
        """Tell whoever waits in this process."""
        for callback in self._callbacks:
            callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` at each hint, on any thread; it must be quick, such as an event's `set`."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Call it no more."""
        with self._lock:
            self._callbacks = tuple(other for other in self._callbacks if other != callback)

    def close(self) -> None:
        """Forget everybody."""
        with self._lock:
            self._callbacks = ()
