"""How do a handler's own writes commit together with its job's completion, in one database?"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg

from windlass.errors import LeaseLost
from windlass.store.bridge import across
from windlass.store.postgres import settle
from windlass.store.postgres.address import read
from windlass.store.postgres.drivers import Psycopg, PsycopgAsync
from windlass.store.postgres.failures import explain
from windlass.store.postgres.guard import Guard
from windlass.store.postgres.guest import GuestTx
from windlass.store.postgres.pool import Pool
from windlass.store.postgres.session import USES, check_confirmed, listen_for_replica, load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from datetime import timedelta

    from windlass.clock import Clock
    from windlass.store.engine import Settlement
    from windlass.store.postgres.address import Address
    from windlass.store.postgres.session import Statement

_MOST = 10
# The server ends what takes too long; only if it does not answer at all do we, a little later.
_GRACE_SECONDS = 5.0
# Said in each transaction: behind a pooler the next one may come to another session.
_LIMITS = (
    "select set_config('statement_timeout', %(ms)s, true),"
    " set_config('idle_in_transaction_session_timeout', %(ms)s, true),"
    " set_config('synchronous_commit', 'on', true)"
)


def open_handlers(url: str, *, patience: float) -> Handlers:
    """For a process that has no store of its own open."""
    return Handlers(read(url), Guard(), load(), None, patience=patience)


class Handlers:
    """Connections for handlers' own transactions, apart from those that the worker needs itself."""

    def __init__(
        self,
        address: Address,
        guard: Guard,
        statements: Mapping[str, Statement],
        clock: Clock | None,
        *,
        patience: float,
    ) -> None:
        self._address = address
        self._statements = statements
        self._clock = clock
        self._pool = Pool(address, guard, patience=patience, connect=_connect)
        # On an event loop connections are made as they are needed, so many at a time.
        self._rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @contextmanager
    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> Iterator[psycopg.Connection[Any]]:
        """A transaction that commits with the job's completion, or not at all."""
        seconds = within.total_seconds() + _GRACE_SECONDS
        with self._pool.connection(seconds=seconds) as connection, connection.transaction():
            connection.execute(_LIMITS, {"ms": _milliseconds(within)})
            yield connection
            self._complete(GuestTx(Psycopg(connection), self._statements, self._clock), completion())

    @asynccontextmanager
    async def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """The same on the running event loop."""
        room = self._rooms.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_MOST))
        async with room, await self._connected() as connection:
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
        self._pool.close()

    def _complete(self, tx: GuestTx, settlement: Settlement) -> None:
        if not settle.complete(tx, settlement):
            raise LeaseLost(settlement.lease.id)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        address = self._address
        try:
            connection = await psycopg.AsyncConnection.connect(
                address.conninfo(**USES["handler"]), autocommit=True
            )
        except psycopg.Error as error:
            raise explain(error, address.shown) from error
        _make_ready(connection, address)
        return connection


def _connect(address: Address) -> psycopg.Connection[Any]:
    """A connection as an application makes one: rows, values and cursors are psycopg's own."""
    connection = psycopg.Connection.connect(address.conninfo(**USES["handler"]), autocommit=True)
    _make_ready(connection, address)
    return connection


def _make_ready(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], address: Address) -> None:
    if address.pooler:
        connection.prepare_threshold = None
    listen_for_replica(connection)


def _milliseconds(within: timedelta) -> str:
    return str(max(1, round(within.total_seconds() * 1000)))
