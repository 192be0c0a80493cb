"""Who may write next, and who holds the lock that we wait for?"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from windlass.errors import StoreBusy, StoreUnavailable
from windlass.store.sqlite.connection import MEMORY

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# The byte of the shared-memory file that SQLite locks while a connection writes in WAL mode.
_WRITE_LOCK_BYTE = 120
# And the byte of the database itself, where there is no write-ahead log.
_RESERVED_BYTE = 0x40000001
_STEP_SECONDS = 0.01
_LONGEST_NOTE = 4096
# What of a store's mode the files beside it take over: who may read and write.
_SHARED_BITS = 0o666


class Turn:
    """The place in the queue of our own processes for the write lock.

    SQLite's own wait is unfair and sleeps for tens of milliseconds; the kernel wakes a waiter on a
    file lock at once. Whoever died lets go of it. Outsiders do not know of it, hence SQLite's lock within.

    There are two locks. Whoever waits for the turn stands in the door, so that whoever had the turn and wants
    it again finds the door taken and lets him go first. With one lock, four producers in a loop kept every
    worker from writing for as long as they had something to say.
    """

    def __init__(self, path: str) -> None:
        self._door = _opened(path, "-door")
        try:
            self._turn = _opened(path, "-turn")
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

    def write(self, text: bytes) -> None:
        """Keep a note in the lock file; one that cannot be kept is only missed."""
        with contextlib.suppress(OSError):
            if os.pread(self._turn, _LONGEST_NOTE, 0) != text:
                os.ftruncate(self._turn, os.pwrite(self._turn, text, 0))

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


class OnlyProcess(AlwaysMine):
    """The turn where processes cannot wait for each other: one of them has the store, others are refused.

    All threads and stores of this process share its lock, which SQLite's own keeps in order among them.
    """

    _guard = threading.Lock()
    # By path: the lock file, and how many hold it.
    _held: ClassVar[dict[str, tuple[int, int]]] = {}

    def __init__(self, path: str, lock: Callable[[int], None]) -> None:
        """`lock` takes an exclusive lock on an open file without waiting, or raises OSError."""
        self._path = path
        with self._guard:
            file, holders = self._held.get(path) or (self._locked(path, lock), 0)
            self._held[path] = file, holders + 1

    @staticmethod
    def _locked(path: str, lock: Callable[[int], None]) -> int:
        file = _opened(path, "-turn")
        try:
            lock(file)
        except OSError as error:
            os.close(file)
            raise StoreUnavailable(
                f"{path} is open in another process, and on this system only one may use a SQLite store: "
                "use PostgreSQL, or a server (`windlass serve`) that the others speak to"
            ) from error
        return file

    def close(self) -> None:
        """Let go of the lock with the last who holds it."""
        with self._guard:
            file, holders = self._held[self._path]
            if holders > 1:
                self._held[self._path] = file, holders - 1
            else:
                del self._held[self._path]
                os.close(file)


def turn_for(path: str) -> Turn | AlwaysMine:
    """The turn of the store at a path."""
    if path == MEMORY:
        return AlwaysMine()
    if sys.platform == "win32":
        return OnlyProcess(path, lambda file: msvcrt.locking(file, msvcrt.LK_NBLCK, 1))
    return Turn(path)


def our_turn(path: str, patience: float) -> Turn | AlwaysMine:
    """In turn, so that processes that start together on a new file do not trip over each other."""
    turn = turn_for(path)
    if not turn.take_within(patience):
        turn.close()
        raise StoreBusy(
            f"{describe(holder(path))} has held the write lock of {path} for {patience:g} s; try again"
        )
    return turn


def same_mode(path: str, like: str) -> None:
    """Give a file the permissions and the group of another one, as far as this user may."""
    with contextlib.suppress(OSError):
        wanted, found = os.stat(like), os.stat(path)  # noqa: PTH116 - plain numbers
        mode = stat.S_IMODE(wanted.st_mode) & _SHARED_BITS
        if found.st_gid != wanted.st_gid:
            os.chown(path, -1, wanted.st_gid)
        if stat.S_IMODE(found.st_mode) != mode:
            os.chmod(path, mode)  # noqa: PTH101 - as above


def _opened(store: str, suffix: str) -> int:
    """Open a lock file. A user who may not use the store must not be able to hold its locks."""
    path = store + suffix
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            same_mode(path, store)
            return opened
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {path}: {error.strerror}; a store needs its folder writable"
        ) from error


def holder(path: str) -> int | None:
    """The process that holds the write lock of a store, if the system tells."""
    return _find(path + "-shm", "POSIX", _WRITE_LOCK_BYTE) or _find(path + "-turn", "FLOCK", None)


def writes_itself(path: str) -> bool:
    """Whether another connection of this very process holds SQLite's write lock."""
    found = _find(path + "-shm", "POSIX", _WRITE_LOCK_BYTE) or _find(path, "POSIX", _RESERVED_BYTE)
    return found == os.getpid()


def users(path: str) -> list[int]:
    """The other processes that have a file open, as far as the system lets this user see."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(each.readlink()) == path for each in (folder / "fd").iterdir()):
                found.append(int(folder.name))
    return sorted(pid for pid in found if pid != os.getpid())


def can_tell() -> bool:
    """Whether the system tells who holds which lock."""
    return Path("/proc/locks").exists()


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
