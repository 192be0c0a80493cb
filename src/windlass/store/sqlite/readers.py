"""How do many threads read at once, each for a moment, without anybody waiting?"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.store.sqlite.connection import open_connection, translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.store.sqlite.library import sqlite3

# Longer than any read of ours.
_ENDING_SECONDS = 2.0


class Readers:
    """Connections that only read, lent for one read each and used again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._paused = False
        self._changed = threading.Condition()
        self._watching: sqlite3.Connection | None = None

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction of its own.

        One snapshot: a job that ends meanwhile is seen once, neither twice nor not at all.
        """
        connection = self._take()
        try:
            with translated(self._path):
                connection.execute("begin")
                yield connection
        finally:
            if connection.in_transaction:
                connection.execute("rollback")
            self._give(connection)

    def data_version(self) -> int:
        """A number that moves when another connection has committed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._paused)
            if self._watching is None:
                self._watching = self._opened()
            with translated(self._path):
                return int(self._watching.execute("pragma data_version").fetchone()[0])

    def pause(self) -> bool:
        """Wait until nobody reads, and close every file; False if somebody goes on reading."""
        with self._changed:
            self._paused = True
            if not self._changed.wait_for(lambda: self._lent == 0, _ENDING_SECONDS):
                self._paused = False
                self._changed.notify_all()
                return False
            self._close_idle()
            return True

    def resume(self) -> None:
        """Go on after `pause`."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of every file that nobody is reading."""
        with self._changed:
            self._close_idle()

    def _take(self) -> sqlite3.Connection:
        with self._changed:
            self._changed.wait_for(lambda: not self._paused)
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._opened()
        except BaseException:
            with self._changed:
                self._lent -= 1
                self._changed.notify_all()
            raise

    def _give(self, connection: sqlite3.Connection) -> None:
        with self._changed:
            self._lent -= 1
            self._idle.append(connection)
            self._changed.notify_all()

    def _opened(self) -> sqlite3.Connection:
        connection = open_connection(self._path)
        connection.execute("pragma query_only = on")
        return connection

    def _close_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        if self._watching is not None:
            self._watching.close()
            self._watching = None
