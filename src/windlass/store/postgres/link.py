"""How do verbs come to a connection? By a pool, or by one of their own that nobody else can exhaust."""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import psycopg
import psycopg_pool
from psycopg.rows import dict_row

from windlass.errors import StoreUnavailable
from windlass.store.postgres.failures import explain, is_away
from windlass.store.postgres.session import USES, Connection, check_confirmed, open_connection, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.store.postgres.address import Address
    from windlass.store.postgres.guard import Guard

T = TypeVar("T")

_MOST_POOLED = 10
_FRESH_SECONDS = 1.0
# Seconds after which our side gives up, a little more than the server's own limits.
LONGEST = {"claim": 20.0, "settle": 35.0, "beat": 6.0, "listen": 6.0, "upkeep": math.inf}
_SHAPES = {"row_factory": dict_row, "cursor_factory": psycopg.RawCursor}


class Link:
    """One connection for one use, opened when it is needed and again after it broke."""

    def __init__(self, address: Address, use: str, guard: Guard) -> None:
        self._address = address
        self._use = use
        self._guard = guard
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def run(self, call: Callable[[Connection], T], *, again: bool = True) -> T:
        """Call with the connection, alone. One that broke is opened anew and, with `again`, asked once more.

        Only for what may be repeated: a settle that was written finds itself done.
        """
        with self._lock:
            fresh = self._connection is None
            try:
                return self._call(call)
            except psycopg.Error as error:
                if not is_away(error):
                    raise explain(error, self._address.shown) from error
                self._drop()
                if fresh or not again:
                    raise explain(error, self._address.shown) from error
            try:
                return self._call(call)
            except psycopg.Error as error:
                if is_away(error):
                    self._drop()
                raise explain(error, self._address.shown) from error

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._drop()

    def _call(self, call: Callable[[Connection], T]) -> T:
        if self._connection is None or self._connection.closed:
            self._connection = open_connection(self._address, self._use)
        with self._guard.watching(self._connection, LONGEST[self._use]):
            answer = call(self._connection)
        check_confirmed(self._connection, self._address.shown)
        return answer

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


class Pool:
    """Connections for producers and operators."""

    def __init__(self, address: Address, guard: Guard, *, patience: float) -> None:
        self._address = address
        self._guard = guard
        self._patience = patience
        self._used: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._pool: psycopg_pool.ConnectionPool[Connection] = psycopg_pool.ConnectionPool(
            address.conninfo(**USES["pool"]),
            connection_class=psycopg.Connection,
            kwargs={"autocommit": True, **_SHAPES},
            min_size=0,
            max_size=_MOST_POOLED,
            timeout=patience,
            configure=lambda connection: prepare(connection, address),
            check=self._check,
            open=False,
            num_workers=1,
            name="windlass",
        )

    def open(self) -> None:
        """Begin to serve; connections are made when they are asked for."""
        self._pool.open()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for one short use."""
        shown = self._address.shown
        try:
            with self._pool.connection() as connection:
                with self._guard.watching(connection, self._patience):
                    yield connection
                self._used[connection] = monotonic()
                check_confirmed(connection, shown)
        except psycopg_pool.PoolTimeout:
            raise StoreUnavailable(
                f"{shown} gave no connection for {self._patience:g} s: it cannot be reached, or all of "
                f"{_MOST_POOLED} are in use; nothing was written: try again"
            ) from None
        except psycopg_pool.PoolClosed:
            raise StoreUnavailable(f"{shown} was closed in this process; open it again") from None

    def _check(self, connection: Connection) -> None:
        """Whether a connection that has rested is still one; the pool replaces it if this raises."""
        if monotonic() - self._used.get(connection, 0.0) > _FRESH_SECONDS:
            psycopg_pool.ConnectionPool.check_connection(connection)

    def close(self) -> None:
        """Let go of all connections."""
        self._pool.close(timeout=1.0)
