"""How do many threads read at once, each for a moment, without anybody waiting?"""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.errors import StoreBusy
from windlass.store.sqlite.connection import Connection, explain, translated
from windlass.store.sqlite.library import sqlite3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.store.sqlite.identity import StoreFile

# Longer than any read of ours.
_ENDING_SECONDS = 2.0
_LOOK_SECONDS = 0.002
# Every commit of somebody else empties a reader's cache, and there may be a reader for every thread: what the
# writer's brings, many of them would only take from the machine.
_CACHE_KILOBYTES = 1_024


class Readers:
    """Connections that only read, lent for one read each and used again.

    An exception may strike a reading thread at any step (see `writer.py`). A connection that it loses on the
    way is closed when it is collected; so nobody counts who reads, but looks which connections still live.
    """

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._path = file.path
        self._idle: list[Connection] = []
        self._opened: list[weakref.ref[Connection]] = []
        # Held while connections are handed out, and from `pause` to `resume`.
        self._gate = threading.Lock()
        self._watching: Connection | None = None
        self._probing: Connection | None = None

    @contextmanager
    def one(self) -> Iterator[Connection]:
        """A connection in a transaction of its own.

        One snapshot: a job that ends meanwhile is seen once, neither twice nor not at all.
        """
        connection = self._take()
        try:
            with translated(self._path):
                connection.execute("begin")
                yield connection
        finally:
            connection.rollback()
            self._idle.append(connection)

    def data_version(self) -> int:
        """A number that moves when another connection has committed.

        Asked many times a second by a process that is idle, whose caches are cold: little is called here.
        """
        with self._gate:
            try:
                if self._watching is None or self._watching.generation != self._file.generation:
                    _close(self._watching)
                    self._watching = self._open()
                version: int = self._watching.execute("pragma data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise explain(error, self._path) from error
        return version

    def is_locked(self) -> bool:
        """Whether some connection holds the write lock of the store's file just now."""
        with self._gate:
            try:
                if self._probing is None or self._probing.generation != self._file.generation:
                    _close(self._probing)
                    self._probing = self._file.connect()
                    self._probing.execute("pragma busy_timeout = 0")
                self._probing.execute("begin immediate")
                self._probing.rollback()
            except sqlite3.Error as error:
                failure = explain(error, self._path)
                if isinstance(failure, StoreBusy):
                    return True
                raise failure from error
        return False

    def pause(self) -> bool:
        """Wait until nobody reads, and close every file; False if somebody goes on reading."""
        self._gate.acquire()
        if self._is_reading():
            # A connection refers to itself by its cached statements: one that was lost waits for this.
            gc.collect()
        calm = threading.Event()
        for _ in range(round(_ENDING_SECONDS / _LOOK_SECONDS)):
            if not self._is_reading():
                self._close_idle()
                return True
            calm.wait(_LOOK_SECONDS)
        self._gate.release()
        return False

    def resume(self) -> None:
        """Go on after `pause`."""
        self._gate.release()

    def close(self) -> None:
        """Let go of every file that nobody is reading."""
        with self._gate:
            self._close_idle()

    def _take(self) -> Connection:
        self._file.ensure()
        self._file.check()
        with self._gate:
            while self._idle:
                connection = self._idle.pop()
                if connection.generation == self._file.generation:
                    return connection
                connection.close()
            connection = self._open()
            self._opened = [known for known in self._opened if known() is not None]
            self._opened.append(weakref.ref(connection))
            return connection

    def _open(self) -> Connection:
        connection = self._file.connect()
        connection.execute("pragma query_only = on")
        connection.execute(f"pragma cache_size = -{_CACHE_KILOBYTES}")
        return connection

    def _is_reading(self) -> bool:
        living = sum(known() is not None for known in self._opened)
        return living > len(self._idle)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
        self._opened = [known for known in self._opened if known() is not None]
        _close(self._watching)
        _close(self._probing)
        self._watching = self._probing = None


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
