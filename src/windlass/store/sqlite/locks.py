"""Who may write next, and who holds the lock that we wait for?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from windlass.errors import StoreUnavailable

if sys.platform != "win32":
    import fcntl

# The byte of the shared-memory file that SQLite locks while a connection writes in WAL mode.
_WRITE_LOCK_BYTE = 120


class Turn:
    """The place in the queue of our own processes for the write lock.

    SQLite's own wait is unfair and sleeps for tens of milliseconds; the kernel wakes a waiter on a
    file lock at once. Whoever died lets go of it. Outsiders do not know of it, hence SQLite's lock within.
    """

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else _opened(path)
        # Whether somebody else had the lock when we last came: then we are not alone.
        self.contended = False

    def take(self) -> None:
        """Wait for our turn."""
        self.contended = not self.take_if_free()
        if self.contended and self._file is not None and sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def take_if_free(self) -> bool:
        """Take the turn unless another process has it."""
        if self._file is None or sys.platform == "win32":
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def give(self) -> None:
        """Let the next one have it."""
        if self._file is not None and sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {path}: {error.strerror}; a store needs its folder writable"
        ) from error


def turn_path(path: str) -> str:
    """The lock file that stands beside a store."""
    return f"{path}-turn"


def holder(path: str) -> int | None:
    """The process that holds the write lock of a store, if the system tells."""
    return _find(path + "-shm", "POSIX", _WRITE_LOCK_BYTE) or _find(turn_path(path), "FLOCK", None)


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
