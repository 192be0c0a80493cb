"""Make a SQLite file a store, bring its schema up to date, and look at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from windlass.clock import Clock, SystemClock
from windlass.errors import StoreMismatch, StoreUnavailable
from windlass.store import migration, statements
from windlass.store.migration import Migration, Schema
from windlass.store.sqlite import beside
from windlass.store.sqlite.connection import MEMORY, SqliteTx, translated
from windlass.store.sqlite.library import sqlite3
from windlass.store.sqlite.storefile import StoreFile, our_turn

DIALECT = "sqlite"


def look(tx: SqliteTx, known: Sequence[Migration]) -> Schema:
    """What the file has seen, beside what this code knows."""
    return migration.compare(migration.applied(tx), known)


def prepare(tx: SqliteTx, path: str, known: Sequence[Migration]) -> None:
    """Bring a new file up to the newest schema; refuse one that this code must not touch."""
    found = look(tx, known)
    if found.number is None:
        bring_up(tx, path, known)
    else:
        migration.check(found, path)


def add_within(tx: SqliteTx, known: Sequence[Migration]) -> None:
    """Add our tables to a file without them as a part of the caller's transaction, to commit with it."""
    if migration.applied(tx) is None:
        for each in known:
            _at_once(tx, each, lambda _: None)


def bring_up(
    tx: SqliteTx, path: str, known: Sequence[Migration], say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Apply every migration that the file has not seen; their names. Only one at a time comes here."""
    found = look(tx, known)
    migration.check_known(found, path)
    if found.number is None:
        # That room is given back can only be chosen while a file is new.
        if _is_empty(tx):
            tx.connection.execute("pragma auto_vacuum = incremental")
        write_ahead(tx.connection, path)
    pending = [each for each in known if each.label in found.pending]
    if found.number is None and not any(each.alone for each in pending):
        # A new store is there with all of its migrations or not at all, also for who opens it meanwhile.
        with _exclusive(tx.connection):
            return [each.label for each in pending if _at_once(tx, each, say)]
    return [each.label for each in pending if _apply(tx, each, say)]


def write_ahead(connection: sqlite3.Connection, path: str) -> None:
    """See that the file has a write-ahead log: a copy that was made as a backup has none."""
    mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
    if path != MEMORY and mode != "wal":
        raise StoreUnavailable(
            f"{path} cannot use a write-ahead log here (journal mode {mode}); choose a local disk"
        )


def _apply(tx: SqliteTx, each: Migration, say: Callable[[str], None]) -> bool:
    """Apply one migration; False if another migrator has done so meanwhile."""
    if each.alone:
        steps = each.steps(sqlite3.complete_statement)
        return migration.apply_alone(tx, each, steps, tx.connection.execute, say)
    with _exclusive(tx.connection):
        return _at_once(tx, each, say)


def _at_once(tx: SqliteTx, each: Migration, say: Callable[[str], None]) -> bool:
    if each.number in (migration.applied(tx) or {}):
        return False
    say(f"applying {each.label}")
    for statement in each.steps(sqlite3.complete_statement):
        tx.connection.execute(statement)
    migration.note(tx, each)
    return True


@contextmanager
def _exclusive(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("begin exclusive")
    try:
        yield
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _is_empty(tx: SqliteTx) -> bool:
    [row] = tx.rows("is_empty")
    return bool(row["empty"])


def transaction(connection: sqlite3.Connection, now: int = 0) -> SqliteTx:
    """Our statements on a connection, for who looks at a file without a store."""
    return SqliteTx(connection, statements.load(DIALECT), now)


def make(
    file: StoreFile, clock: Clock, known: Sequence[Migration], *, create: bool, patience: float, busy: float
) -> None:
    """See that there is a store at the path whose schema is ours; make a new one if `create` says so.

    StoreBusy if there are tables to be made and another transaction holds the write lock for `busy` seconds.
    """
    path = file.path
    if os.path.isdir(path):  # noqa: PTH112 - also for names that are too long to exist
        raise StoreUnavailable(f"cannot open {path}: it is a directory, not a file")
    # In a folder that is missing nothing could make one; opening it says so.
    if not create and os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120 - likewise
        beside.refuse_emptied(path)
        if not beside.size_of(path):
            raise _no_store(path)
    if beside.size_of(path) and beside.size_of(path + "-journal"):
        # The power was cut while the file got its log. SQLite takes that back, and then uses a log that is
        # there already, as long as this connection is open.
        file.open_first(create=False, patience=patience).close()
    with closing(file.open_first(create=create, patience=patience)) as connection, translated(path):
        connection.execute(f"pragma busy_timeout = {round(busy * 1000)}")
        tx = transaction(connection, clock.micros())
        found = look(tx, known)
        if found.number is not None:
            migration.check(found, path)
            if not file.read_only:
                file.follow_mode()
                write_ahead(connection, path)
            return
        if not create:
            # Without our turn: no lock files are left beside a file that is not ours. One that is still
            # empty may be a store that another process makes just now.
            raise (
                _no_store(path)
                if _is_empty(tx)
                else StoreMismatch(
                    f"{path} is a database without Windlass tables; `windlass db migrate` adds them to it"
                )
            )
        with closing(our_turn(path, patience)):
            prepare(tx, path, known)


def _no_store(path: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"there is no store at {path}; `windlass enqueue` or `windlass worker start` makes one"
    )


def migrate(path: str, folder: Path | None, say: Callable[[str], None], *, patience: float) -> list[str]:
    """Bring a file's schema up to date, or add our tables to it; the names of the migrations applied."""
    file = StoreFile(path)
    with (
        closing(file.open_first(create=True, patience=patience)) as connection,
        translated(file.path),
        closing(our_turn(file.path, patience)),
    ):
        tx = transaction(connection, SystemClock().micros())
        return bring_up(tx, file.path, migration.load(DIALECT, folder), say)


def look_at(path: str, folder: Path | None) -> Schema:
    """The schema of the file at `path`; nothing is changed or made."""
    file, known = StoreFile(path), migration.load(DIALECT, folder)
    if not os.path.exists(file.path):  # noqa: PTH110 - also for names that are too long to exist
        return migration.compare(None, known)
    with closing(file.open_first(create=False, patience=0)) as connection, translated(file.path):
        return look(transaction(connection), known)
