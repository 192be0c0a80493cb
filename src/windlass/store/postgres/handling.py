"""How do a handler's own writes commit together with its job's completion, in one database?"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
import psycopg_pool

from windlass.errors import LeaseLost, StoreUnavailable
from windlass.store.bridge import across
from windlass.store.postgres import settle
from windlass.store.postgres.drivers import Psycopg, PsycopgAsync
from windlass.store.postgres.guest import GuestTx
from windlass.store.postgres.session import USES, check_confirmed, listen_for_replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from datetime import timedelta

    from windlass.clock import Clock
    from windlass.store.postgres.address import Address
    from windlass.store.postgres.session import Statement
    from windlass.store.protocol import Settlement

_MOST = 10
_PATIENCE_SECONDS = 30.0
_LIMITS = (
    "select set_config('statement_timeout', %(ms)s, true),"
    " set_config('idle_in_transaction_session_timeout', %(ms)s, true)"
)


class Handlers:
    """Connections for handlers' own transactions, apart from those that the worker needs itself."""

    def __init__(self, address: Address, statements: Mapping[str, Statement], clock: Clock | None) -> None:
        self._address = address
        self._statements = statements
        self._clock = clock
        self._lock = threading.Lock()
        self._pool: psycopg_pool.ConnectionPool[psycopg.Connection[Any]] | None = None
        # On an event loop connections are made as they are needed, so many at a time.
        self._rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @contextmanager
    def transaction(
        self, completion: Callable[[], Settlement], within: timedelta
    ) -> Iterator[psycopg.Connection[Any]]:
        """A transaction that commits with the job's completion, or not at all."""
        try:
            with self._opened().connection() as connection:
                with connection.transaction():
                    connection.execute(_LIMITS, {"ms": _milliseconds(within)})
                    yield connection
                    self._complete(GuestTx(Psycopg(connection), self._statements, self._clock), completion())
                check_confirmed(connection, self._address.shown)
        except psycopg_pool.PoolTimeout:
            raise StoreUnavailable(
                f"{self._address.shown} gave none for {_PATIENCE_SECONDS:g} s: it cannot be reached, or "
                f"{_MOST} handlers hold a transaction; try again"
            ) from None

    @asynccontextmanager
    async def transaction_async(
        self, completion: Callable[[], Settlement], within: timedelta
    ) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """The same on the running event loop."""
        room = self._rooms.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_MOST))
        async with (
            room,
            await psycopg.AsyncConnection.connect(self._conninfo(), autocommit=True) as connection,
        ):
            listen_for_replica(connection)
            async with connection.transaction():
                await connection.execute(_LIMITS, {"ms": _milliseconds(within)})
                yield connection
                settlement = completion()
                await across(
                    lambda bridge: self._complete(
                        GuestTx(PsycopgAsync(connection, bridge), self._statements, self._clock), settlement
                    )
                )
            check_confirmed(connection, self._address.shown)

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=1.0)

    def _complete(self, tx: GuestTx, settlement: Settlement) -> None:
        if not settle.complete(tx, settlement):
            raise LeaseLost(settlement.lease.id)

    def _opened(self) -> psycopg_pool.ConnectionPool[psycopg.Connection[Any]]:
        with self._lock:
            if self._pool is None:
                self._pool = psycopg_pool.ConnectionPool(
                    self._conninfo(),
                    connection_class=psycopg.Connection,
                    kwargs={"autocommit": True},
                    min_size=0,
                    max_size=_MOST,
                    timeout=_PATIENCE_SECONDS,
                    configure=listen_for_replica,
                    check=psycopg_pool.ConnectionPool.check_connection,
                    open=True,
                    num_workers=1,
                    name="windlass-handlers",
                )
            return self._pool

    def _conninfo(self) -> str:
        return self._address.conninfo(**USES["handler"])


def _milliseconds(within: timedelta) -> str:
    return str(max(1, round(within.total_seconds() * 1000)))
