"""How do a handler's own writes commit together with its job's completion, in one file?

The handler gets a connection of its own, which holds the only writer meanwhile: therefore not for long.
"""

from __future__ import annotations

import threading
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from windlass.clock import SystemClock
from windlass.errors import Refused, StoreBusy, TransactionTooLong
from windlass.store.bridge import across_block
from windlass.store.sqlite import locks, schema, settle
from windlass.store.sqlite.connection import MEMORY, Connection, SqliteTx, explain
from windlass.store.sqlite.identity import StoreFile
from windlass.store.sqlite.library import sqlite3
from windlass.store.statements import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import timedelta

    from windlass.clock import Clock
    from windlass.store.engine import Settlement

LONGEST_SECONDS = 5.0


class HandlerConnection(Connection):
    """What a handler holds: an ordinary connection, but its transaction is not the handler's to end."""

    def commit(self) -> None:
        """Refused."""
        raise Refused("the transaction commits with the job, at the end of the block; nothing was committed")

    def rollback(self) -> None:
        """Refused."""
        raise Refused("raise an exception to undo the transaction")


def open_handlers(path: str, *, patience: float) -> Handlers:
    """For a process that has no store of its own open."""
    return Handlers(lambda: _adopted(path), load(schema.DIALECT), SystemClock(), patience=patience)


def _adopted(path: str) -> StoreFile:
    """The file as it is now: that the job is still in it is what its lease's token decides."""
    file = StoreFile(path)
    file.adopt()
    return file


class Handlers:
    """Gives handlers their transactions; one connection each, gone with it."""

    def __init__(
        self,
        file: Callable[[], StoreFile],
        statements: Mapping[str, str],
        clock: Clock,
        *,
        patience: float,
    ) -> None:
        self._file = file
        self._statements = statements
        self._clock = clock
        self._patience = patience

    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractContextManager[Any]:
        """A transaction that commits with the job's completion, or not at all."""
        patience = min(self._patience, within.total_seconds())
        return transaction(self._file(), self._statements, self._clock, completion, patience=patience)

    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        """The same for a handler on an event loop."""
        return across_block(lambda: self.transaction(completion, within=within))

    def close(self) -> None:
        """Nothing is kept between transactions."""


@contextmanager
def transaction(
    file: StoreFile,
    statements: Mapping[str, str],
    clock: Clock,
    completion: Callable[[], Settlement],
    *,
    patience: float,
    longest: float = LONGEST_SECONDS,
) -> Iterator[sqlite3.Connection]:
    """A transaction that commits with the job's completion, or not at all."""
    path = file.path
    if path == MEMORY:
        raise Refused("a store in memory has no second connection; ctx.transaction() needs a file")
    turn = locks.turn_for(path)
    try:
        if not turn.take_within(patience):
            who = locks.describe(locks.holder(path))
            raise StoreBusy(f"{who} has held the write lock of {path} for {patience:g} s; try again")
        # Not cached: each statement is looked at anew, also after the time was over.
        connection = file.connect(HandlerConnection, cached=0)
        try:
            with _Watch(connection, path, longest, let_go=turn.give) as watch:
                yield connection
                watch.ours()
                tx = SqliteTx(connection, statements, clock.micros())
                settle.complete(tx, completion())
                file.check(connection)
                connection.execute("commit")
                file.check(connection)
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if _is_locked(error):
            raise explain(error, path) from error
        raise
    finally:
        turn.close()


def _is_locked(error: sqlite3.OperationalError) -> bool:
    return isinstance(explain(error, ""), StoreBusy)


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
        """On the timer's thread."""
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
