"""Connections of the application: enqueue within a caller's transaction, and transactions of handlers.

A handler gets a connection of its own, which holds the only writer meanwhile: therefore not for long.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from datetime import timedelta
from typing import Any, Self, cast

from windlass.clock import Clock, SystemClock
from windlass.errors import Refused, StoreBusy, TransactionTooLong, must_be
from windlass.store.engine import Bridge, Settlement, across_block
from windlass.store.sqlite import hot, schema, storefile
from windlass.store.sqlite.connection import MEMORY, Connection, SqliteTx, explain
from windlass.store.sqlite.library import has_wal_reset_bug, sqlite3
from windlass.store.sqlite.storefile import StoreFile
from windlass.store.statements import load


class AsyncGuest:
    """An aiosqlite connection as our statements see it: what it does, it does on its own thread."""

    def __init__(self, connection: Any, bridge: Bridge) -> None:
        theirs = type(connection).__module__.partition(".")[0] == "aiosqlite"
        # It speaks through Python's own library: two of them in one process do not see each other's locks.
        if not theirs or sqlite3.Connection.__module__ != "sqlite3":
            raise must_be("connection", connection, ALLOWED_ASYNC)
        self.connection = connection
        self._bridge = bridge

    @property
    def in_transaction(self) -> bool:
        return bool(self.connection.in_transaction)

    def execute(self, text: str, values: Mapping[str, object] | Sequence[object] = ()) -> _Answer:
        async def run() -> _Answer:
            async with self.connection.execute(text, values) as cursor:
                return _Answer(list(await cursor.fetchall()), cursor.rowcount)

        return self._bridge.wait(run())


class _Answer:
    def __init__(self, rows: list[sqlite3.Row], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def fetchall(self) -> list[sqlite3.Row]:
        return self._rows

    def __iter__(self) -> Iterator[sqlite3.Row]:
        return iter(self._rows)


Guest = sqlite3.Connection | AsyncGuest

ALLOWED = f"a {sqlite3.Connection.__module__}.Connection, or a SQLAlchemy or Django connection over one"
ALLOWED_ASYNC = "an aiosqlite.Connection, or an async one of SQLAlchemy's over it"


@contextmanager
def guest_transaction(
    guest: Guest,
    path: str,
    statements: Mapping[str, str],
    clock: Clock,
    *,
    prepare: Callable[[SqliteTx], None],
) -> Iterator[SqliteTx]:
    """A part of the caller's transaction; the commit is left to the caller.

    `prepare` is called in the transaction before anything of ours is read or written.
    """
    try:
        guest.execute("select 1")
    except sqlite3.ProgrammingError as error:
        raise must_be("connection", guest, f"open, and used in the thread that made it ({error})") from None
    theirs = guest.connection if isinstance(guest, AsyncGuest) else guest
    factories = theirs.row_factory, theirs.text_factory
    theirs.row_factory, theirs.text_factory = sqlite3.Row, str
    try:
        _check_file(guest, path)
        if has_wal_reset_bug():
            guest.execute("pragma wal_autocheckpoint = 0")
        if began := not guest.in_transaction:
            guest.execute("begin immediate")
        tx = SqliteTx(cast("sqlite3.Connection", guest), statements, clock.micros())
        try:
            with tx.part():
                prepare(tx)
                if not began:
                    guest.execute(statements["take_write_lock"])
                yield tx
        except BaseException:  # wall: what we began we undo; the error goes on
            if began and guest.in_transaction:
                guest.execute("rollback")
            raise
    except sqlite3.OperationalError as error:
        failure = explain(error, path)
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT:
            raise StoreBusy(
                f"the caller's transaction on {path} began with a read and others have written since: "
                "begin immediate first, then read and enqueue"
            ) from error
        raise failure from error
    finally:
        theirs.row_factory, theirs.text_factory = factories


def checked(connection: object) -> sqlite3.Connection:
    """The connection, if it is one that we can write on."""
    if not isinstance(connection, sqlite3.Connection):
        raise must_be("connection", connection, ALLOWED)
    return connection


def _check_file(guest: Guest, path: str) -> None:
    """A job in another file than the queue's would never be found."""
    files = {row["name"]: row["file"] for row in guest.execute("pragma database_list")}
    main = files["main"]
    if path == MEMORY or not main or not os.path.samefile(main, path):  # noqa: PTH121 - two names, one file
        raise must_be("connection", main or MEMORY, f"a connection to the queue's own file {path}")


LONGEST_SECONDS = 5.0


class HandlerConnection(Connection):
    """What a handler holds: an ordinary connection, but its transaction is not the handler's to end."""

    def commit(self) -> None:
        raise Refused("the transaction commits with the job, at the end of the block; nothing was committed")

    def rollback(self) -> None:
        raise Refused("raise an exception to undo the transaction")


def open_handlers(path: str, *, patience: float) -> Handlers:
    """For a process that has no store of its own open."""
    # The file as it is now: that the job is still in it is what its lease's token decides.
    return Handlers(lambda: StoreFile(path).adopt(), load(schema.DIALECT), SystemClock(), patience=patience)


class Handlers:
    """Gives handlers their transactions; one connection each, gone with it."""

    def __init__(
        self, file: Callable[[], StoreFile], statements: Mapping[str, str], clock: Clock, *, patience: float
    ) -> None:
        self._file = file
        self._statements = statements
        self._clock = clock
        self._patience = patience

    @contextmanager
    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> Iterator[sqlite3.Connection]:
        """A transaction that commits with the job's completion, or not at all."""
        file = self._file()
        path = file.path
        if path == MEMORY:
            raise Refused("a store in memory has no second connection; ctx.transaction() needs a file")
        turn = storefile.our_turn(path, min(self._patience, within.total_seconds()))
        try:
            # Not cached: each statement is looked at anew, also after the time was over.
            with (
                closing(file.connect(HandlerConnection, cached=0)) as connection,
                _Watch(connection, path, LONGEST_SECONDS, let_go=turn.give) as watch,
            ):
                yield connection
                watch.ours()
                hot.complete(SqliteTx(connection, self._statements, self._clock.micros()), completion())
                file.check(connection)
                connection.execute("commit")
                file.check_kept(connection)
        except sqlite3.OperationalError as error:
            failure = explain(error, path)
            if isinstance(failure, StoreBusy):
                raise failure from error
            raise
        finally:
            turn.close()

    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        """The same for a handler on an event loop."""
        return across_block(lambda: self.transaction(completion, within=within))

    def close(self) -> None:
        """Nothing is kept between transactions."""


class _Watch:
    """Undoes the transaction when its time is over, whatever its handler does; none begins after it."""

    def __init__(
        self, connection: sqlite3.Connection, path: str, longest: float, *, let_go: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._let_go = let_go
        self._path = path
        self._longest = longest
        self._lock = threading.Lock()
        self._over = False
        self._free: int | None = threading.get_ident()
        self._timer = threading.Timer(longest, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._connection.set_authorizer(self._may)
        self._connection.execute("begin immediate")
        self._free = None
        self._timer.start()
        return self

    def ours(self) -> None:
        """The handler is done; from here on it is all quick, and ours."""
        with self._lock:
            self._timer.cancel()
            if self._over:
                raise TransactionTooLong(self._path, self._longest)
            self._free = threading.get_ident()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._lock:
            self._timer.cancel()
            over = self._over
            self._free = threading.get_ident()
        if self._connection.in_transaction:
            self._connection.execute("rollback")
        if over and isinstance(error, sqlite3.Error):
            raise TransactionTooLong(self._path, self._longest) from error

    def _end(self) -> None:
        with self._lock:
            if self._free is not None:
                return
            self._over = True
            self._free = threading.get_ident()
            self._connection.interrupt()
            # An interrupted write has undone the whole transaction by itself.
            with suppress(sqlite3.OperationalError):
                self._connection.execute("rollback")
            self._free = None
            self._let_go()

    def _may(self, action: int, *_: Any) -> int:
        """Only we begin and end transactions; and once the time is over, nobody else does anything."""
        if threading.get_ident() == self._free:
            return sqlite3.SQLITE_OK
        if self._over or action == _TRANSACTION:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


# What SQLite calls begin, commit and rollback.
_TRANSACTION = 22
