"""Is the schema in this database the one that this code knows, and how is it changed while others work?"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from psycopg import errors, sql

from windlass.errors import StoreMismatch, must_be
from windlass.store import migration
from windlass.store.migration import Migration, Schema
from windlass.store.postgres.address import Address, read
from windlass.store.postgres.connections import Guard, Link
from windlass.store.postgres.session import DIALECT, Connection, PostgresTx, load

T = TypeVar("T")

# So far ahead the archive's days are made.
DAYS_AHEAD = 8
_OLDEST_SERVER = 150000
# Whoever writes waits behind a change of a table that waits itself: so it waits briefly, and often.
_LOCK_TIMEOUT = "1s"
_TRIES = 60
_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 0.05
# What `reindex concurrently` leaves behind when it is cut off.
_LEFT_OVER = re.compile(r"_cc(new|old)\d*$")


def look(tx: PostgresTx, known: Sequence[Migration]) -> Schema:
    """What the database has seen, beside what this code knows."""
    applied = migration.applied(tx)
    invalid = [] if applied is None else [row["name"] for row in tx.rows("invalid_indexes")]
    return migration.compare(applied, known, invalid)


def prepare(tx: PostgresTx, address: Address, known: Sequence[Migration], *, create: bool) -> None:
    """Bring a new database up to the newest schema; refuse one that this code must not touch."""
    _check_server(tx, address.shown)
    applied = migration.applied(tx)
    if applied is not None:
        migration.check(migration.compare(applied, known), address.shown)
    elif create:
        bring_up(tx, address, known)
    else:
        raise StoreMismatch(f"{address.shown} has no Windlass tables; `windlass db migrate` makes them")


def bring_up(
    tx: PostgresTx, address: Address, known: Sequence[Migration], say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Apply every migration that the database has not seen, while others go on working; their names."""
    _check_server(tx, address.shown)
    with _only_migrator(tx, address, say):
        found = look(tx, known)
        migration.check_known(found, address.shown)
        new = found.number is None
        pending = [each for each in known if each.label in found.pending]
        pending = [each.for_new_store() for each in pending] if new else pending
        if address.pooler and any(each.alone for each in pending):
            allowed = "the server's own address for this migration, not that of a transaction pooler"
            raise must_be("database URL", address.shown, allowed)
        _mend(tx.connection, found.invalid_indexes, pending, say)
        # A new store is there with all of its migrations or not at all, also for who opens it meanwhile.
        with tx.part() if new else nullcontext():
            applied = [each.label for each in pending if _apply(tx, each, say)]
        tx.rows("make_days", now=tx.now, days=DAYS_AHEAD)
    return applied


def migrate(url: str, folder: Path | None, say: Callable[[str], None]) -> list[str]:
    """Bring a database's schema up to date, or add our tables to it; the names of the migrations applied."""
    known = migration.load(DIALECT, folder)
    return _on(url, lambda tx, address: bring_up(tx, address, known, say))


def look_at(url: str, folder: Path | None) -> Schema:
    """The schema of the database behind a URL; nothing is changed."""
    known = migration.load(DIALECT, folder)
    return _on(url, lambda tx, _: look(tx, known))


def _on(url: str, call: Callable[[PostgresTx, Address], T]) -> T:
    address, guard = read(url), Guard()
    link = Link(address, "upkeep", guard)
    try:
        return link.run(lambda connection: call(PostgresTx(connection, load()), address), again=False)
    finally:
        link.close()
        guard.close()


def _apply(tx: PostgresTx, each: Migration, say: Callable[[str], None]) -> bool:
    """Apply one migration; False if another migrator has done so meanwhile."""
    if each.alone:
        # Outside a transaction it keeps no writer waiting, and may itself wait for old transactions.
        steps = each.steps(lambda statement: statement.rstrip().endswith(";"))
        with _unhurried(tx.connection):
            return migration.apply_alone(
                tx, each, steps, lambda text: tx.connection.execute(text.encode()), say
            )
    for _ in range(_TRIES):
        try:
            return _at_once(tx, each, say)
        except errors.LockNotAvailable:
            say(f"{each.label} waits for a table that is in use")
            threading.Event().wait(_PAUSE_SECONDS)
    return _at_once(tx, each, say)


def _at_once(tx: PostgresTx, each: Migration, say: Callable[[str], None]) -> bool:
    with tx.part():
        # Whoever comes second waits here, and then finds everything done.
        tx.rows("lock_schema")
        if each.number in (migration.applied(tx) or {}):
            return False
        say(f"applying {each.label}")
        tx.connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'".encode())
        if each.number == 1:
            tx.change("make_schema")
        tx.connection.execute(each.text.encode())
        migration.note(tx, each)
    return True


def _mend(
    connection: Connection, invalid: Sequence[str], pending: Sequence[Migration], say: Callable[[str], None]
) -> None:
    """Drop them; what no migration makes anew is built again here."""
    coming = " ".join(each.text for each in pending)
    with _unhurried(connection):
        for name in invalid:
            index = sql.Identifier("windlass", name)
            if _LEFT_OVER.search(name) or re.search(rf"\b{re.escape(name)}\b", coming):
                say(f"dropping index {name}, whose build was cut off")
                connection.execute(sql.SQL("drop index concurrently if exists {}").format(index))
            else:
                say(f"building index {name} again, whose build was cut off")
                connection.execute(sql.SQL("reindex index concurrently {}").format(index))


@contextmanager
def _unhurried(connection: Connection) -> Iterator[None]:
    connection.execute("set lock_timeout = 0")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("reset lock_timeout")


@contextmanager
def _only_migrator(tx: PostgresTx, address: Address, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other migrators waiting; behind a pooler, where there are no sessions, each transaction does."""
    if address.pooler:
        yield
        return
    told = False
    while not next(iter(tx.rows("try_migrating")))["mine"]:
        if not told:
            say("waiting for another migrator")
            told = True
        threading.Event().wait(_LOOK_SECONDS)
    try:
        yield
    finally:
        if not tx.connection.closed:
            tx.rows("end_migrating")


def _check_server(tx: PostgresTx, shown: str) -> None:
    if (version := tx.connection.info.server_version) < _OLDEST_SERVER:
        found = version // 10000
        raise StoreMismatch(f"{shown} is PostgreSQL {found}; Windlass needs 15 or newer")
