"""When does the write-ahead log flow back into the file, and how without racing a commit?"""

from __future__ import annotations

import math
import os
import struct
from time import monotonic
from typing import TYPE_CHECKING

from windlass.errors import StoreUnavailable
from windlass.store.sqlite.connection import LONGEST_LOG

if TYPE_CHECKING:
    from windlass.store.sqlite.identity import StoreFile
    from windlass.store.sqlite.library import sqlite3

# SQLite's own default. A commit into a file that still grows takes twice as long, so what is written
# between two looks shall fit into the log as it is; one that a large transaction has made longer is used.
_LARGE_LOG = 4 * 1024 * 1024
_USED = 3 / 4
# A log that has grown by so much is in real use: it is made large at once. That takes as long as about fifty
# commits, too long for who only has a few.
_GROWING = 256 * 1024
# A look at the file costs a single enqueue more than its own statement does.
_LOOK_SECONDS = 0.005
# The header has a page's size and what marks the frames of this time round; each frame has that mark, too.
_HEADER, _FRAME_HEADER = 32, 24
_PAGE_SIZE, _HEADER_MARK, _FRAME_MARK, _MARK_SIZE = 8, 16, 8, 8


class Checkpointer:
    """Makes the log large once, and empties it again and again.

    A checkpoint empties it, run while the writer holds SQLite's write lock, so that no commit can race it.
    Releases before 3.51.3 can corrupt the log when a commit on one connection races a checkpoint on
    another. Nobody commits while the write lock is held, whichever process or program they are.
    """

    def __init__(self, file: StoreFile, *, look_seconds: float = _LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        # Which has made the log by the time it is open. SQLite has no locks on that file that closing it
        # could lose. Whoever looks later may be struck by an exception, so it is opened here, once.
        self._connection = file.connect()
        try:
            # See `_make_room`.
            self._connection.execute("pragma cache_size = 10")
            self._connection.execute("pragma busy_timeout = 0")
            self._log = _opened(file.path + "-wal")
        except BaseException:  # wall: nothing stays open behind a failed opening; the error goes on
            self._connection.close()
            raise
        # Beyond this size a log that is still short is made large.
        self._short: float = self._size() + _GROWING
        self._limit = _LARGE_LOG
        self._due = False
        self._next_look = 0.0

    def is_due(self) -> bool:
        """Whether so much stood in the log at the last look that it should be emptied, or made large."""
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + self._look_seconds
            try:
                self._due = self._is_full()
            except OSError:
                # Closed meanwhile by another thread: whoever asks has written, and shall not fail for that.
                self._due = False
        return self._due

    def run(self, writer: sqlite3.Connection) -> None:
        """Make the log large if it is not, and empty it."""
        self._due = False
        if self._size() < _LARGE_LOG:
            self._make_room()
        size = self._size()
        # Also after that: what was taken back has the mark of this time round, and would look like much.
        emptied = self._checkpoint(writer)
        # A reader can keep the log from being emptied: then wait until as much again has been written.
        self._limit = max(_LARGE_LOG, int(min(size, LONGEST_LOG) * _USED)) if emptied else size + _LARGE_LOG

    def empty(self, writer: sqlite3.Connection) -> bool:
        """Move what the log holds into the file now; False if readers keep some of it there."""
        return self._checkpoint(writer)

    def _make_room(self) -> None:
        """Make the log large, once: whoever cuts it back afterwards wants it short."""
        try:
            self._write_and_take_back()
        except BaseException:  # wall: the error goes on
            # Tried again when as much has been written again. A full disk has let the log grow half-way.
            self._short = self._size() + _GROWING
            raise
        self._short = math.inf

    def _write_and_take_back(self) -> None:
        """What the cache cannot hold is in the log by then, which stays so."""
        self._connection.execute("begin immediate")
        try:
            self._connection.execute("create table windlass_room (made)")
            self._connection.execute("insert into windlass_room values (zeroblob(?))", (_LARGE_LOG,))
        finally:
            self._connection.rollback()

    def _checkpoint(self, writer: sqlite3.Connection) -> bool:
        """One passive checkpoint under the writer's lock; whether it emptied the log."""
        writer.execute("begin immediate")
        try:
            busy, pages, moved = self._connection.execute("pragma wal_checkpoint(passive)").fetchone()
        finally:
            writer.execute("rollback")
        return not busy and pages == moved

    def close(self) -> None:
        """Let go of the connection and of the log."""
        self._connection.close()
        os.close(self._log)

    def _is_full(self) -> bool:
        size = self._size()
        if size < _LARGE_LOG:
            self._limit = _LARGE_LOG
            return size > self._short
        return size > self._limit and self._is_written_at(self._limit)

    def _is_written_at(self, place: int) -> bool:
        """Whether the log has come so far this time round.

        Once it is empty its file is used again from the beginning, and what stands behind is of the time
        before: the file's size does not tell.
        """
        header = os.pread(self._log, _HEADER, 0)
        if len(header) < _HEADER:
            return False
        [page_size] = struct.unpack_from(">I", header, _PAGE_SIZE)
        whole = _FRAME_HEADER + page_size
        frame = os.pread(self._log, _FRAME_HEADER, _HEADER + place // whole * whole)
        mark = header[_HEADER_MARK : _HEADER_MARK + _MARK_SIZE]
        return frame[_FRAME_MARK : _FRAME_MARK + _MARK_SIZE] == mark

    def _size(self) -> int:
        return os.fstat(self._log).st_size


def _opened(log: str) -> int:
    try:
        return os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreUnavailable(f"cannot read {log}: {error.strerror}") from error
