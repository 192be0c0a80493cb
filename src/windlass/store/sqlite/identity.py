"""Is the file at a store's path still the one that was opened?

SQLite goes on with the file that it has open, whatever happens to its name: after `rm` or `mv` it would
accept jobs that no other process can ever find. So every write compares the device and inode of the path with
those of the opened file, before it begins and again before its commit is acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import msgspec

from windlass.errors import StoreUnavailable, must_be
from windlass.store.sqlite import locks
from windlass.store.sqlite.connection import MEMORY, Connection, open_connection

log = logging.getLogger("windlass.store")

# The device and inode of a file.
Identity = tuple[int, int]

# The log and its index: SQLite finds both by the name of the database alone.
_BESIDE = ("-wal", "-shm")
_ALL_BESIDE = (*_BESIDE, "-turn", "-door")
_TRIES = 10
_LOOK_SECONDS = 0.2
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
        # Rises with every file that is opened at this path; connections of an older one are not used again.
        self.generation = 0
        self._main: Identity | None = None
        self._beside: tuple[tuple[str, Identity], ...] = ()
        self._next_look = 0.0
        self._log_lost = False
        # Files that were at the path before.
        self._left: set[Identity] = set()
        self._lock = threading.Lock()
        self._reopen: Callable[[], object] = lambda: None

    def reopen_by(self, reopen: Callable[[], object]) -> None:
        """Say how another file at the path is checked and opened; it calls `open_first`."""
        self._reopen = reopen

    def open_first(self, *, create: bool, patience: float) -> Connection:
        """Open whichever file is at the path now; from here on, that is the file of the store."""
        for _ in range(_TRIES):
            if create:
                _create(self.path)
            before = _identity(self.name)
            if before is not None and real_path(self.name) != self.path:
                raise StoreUnavailable(f"{self.name} leads to another file by now: restart this process")
            self.read_only = before is not None and not _is_writable(self.path)
            if before is not None and not self.read_only:
                _set_aside(self.path, before, patience)
            connection = open_connection(self.path, mode="ro" if self.read_only else "rw")
            if before is not None and before == _identity(self.name):
                self._take(before)
                connection.main = before
                if not self.read_only:
                    _follow_mode(self.path)
                return connection
            connection.close()
        raise StoreUnavailable(f"{self.path} is being replaced again and again; try again later")

    def _take(self, main: Identity) -> None:
        if self._main not in (None, main):
            self.generation += 1
        self._main = main

    def adopt(self) -> None:
        """Take the file at the path as it is, for a process that only writes under a lease."""
        self._main = _identity(self.name)
        self.check()

    def connect(self, kind: type[Connection] = Connection, *, cached: int = 256) -> Connection:
        """Open a connection to the store's file, and to no other."""
        self.ensure()
        self.check()
        main, generation = self._main, self.generation
        mode = "ro" if self.read_only else "rw"
        connection = open_connection(self.path, kind, cached=cached, mode=mode)
        connection.main, connection.generation = main, generation
        try:
            self.check(connection)
        except BaseException:  # wall: nothing stays open behind a failed opening; the error goes on
            connection.close()
            raise
        return connection

    def ensure(self) -> None:
        """If the file was taken away, go on with the one that is at the path now."""
        if not self.lost:
            return
        with self._lock:
            if self.lost:
                self._go_on()

    def _go_on(self) -> None:
        if self._log_lost:
            raise StoreUnavailable(self._words_of_log())
        found = _identity(self.name)
        if found is None:
            raise StoreUnavailable(self._words(None))
        if found in self._left:
            # Connections to it may still be open here, with a log that is no longer beside it.
            raise StoreUnavailable(
                f"{self.path} was moved away and put back while it was open: restart this process"
            )
        self._reopen()
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
            raise self._lose(self._words(None), main) from None
        except OSError as error:
            raise StoreUnavailable(f"cannot look at {self.path}: {error.strerror}") from error
        if found.st_ino != main[1] or found.st_dev != main[0]:
            self._left.add(main)
            raise self._lose(self._words(found), main)

    def check_kept(self, connection: Connection) -> None:
        """The same after a commit, now and then for the log too.

        What is in a log that was removed is not lost while we have it open: it still goes into the file.
        """
        self.check(connection)
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        for name, identity in self._beside:
            if _identity(name) != identity:
                self._log_lost = True
                raise self._lose(self._words_of_log(), self._main)

    def note_beside(self, turn: locks.Turn) -> None:
        """Remember which log belongs to the opened file, for this process and for those that come later."""
        found = {suffix: _identity(self.path + suffix) for suffix in _BESIDE}
        self._beside = tuple((self.path + suffix, each) for suffix, each in found.items() if each)
        if self._main is not None:
            turn.write(msgspec.json.encode(Note(self._main, found["-wal"], found["-shm"])))

    def forget_beside(self, turn: locks.Turn) -> None:
        """After the last connection was closed: another file may get the number of its log."""
        self._beside = ()
        if _identity(self.path + "-wal") is None:
            turn.write(b"")

    def remove_beside(self) -> None:
        """Remove a log that has gone into its file, which is elsewhere: to the next file it means nothing."""
        for name, identity in self._beside:
            if _identity(name) == identity:
                with contextlib.suppress(OSError):
                    os.unlink(name)  # noqa: PTH108
        self._beside = ()

    def _lose(self, words: str, main: Identity | None) -> StoreUnavailable:
        # A connection to an earlier file says nothing about the one that the store has gone on to.
        if not self.lost and main == self._main:
            self.lost = True
            log.error("store.replaced", extra={"store": self.path, "error": words})
        return StoreUnavailable(words)

    def _words(self, found: os.stat_result | None) -> str:
        if found is None:
            return (
                f"{self.path} was removed or renamed while it was open; this request was not accepted: "
                "put the file back, or restore a backup with `windlass db restore`"
            )
        return (
            f"{self.path} was replaced by another file while it was open; this request was not accepted: "
            "send it again, to the new file"
        )

    def _words_of_log(self) -> str:
        return (
            f"{self.path}-wal or {self.path}-shm was removed while the store was open; this request was not "
            "accepted: stop every process that uses the store, then start them again"
        )


def _follow_mode(path: str) -> None:
    """A user who may not write the store must not hold its locks or read its log."""
    for suffix in _ALL_BESIDE:
        locks.same_mode(path + suffix, path)


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
            _link(made, path)
        finally:
            os.unlink(made)  # noqa: PTH108
    except OSError as error:
        # Another process was faster, or opening the file says why there is none.
        if error.errno not in _EXPLAINED_LATER:
            raise StoreUnavailable(f"cannot create {path}: {error.strerror}") from error


def _link(made: str, path: str) -> None:
    """Fails if another process was faster, as it should."""
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))


def _is_writable(path: str) -> bool:
    if not os.access(path, os.W_OK):
        return False
    return os.access(os.path.dirname(path), os.W_OK) or os.access(path + "-turn", os.W_OK)  # noqa: PTH120


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
    with contextlib.closing(locks.our_turn(path, patience)):
        for suffix in _orphans(path, main):
            # The writer of the earlier file may just have emptied and removed it.
            with contextlib.suppress(FileNotFoundError):
                _set_one_aside(path, suffix)


def _set_one_aside(path: str, suffix: str) -> None:
    if suffix == "-shm":
        # Only an index, made again from its log.
        os.unlink(path + suffix)  # noqa: PTH108
        return
    kept = next(name for name in _names(path + suffix) if not os.path.lexists(name))
    os.rename(path + suffix, kept)  # noqa: PTH104
    note = "it belongs to the file that was at this path before; see the page on backups"
    log.warning("store.log_set_aside", extra={"store": path, "kept": kept, "note": note})


def _orphans(path: str, main: Identity) -> list[str]:
    note = _read_note(path)
    if note is None or note.main == main:
        return []
    known = {"-wal": note.wal, "-shm": note.shm}
    return [suffix for suffix in _BESIDE if known[suffix] and _identity(path + suffix) == known[suffix]]


def _names(path: str) -> Iterator[str]:
    number = 1
    while True:
        yield f"{path}.old-{number}"
        number += 1


def _read_note(path: str) -> Note | None:
    try:
        with open(path + "-turn", "rb") as file:  # noqa: PTH123
            return msgspec.json.decode(file.read(), type=Note)
    except (OSError, msgspec.DecodeError):
        return None
