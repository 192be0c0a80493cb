"""How does a backup take the place of a store? Checked first, alone, and in one step."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.errors import StoreBusy, StoreMismatch, StoreUnavailable, must_be
from windlass.store import migration
from windlass.store.sqlite import health, locks, schema
from windlass.store.sqlite.connection import MEMORY, open_connection, translated
from windlass.store.sqlite.identity import real_path
from windlass.store.sqlite.library import sqlite3
from windlass.store.upkeep import Restored

if TYPE_CHECKING:
    from windlass.store.migration import Schema

_PRIVATE = 0o600


def restore(store: str, backup: str, *, patience: float) -> Restored:
    """Put a copy of a backup in the place of a store that nobody has open; the old file is kept beside it."""
    path, source = real_path(store), real_path(backup)
    _check_names(path, source, backup)
    number, copy = tempfile.mkstemp(prefix=".windlass-restore-", dir=os.path.dirname(path))  # noqa: PTH120
    os.close(number)
    try:
        found = _copy(source, copy)
        like = path if os.path.exists(path) else None  # noqa: PTH110 - plain names throughout
        os.chmod(copy, _PRIVATE)  # noqa: PTH101
        if like is not None:
            locks.same_mode(copy, like)
        with closing(locks.our_turn(path, patience)) as turn, _nobody_else(path):
            kept = _swap(copy, path)
            if isinstance(turn, locks.Turn):
                turn.write(b"")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy)  # noqa: PTH108
    return _told(path, backup, kept, found)


def _check_names(path: str, source: str, backup: str) -> None:
    if path == MEMORY:
        raise must_be("store", MEMORY, "a file, to be restored")
    if not Path(source).is_file():
        raise must_be("backup", backup, "a file that exists")
    if os.path.exists(path) and os.path.samefile(path, source):  # noqa: PTH110, PTH121
        raise must_be("backup", backup, "another file than the store itself")
    if not os.access(os.path.dirname(path), os.W_OK):  # noqa: PTH120
        raise StoreUnavailable(f"cannot write the directory {os.path.dirname(path)}")  # noqa: PTH120


def _copy(source: str, copy: str) -> Schema:
    """A copy of all that the backup holds, if it is whole and a store that this version knows."""
    known = migration.load(schema.DIALECT)
    mode = "rw" if os.access(source, os.W_OK) else "ro"
    with closing(open_connection(source, mode=mode)) as connection, translated(source):
        if not schema.is_there(connection):
            raise StoreMismatch(f"{source} is no backup of a Windlass store: it has no Windlass tables")
        found = schema.look(connection, known)
        migration.check_known(found, source)
        problems = health.check(connection)
        if problems:
            raise StoreMismatch(f"{source} is damaged, and nothing was restored: {problems[0]}")
        connection.execute("vacuum into ?", (copy,))
    with open(copy, "rb") as written:  # noqa: PTH123
        os.fsync(written.fileno())
    return found


@contextmanager
def _nobody_else(path: str) -> Iterator[None]:
    """Lock every other connection out of the store that is there, whichever program it belongs to.

    A connection that uses a write-ahead log keeps SQLite from giving it up, also one of an older release.
    """
    if not os.path.exists(path):  # noqa: PTH110
        yield
        return
    try:
        connection = open_connection(path)
    except StoreMismatch as error:
        # Damaged beyond opening, which may be why a backup is restored: SQLite cannot say who has it open.
        if others := locks.users(path):
            raise _refusal(path, others) from error
        yield
        return
    with closing(connection):
        try:
            connection.execute("pragma busy_timeout = 0")
            connection.execute("pragma journal_mode = delete")
            connection.execute("begin exclusive")
        except sqlite3.OperationalError as error:
            raise _refusal(path, locks.users(path)) from error
        except sqlite3.DatabaseError as error:
            if others := locks.users(path):
                raise _refusal(path, others) from error
        yield


def _refusal(path: str, others: list[int]) -> StoreBusy:
    who = ", ".join(locks.describe(pid) for pid in others) or "another process"
    return StoreBusy(
        f"{path} is open in {who}; nothing was restored: stop every worker, server and producer that uses "
        "it, then try again"
    )


def _swap(copy: str, path: str) -> str | None:
    """Put the copy at the path; where the file is that was there before."""
    kept = None
    if os.path.exists(path):  # noqa: PTH110
        names = (f"{path}.before-restore-{number}" for number in range(1, 1_000_000))
        kept = next(name for name in names if not os.path.lexists(name))
        os.link(path, kept)
        # What of the log could not be written into a damaged file stays with that file.
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + suffix, kept + suffix)  # noqa: PTH104
    os.rename(copy, path)  # noqa: PTH104
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)  # noqa: PTH120
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return kept


def _told(path: str, backup: str, kept: str | None, found: Schema) -> Restored:
    with closing(open_connection(path)) as connection, translated(path):
        tx = schema.transaction(connection)
        counts = tx.row("restored")
        assert counts is not None  # noqa: S101 - an aggregate has a row
        return Restored(
            path=path,
            backup=backup,
            kept=kept,
            live=counts["live"],
            running=counts["running"],
            archived=counts["archived"],
            pending=found.pending,
        )
