"""Who ends a wait that the server does not end? It may wait for a replica that is gone, without any limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from windlass.loop import Loop

if TYPE_CHECKING:
    from windlass.store.postgres.session import Connection

_EVERY = timedelta(seconds=0.5)
_CANCEL_SECONDS = 3.0


class Guard:
    """Cancels what has run past its time: a commit that is cancelled in its wait for a replica says so."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[int, tuple[Connection, float]] = {}
        self._loop: Loop | None = None

    @contextmanager
    def watching(self, connection: Connection, seconds: float) -> Iterator[None]:
        """For as long as the block lasts, but no longer than so many seconds."""
        if self._loop is None:
            self._start()
        key = id(connection)
        self._running[key] = (connection, self._clock() + seconds)
        try:
            yield
        finally:
            self._running.pop(key, None)

    def tick(self) -> None:
        """Cancel what is overdue."""
        now = self._clock()
        for connection, until in list(self._running.values()):
            if now >= until:
                with suppress(psycopg.Error):
                    connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def _start(self) -> None:
        with self._lock:
            if self._loop is None:
                loop = Loop("guard", self.tick, every=_EVERY)
                loop.start()
                self._loop = loop
