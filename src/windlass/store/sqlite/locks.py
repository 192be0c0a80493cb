"""Who may write next, and who holds the lock that we wait for?"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from windlass.errors import StoreUnavailable
from windlass.store.sqlite.connection import MEMORY

if sys.platform != "win32":
    import fcntl

# The byte of the shared-memory file that SQLite locks while a connection writes in WAL mode.
_WRITE_LOCK_BYTE = 120
_STEP_SECONDS = 0.01


class Turn:
    """The place in the queue of our own processes for the write lock.

    SQLite's own wait is unfair and sleeps for tens of milliseconds; the kernel wakes a waiter on a
    file lock at once. Whoever died lets go of it. Outsiders do not know of it, hence SQLite's lock within.

    There are two locks. Whoever waits for the turn stands in the door, so that whoever had the turn and wants
    it again finds the door taken and lets him go first. With one lock, four producers in a loop kept every
    worker from writing for as long as they had something to say.
    """

    def __init__(self, path: str) -> None:
        self._door = _opened(f"{path}-door")
        try:
            self._turn = _opened(f"{path}-turn")
        except BaseException:  # wall: nothing stays open behind a failed opening; the error goes on
            os.close(self._door)
            raise
        # Plain calls into the system: no exception thrown into this thread can strike between their steps.
        self.give: Callable[[], None] = partial(fcntl.flock, self._turn, fcntl.LOCK_UN)
        self.leave_door: Callable[[], None] = partial(fcntl.flock, self._door, fcntl.LOCK_UN)

    def take(self) -> None:
        """Wait for our turn."""
        fcntl.flock(self._door, fcntl.LOCK_EX)
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        self.leave_door()

    def take_within(self, seconds: float) -> bool:
        """Wait for our turn, but not for ever; False if it did not come."""
        pause = threading.Event()
        for _ in range(max(1, round(seconds / _STEP_SECONDS))):
            if self.take_if_free():
                self.leave_door()
                return True
            self.leave_door()
            pause.wait(_STEP_SECONDS)
        return False

    def take_if_free(self) -> bool:
        """Take the turn if no other process has it or waits for it. In doubt call `leave_door` and `give`."""
        try:
            fcntl.flock(self._door, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let go of the files."""
        os.close(self._door)
        os.close(self._turn)


class AlwaysMine:
    """The turn of a store in memory, which no other process can see."""

    def take(self) -> None:
        """There is nobody to wait for."""

    def take_within(self, seconds: float) -> bool:
        """It is there at once, however few seconds there are."""
        return seconds >= 0

    def take_if_free(self) -> bool:
        """It always is."""
        return True

    def give(self) -> None:
        """There is nobody to give it to."""

    def leave_door(self) -> None:
        """There is none."""

    def close(self) -> None:
        """There is nothing to let go of."""


def turn_for(path: str) -> Turn | AlwaysMine:
    """The turn of the store at a path."""
    return AlwaysMine() if path == MEMORY or sys.platform == "win32" else Turn(path)


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {path}: {error.strerror}; a store needs its folder writable"
        ) from error


def holder(path: str) -> int | None:
    """The process that holds the write lock of a store, if the system tells."""
    return _find(path + "-shm", "POSIX", _WRITE_LOCK_BYTE) or _find(path + "-turn", "FLOCK", None)


def writes_itself(path: str) -> bool:
    """Whether another connection of this very process holds SQLite's write lock."""
    return _find(path + "-shm", "POSIX", _WRITE_LOCK_BYTE) == os.getpid()


def _find(path: str, kind: str, byte: int | None) -> int | None:
    # Reading the kernel's list, since opening and closing the file would drop our own locks on it.
    try:
        inode = os.stat(path).st_ino  # noqa: PTH116 - a plain look, no path arithmetic
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        # 1: POSIX ADVISORY WRITE 4711 fe:00:131 120 120; a waiter has "->" before its kind.
        if len(fields) < 8 or fields[1] != kind or fields[3] != "WRITE":  # noqa: PLR2004
            continue
        same = int(fields[5].rsplit(":", 1)[1]) == inode
        if same and (byte is None or int(fields[6]) <= byte <= _end(fields[7])):
            return int(fields[4])
    return None


def _end(text: str) -> float:
    return float("inf") if text == "EOF" else int(text)


def describe(pid: int | None) -> str:
    """A process in words."""
    if pid is None:
        return "another process"
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({name})"
