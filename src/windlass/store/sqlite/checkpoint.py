"""When does the write-ahead log flow back into the file, and how without racing a commit?"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING

from windlass.store.sqlite.connection import LONGEST_LOG, open_connection

if TYPE_CHECKING:
    from windlass.store.sqlite.library import sqlite3

# SQLite's own default. A commit into a file that still grows takes half as long again, so the log shall not
# grow for long; one that a large transaction has made longer is used in its whole length.
_LARGE_LOG = 4 * 1024 * 1024
# A look at the file costs a single enqueue more than its own statement does; the log grows little meanwhile.
_LOOK_SECONDS = 0.02


class Checkpointer:
    """Runs checkpoints while the writer holds SQLite's write lock, so that no commit can race them.

    Releases before 3.51.3 can corrupt the log when a commit on one connection races a checkpoint on
    another. Nobody commits while the write lock is held, whichever process or program they are.
    """

    def __init__(self, path: str) -> None:
        self._log = path + "-wal"
        self._connection = open_connection(path)
        self._limit = _LARGE_LOG
        self._due = False
        self._next_look = 0.0

    def is_due(self) -> bool:
        """Whether the log's end was reached at the last look.

        Its file is used again from the beginning once it is empty, so it grows only when it is full.
        """
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            size = self._size()
            if size < _LARGE_LOG:
                self._limit = _LARGE_LOG
            self._due = size > self._limit
        return self._due

    def run(self, writer: sqlite3.Connection) -> None:
        """One passive checkpoint under the writer's lock."""
        self._due = False
        size = self._size()
        writer.execute("begin immediate")
        try:
            busy, pages, moved = self._connection.execute("pragma wal_checkpoint(passive)").fetchone()
        finally:
            writer.execute("rollback")
        # A reader can keep the log from being emptied: then wait until as much again has been written.
        self._limit = min(size, LONGEST_LOG) if not busy and pages == moved else size + _LARGE_LOG

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _size(self) -> int:
        try:
            return os.stat(self._log).st_size  # noqa: PTH116 - on the path of every commit
        except OSError:
            return 0
