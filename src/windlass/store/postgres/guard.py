"""Who ends a wait that nobody else ends? A replica that is gone, a frozen server, a half-open connection."""

from __future__ import annotations

import os
import socket
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
# What was cancelled has so long to say so; then its connection is taken for dead.
_GRACE = 1.0


class Guard:
    """Ends what has run past its time.

    First it is cancelled: a commit that waits for its replica then says that it was not confirmed. If nothing
    is heard even so, the connection is broken off, and whoever waits on it gets an error and may try anew.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[int, _Watch] = {}
        self._loop: Loop | None = None
        self._place: tuple[str, int] | None = None

    @contextmanager
    def watching(self, connection: Connection, seconds: float) -> Iterator[None]:
        """For as long as the block lasts, but no longer than so many seconds."""
        if self._loop is None:
            self._start()
        key = id(connection)
        self._running[key] = _Watch(connection, self._clock() + seconds)
        try:
            yield
        finally:
            # Not while it is being broken off: its number may be another socket's the moment it is closed.
            with self._lock:
                self._running.pop(key, None)

    def tick(self) -> None:
        """Cancel what is overdue, and break off what even that did not end."""
        now = self._clock()
        for watch in list(self._running.values()):
            if now >= watch.until + _GRACE:
                self._break_off(watch)
            elif now >= watch.until and not watch.cancelled:
                watch.cancelled = True
                # On a thread of its own: a frozen server takes its time to refuse, and others wait, too.
                threading.Thread(target=_cancel, args=(watch.connection,), daemon=True).start()

    def arrived(self, connection: Connection) -> None:
        """A new connection was made. If it led to another server, who waits for the old one waits in vain."""
        place = _place(connection)
        with self._lock:
            moved = self._place not in (None, place)
            self._place = place
        if moved:
            for watch in list(self._running.values()):
                if _place(watch.connection) != place:
                    self._break_off(watch)

    def is_elsewhere(self, connection: Connection) -> bool:
        """Whether the newest connection led to another server than this one."""
        return _place(connection) != self._place

    def break_off(self, connection: Connection) -> None:
        """End what runs on this connection now, if anything does."""
        watch = self._running.get(id(connection))
        if watch is not None:
            self._break_off(watch)

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def _break_off(self, watch: _Watch) -> None:
        with self._lock:
            if self._running.get(id(watch.connection)) is not watch:
                return
            with suppress(psycopg.Error, OSError):
                handle = socket.socket(fileno=os.dup(watch.connection.fileno()))
                with handle:
                    handle.shutdown(socket.SHUT_RDWR)

    def _start(self) -> None:
        with self._lock:
            if self._loop is None:
                loop = Loop("guard", self.tick, every=_EVERY)
                loop.start()
                self._loop = loop


class _Watch:
    """One wait, and whether it was told to end."""

    __slots__ = ("cancelled", "connection", "until")

    def __init__(self, connection: Connection, until: float) -> None:
        self.connection = connection
        self.until = until
        self.cancelled = False


def _cancel(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_SECONDS)


def _place(connection: Connection) -> tuple[str, int] | None:
    with suppress(psycopg.Error):
        return connection.info.host, connection.info.port
    return None
