"""The store's file: which one it is, whose turn it is to write it, and who holds its locks.

SQLite goes on with the file that it has open, whatever happens to its name: after `rm` or `mv` it would
accept jobs that no other process can ever find. So every write compares the device and inode of the path with
those of the opened file, before it begins and again before its commit is acknowledged. The same look finds
a file that was truncated; a second one, before the acknowledgement, finds a log that was removed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import ClassVar

import msgspec

from windlass.errors import StoreBusy, StoreUnavailable, must_be
from windlass.store.sqlite import beside
from windlass.store.sqlite.connection import MEMORY, Connection, open_connection

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


class Turn:
    """The place in the queue of our own processes for the write lock.

    SQLite's own wait is unfair and sleeps for tens of milliseconds; the kernel wakes a waiter on a
    file lock at once. Whoever died lets go of it. Outsiders do not know of it, hence SQLite's lock within.

    There are two locks. Whoever waits for the turn stands in the door, so that whoever had the turn and wants
    it again finds the door taken and lets him go first. With one lock, four producers in a loop kept every
    worker from writing for as long as they had something to say.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._door = beside.open_lock(path, "-door")
        with beside.or_close(partial(os.close, self._door)):
            self._turn = beside.open_lock(path, "-turn")
        # Plain calls into the system: no exception thrown into this thread can strike between their steps.
        self.give: Callable[[], None] = partial(fcntl.flock, self._turn, fcntl.LOCK_UN)
        self.leave_door: Callable[[], None] = partial(fcntl.flock, self._door, fcntl.LOCK_UN)

    def take(self) -> None:
        fcntl.flock(self._door, fcntl.LOCK_EX)
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        self.leave_door()

    def take_within(self, seconds: float) -> bool:
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
                # A power cut must not bring back a log that the new note does not know.
                beside.sync_folder(self._path)
                os.ftruncate(self._turn, os.pwrite(self._turn, text, 0))
                if text:
                    os.fsync(self._turn)

    def close(self) -> None:
        os.close(self._door)
        os.close(self._turn)


class AlwaysMine:
    """The turn of a store in memory, which no other process can see."""

    def take(self) -> None:
        """There is nobody to wait for, or to give it to."""

    give = leave_door = close = take

    def take_within(self, _seconds: float) -> bool:
        return True

    def take_if_free(self) -> bool:
        return True


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
        file = beside.open_lock(path, "-turn")
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
        if same and (byte is None or int(fields[6]) <= byte <= float(fields[7].replace("EOF", "inf"))):
            return int(fields[4])
    return None


def describe(pid: int | None) -> str:
    """A process in words."""
    if pid is None:
        return "another process"
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({name})"


log = logging.getLogger("windlass.store")

# The device and inode of a file.
Identity = tuple[int, int]

# The log and its index: SQLite finds both by the name of the database alone.
_BESIDE = ("-wal", "-shm")
_ALL_BESIDE = (*_BESIDE, "-turn", "-door")
_TRIES = 10
_CLOSED = -1
# Longer than what any file system takes for one moment.
_SETTLE_SECONDS = 3.0
_PRIVATE = 0o600
_EXPLAINED_LATER = (errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)


def real_path(path: str) -> str:
    """The one name of a file: SQLite puts the log beside the file that a link points to, and so must we."""
    if path == MEMORY:
        return path
    try:
        path.encode()
        # Two slashes in front would make a host name of the first part.
        return re.sub("^/+", "/", os.path.realpath(path))
    except (ValueError, UnicodeError):
        raise must_be("path", path, "a name that a file can have") from None


class Note(msgspec.Struct, frozen=True):
    """What the lock file says about the last opened store: SQLite itself never notes which log is whose."""

    main: Identity
    wal: Identity | None
    shm: Identity | None


class Folder:
    """A folder whose names may change: made, moved or removed files."""

    def __init__(self, path: str | None = None) -> None:
        self.file = _CLOSED
        if path is not None:
            # Not every system opens folders: then each look is at the files themselves.
            with contextlib.suppress(OSError):
                self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # The time of the last change, if the files were looked at well after it.
        self.known = _CLOSED
        self._seen = _CLOSED
        self._settled = 0.0

    def note(self, changed: int) -> None:
        """After a look at the files. A later change can have the same time, so one look is not enough."""
        if changed != self._seen:
            self._seen, self._settled = changed, monotonic() + _SETTLE_SECONDS
        elif monotonic() >= self._settled:
            self.known = changed

    def close(self) -> None:
        """Another thread that looks meanwhile finds it closed, or a time that it does not know."""
        file, self.file = self.file, _CLOSED
        if file != _CLOSED:
            os.close(file)


class StoreFile:
    """The file of one store in this process. Every connection of the store is opened through it.

    When another file is found at the path, what was under way is refused and the next use goes on with that
    file, as a process that has just started would. When there is none, none is made. The same file does not
    come back: SQLite would join it with what is still open of it in this process.
    """

    def __init__(self, path: str) -> None:
        self.path = real_path(path)
        # As it was given: a link that now leads elsewhere is a replaced file, too.
        self.name = path if path == MEMORY else os.path.abspath(path)  # noqa: PTH100 - links stay links
        self.read_only = False
        # True from the moment when the file was found missing or replaced until another one is opened.
        self.lost = False
        # Whether what is lost is the end of the file, or all of it, and the log must not go into the rest.
        self.truncated = False
        # Rises with every file that is opened at this path; connections of an older one are not used again.
        self.generation = 0
        self._main: Identity | None = None
        # The names of the log and its index, which files they are, and the file that they belong to.
        self._beside: tuple[tuple[str, Identity, Identity | None], ...] = ()
        self._folder = Folder()
        # The size of the file when it was last looked at.
        self._size = 0
        # Why no request is accepted until this process is restarted.
        self._unusable = ""
        # Files that were at the path before.
        self._left: set[Identity] = set()
        self._lock = threading.Lock()
        # How another file at the path is checked and opened; it calls `open_first`.
        self.reopen: Callable[[], object] = lambda: None

    def open_first(self, *, create: bool, patience: float) -> Connection:
        """Open whichever file is at the path now; from here on, that is the file of the store."""
        for _ in range(_TRIES):
            if create:
                _create(self.path)
            before = _identity(self.name)
            if before is not None and real_path(self.name) != self.path:
                raise StoreUnavailable(f"{self.name} leads to another file by now: restart this process")
            writable = os.access(self.path, os.W_OK) and (
                os.access(os.path.dirname(self.path), os.W_OK)  # noqa: PTH120
                or os.access(self.path + "-turn", os.W_OK)
            )
            self.read_only = before is not None and not writable
            if before is not None and not self.read_only:
                _set_aside(self.path, before, patience)
            connection = open_connection(self.path, mode="ro" if self.read_only else "rw")
            if before is not None and before == _identity(self.name):
                self._take(before)
                connection.main = before
                return connection
            connection.close()
        raise StoreUnavailable(f"{self.path} is being replaced again and again; try again later")

    def follow_mode(self) -> None:
        """A user who may not write the store must not hold its locks or read its log."""
        for suffix in _ALL_BESIDE:
            beside.same_mode(self.path + suffix, self.path)

    def _take(self, main: Identity) -> None:
        if self._main not in (None, main):
            self.generation += 1
        self._main, self._size = main, 0

    def adopt(self) -> StoreFile:
        """Take the file at the path as it is, for a process that only writes under a lease."""
        self._main = _identity(self.name)
        self.check()
        return self

    def connect(self, kind: type[Connection] = Connection, *, cached: int = 256) -> Connection:
        self.ensure()
        self.check_kept()
        main, generation = self._main, self.generation
        mode = "ro" if self.read_only else "rw"
        connection = open_connection(self.path, kind, cached=cached, mode=mode)
        connection.main, connection.generation = main, generation
        with beside.or_close(connection.close):
            self.check(connection)
        return connection

    def ensure(self) -> StoreFile:
        if self.lost:
            with self._lock:
                if self.lost:
                    self._go_on()
        return self

    def _go_on(self) -> None:
        if self._unusable:
            raise StoreUnavailable(self._unusable)
        found = _identity(self.name)
        if found is None:
            raise StoreUnavailable(self._missing)
        if found in self._left:
            # Connections to it may still be open here, with a log that is no longer beside it.
            raise StoreUnavailable(
                f"{self.path} was moved away and put back while it was open: restart this process"
            )
        self.reopen()
        # Only now: until the new file has turned out to be a store of ours, everybody waits here.
        self.generation += 1
        self.lost = False
        log.warning("store.reopened", extra={"store": self.path})

    def check(self, connection: Connection | None = None) -> None:
        """Refuse to go on unless the file that a connection has open is still at its path.

        Each connection is compared with its own file: the store may have gone on to another one meanwhile.
        """
        main = self._main if connection is None else connection.main
        if main is None:
            return
        try:
            found = os.stat(self.name)  # noqa: PTH116 - every enqueue comes here twice
        except (FileNotFoundError, NotADirectoryError):
            self._left.add(main)
            raise self._lose(self._missing, main) from None
        except OSError as error:
            raise StoreUnavailable(f"cannot look at {self.path}: {error.strerror}") from error
        if found.st_ino != main[1] or found.st_dev != main[0]:
            self._left.add(main)
            words = (
                f"{self.path} was replaced by another file while it was open; this request was not accepted: "
                "send it again, to the new file"
            )
            raise self._lose(words, main)
        if found.st_size != self._size and main == self._main:
            self._resized(found.st_size, main, connection)

    def _resized(self, size: int, main: Identity, connection: Connection | None) -> None:
        """A checkpoint makes the file longer, or shorter after a vacuum. Anything else has truncated it."""
        if size < self._size:
            if size and connection is None:
                # Left to the next look of a connection, which knows how long the file must be.
                return
            if not size or (connection is not None and not beside.is_whole(self.path, connection)):
                self.truncated = True
                self._unusable = (
                    f"{self.path} was truncated to {size} bytes while it was open; this request was not "
                    f"accepted: stop every process that uses the store, keep {self.path}-wal, and restore a "
                    "backup with `windlass db restore`"
                )
                raise self._lose(self._unusable, main)
        self._size = size

    def check_kept(self, connection: Connection | None = None) -> None:
        """The same for the log, too: before a commit is acknowledged, and before a connection is opened.

        What is in a log that was removed is not lost while we have it open: it still goes into the file. As
        long as no name in the folder has changed the log is there: one cheap look instead of two.
        """
        self.check(connection)
        try:
            changed = os.fstat(self._folder.file).st_mtime_ns
        except OSError:
            changed = _CLOSED
        if changed == self._folder.known != _CLOSED:
            return
        main = self._main if connection is None else connection.main
        for name, identity, of in self._beside:
            if _identity(name) != identity and of == main:
                self._unusable = (
                    f"{self.path}-wal or {self.path}-shm was removed while the store was open; this request "
                    "was not accepted: stop every process that uses the store, then start them again"
                )
                raise self._lose(self._unusable, main)
        self._folder.note(changed)

    def note_beside(self, turn: Turn) -> None:
        """Remember which log belongs to the opened file, for this process and for those that come later."""
        self._folder = Folder(os.path.dirname(self.path))  # noqa: PTH120
        found = {suffix: _identity(self.path + suffix) for suffix in _BESIDE}
        self._beside = tuple((self.path + suffix, each, self._main) for suffix, each in found.items() if each)
        if self._main is not None:
            turn.write(msgspec.json.encode(Note(self._main, found["-wal"], found["-shm"])))

    def release_beside(self) -> None:
        """Before our connections are closed: with the last one of all processes SQLite removes the log."""
        self._beside = ()
        self._folder.close()

    def forget_beside(self, turn: Turn) -> None:
        """After the last connection was closed: another file may get the number of its log."""
        if _identity(self.path + "-wal") is None:
            turn.write(b"")

    def remove_beside(self) -> None:
        """Remove a log that has gone into its file, which is elsewhere: to the next file it means nothing."""
        for name, identity, _ in self._beside:
            if _identity(name) == identity:
                with contextlib.suppress(OSError):
                    os.unlink(name)  # noqa: PTH108

    def _lose(self, words: str, main: Identity | None) -> StoreUnavailable:
        # A connection to an earlier file says nothing about the one that the store has gone on to.
        if not self.lost and main == self._main:
            self.lost = True
            log.error("store.replaced", extra={"store": self.path, "error": words})
        return StoreUnavailable(words)

    @property
    def _missing(self) -> str:
        return (
            f"{self.path} was removed or renamed while it was open; this request was not accepted: "
            "put the file back, or restore a backup with `windlass db restore`"
        )


def _create(path: str) -> None:
    """Make an empty file that only this user may read, unless there is one."""
    if os.path.lexists(path):
        return
    # Never open and close the database itself: that would drop the locks of a connection to it.
    try:
        number, made = tempfile.mkstemp(prefix=".windlass-", dir=os.path.dirname(path))  # noqa: PTH120
        os.close(number)
        try:
            os.chmod(made, _PRIVATE)  # noqa: PTH101
            try:
                os.link(made, path)
            except FileExistsError:
                raise
            except OSError:
                # A file system without links.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))
        finally:
            os.unlink(made)  # noqa: PTH108
    except OSError as error:
        # Another process was faster, or opening the file says why there is none.
        if error.errno not in _EXPLAINED_LATER:
            raise StoreUnavailable(f"cannot create {path}: {error.strerror}") from error


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - every commit comes here
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _set_aside(path: str, main: Identity, patience: float) -> None:
    """Move away a log that belongs to an earlier file of this name: SQLite would write it into this one."""
    if not _orphans(path, main):
        return
    with contextlib.closing(our_turn(path, patience)):
        for suffix in _orphans(path, main):
            # The writer of the earlier file may just have emptied and removed it.
            with contextlib.suppress(FileNotFoundError):
                _set_one_aside(path, suffix)


def _set_one_aside(path: str, suffix: str) -> None:
    if suffix == "-shm":
        # Only an index, made again from its log.
        os.unlink(path + suffix)  # noqa: PTH108
        return
    kept = beside.free_name(path + suffix, ".old")
    os.rename(path + suffix, kept)  # noqa: PTH104
    note = "it belongs to the file that was at this path before; see the page on backups"
    log.warning("store.log_set_aside", extra={"store": path, "kept": kept, "note": note})


def _orphans(path: str, main: Identity) -> list[str]:
    note = _read_note(path)
    if note is None or note.main == main:
        return []
    known = {"-wal": note.wal, "-shm": note.shm}
    return [suffix for suffix in _BESIDE if known[suffix] and _identity(path + suffix) == known[suffix]]


def _read_note(path: str) -> Note | None:
    try:
        # Neither through a link nor waiting for the other end of a pipe: see `open_lock`.
        number = os.open(path + "-turn", os.O_RDONLY | beside.NO_LINK | getattr(os, "O_NONBLOCK", 0))
        with open(number, "rb") as file:  # noqa: PTH123
            return msgspec.json.decode(file.read(), type=Note)
    except (OSError, msgspec.DecodeError):
        return None
