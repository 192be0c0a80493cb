"""The files beside a store: open its locks with care, and keep its log if the store was truncated.

SQLite takes an empty file for a new database and deletes the log beside it, and it goes on writing a file of
which the end is missing as long as the pages that it needs are in its cache or in the log.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator

from windlass.errors import StoreMismatch, StoreUnavailable
from windlass.store.sqlite.library import sqlite3

if sys.platform != "win32":
    import fcntl

# The log's header has the size of a page and a mark; each frame has the number of its page and the same mark.
HEADER, FRAME_HEADER = 32, 24
PAGE_SIZE, HEADER_MARK, FRAME_MARK, MARK_SIZE = 8, 16, 8, 8
# The bytes of a database that each of its connections locks, and how many they are.
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_TRIES = 3
# What of a store's mode the files beside it take over: who may read and write.
_SHARED_BITS = 0o666
# A link with the name of a lock file could lead anywhere.
NO_LINK: int = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


@contextlib.contextmanager
def or_close(close: Callable[[], object]) -> Iterator[None]:
    """Nothing stays open behind a failed opening."""
    try:
        yield
    except BaseException:  # wall: the error goes on
        close()
        raise


def free_name(path: str, suffix: str) -> str:
    """The first of such names with a number behind it that no file has."""
    names = (f"{path}{suffix}-{number}" for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


def size_of(path: str) -> int:
    """The size of a file; 0 if there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - every commit may come here
    except OSError:
        return 0


def sync_folder(path: str) -> None:
    """Wait until what became of the names beside a file, its own among them, is on the disk."""
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - a plain name
    # As SQLite does, we go without where a folder cannot be opened: Windows opens none.
    if sys.platform == "win32" or not os.access(folder, os.R_OK):
        return
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def refuse_emptied(path: str) -> None:
    """Refuse an empty file beside a log that is not: only truncating it leaves that behind."""
    # The log first: in a store that is just being made the file is written before the log.
    if size_of(path + "-wal") and os.path.exists(path) and not size_of(path):  # noqa: PTH110
        raise StoreMismatch(
            f"{path} is damaged: it is empty, and {path}-wal beside it is not. Nothing was changed: keep "
            f"{path}-wal, it holds accepted jobs, and restore a backup with `windlass db restore`"
        )


def is_whole(path: str, connection: sqlite3.Connection) -> bool:
    """Whether each page of the database is in the file or in the log.

    After a vacuum a checkpoint makes the file shorter. Another process may run one during this look: then a
    second look finds every page.
    """
    try:
        return any(_look(path, connection) for _ in range(_TRIES))
    except sqlite3.OperationalError:
        # Locked just now: the next look says.
        return True
    except sqlite3.DatabaseError:
        # SQLite itself finds that pages are missing.
        return False


def _look(path: str, connection: sqlite3.Connection) -> bool:
    [pages] = connection.execute("pragma page_count").fetchone()
    [page_size] = connection.execute("pragma page_size").fetchone()
    logged = _pages_in_log(path + "-wal")
    size = size_of(path)
    # SQLite takes an empty file for a new database, whatever is in the log.
    return size > 0 and all(page in logged for page in range(size // page_size + 1, pages + 1))


def _pages_in_log(log: str) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError), open(log, "rb") as file:  # noqa: PTH123 - a plain name
        header = file.read(HEADER)
        if len(header) < HEADER:
            return found
        [page_size] = struct.unpack_from(">I", header, PAGE_SIZE)
        mark = header[HEADER_MARK : HEADER_MARK + MARK_SIZE]
        while len(frame := file.read(FRAME_HEADER + page_size)) > FRAME_HEADER:
            if frame[FRAME_MARK : FRAME_MARK + MARK_SIZE] != mark:
                break
            found.update(struct.unpack_from(">I", frame))
    return found


def keep_log(path: str) -> None:
    """Keep SQLite from writing the log into the rest of the file, and from deleting it, at the last close.

    SQLite locks the whole file then. A lock that belongs to an open file, unlike SQLite's own, prevents that
    within one process, too. The file stays open until this process ends: closing it would drop SQLite's
    locks.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)


def same_mode(path: str, like: str) -> None:
    """Give a file, not a link, the permissions and the group of another one, as far as this user may."""
    with contextlib.suppress(OSError):
        wanted, found = os.stat(like), os.lstat(path)  # noqa: PTH116 - plain numbers
        if not stat.S_ISREG(found.st_mode):
            return
        mode = stat.S_IMODE(wanted.st_mode) & _SHARED_BITS
        if found.st_gid != wanted.st_gid:
            os.chown(path, -1, wanted.st_gid)
        if stat.S_IMODE(found.st_mode) != mode:
            os.chmod(path, mode)  # noqa: PTH101 - as above


def open_lock(store: str, suffix: str) -> int:
    """Open a lock file, never through a link.

    A user who may not use the store must not be able to hold its locks.
    """
    path = store + suffix
    try:
        try:
            opened = os.open(path, os.O_RDWR | NO_LINK)
        except FileNotFoundError:
            opened = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
            same_mode(path, store)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _planted(path, "a symbolic link") from None
        raise StoreUnavailable(
            f"cannot write {path}: {error.strerror}; a store needs its folder writable"
        ) from error
    if what := _foreign(os.fstat(opened), store):
        os.close(opened)
        raise _planted(path, what)
    return opened


def _foreign(found: os.stat_result, store: str) -> str:
    """What a lock file is if another user may have put it there; empty if it is one of ours.

    Users that share a store by its group share its lock files, too: there each of them may have made it.
    """
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    with contextlib.suppress(OSError):
        like = os.stat(store)  # noqa: PTH116 - plain numbers
        shared = like.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not shared and hasattr(os, "geteuid") and found.st_uid not in (like.st_uid, os.geteuid(), 0):
            return f"owned by another user (id {found.st_uid})"
    return ""


def _planted(path: str, what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path} is {what}, and is not used as a lock file; nothing was changed: remove it and try again"
    )
