"""Connections of the application, by any driver: enqueue within a caller's transaction, and handlers' own.

Drivers are recognised by the names of their connections' classes, so that none of them need be installed.
"""

from __future__ import annotations

import asyncio
import re
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from windlass.clock import Clock
from windlass.errors import StoreBusy, must_be
from windlass.job import NewJob
from windlass.store.engine import Bridge, Enqueued, Row, Settlement, across
from windlass.store.postgres import hot, session
from windlass.store.postgres.address import Address, read
from windlass.store.postgres.connections import CHANNEL, Guard, Pool
from windlass.store.postgres.session import PostgresTx, Statement

ALLOWED = (
    "a connection to PostgreSQL by psycopg or psycopg2, or a SQLAlchemy or Django connection over one of them"
)
ALLOWED_ASYNC = "an async connection to PostgreSQL by psycopg or asyncpg, or SQLAlchemy's over one of them"

Values = Mapping[str, object]

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_ARRAY = re.compile(r"cast\((\$\d+) as (\w+\[\])\)")
# One text comes back: neither a driver's own types nor what the caller has set for them stands between.
_AS_TEXT = "with answer as (\n{}\n) select cast(to_json(answer) as text) as answer from answer"
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Driver:
    """A caller's connection as our statements see it."""

    def __init__(self, connection: Any, wait: Callable[[Any], Any] = lambda done: done) -> None:
        """`wait` gives the answer to what the connection began: on an event loop it is awaited there."""
        self.connection = connection
        self._wait = wait

    def begins_by_itself(self) -> bool:
        """Whether the next statement begins a transaction that the caller will commit."""
        return not self.connection.autocommit

    def rollback(self) -> None:
        self._wait(self.connection.rollback())

    def command(self, words: str) -> None:
        self._wait(self.connection.execute(words))

    @abstractmethod
    def idle(self) -> bool:
        """Whether no transaction is open."""

    @abstractmethod
    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        """Run a statement and give its rows."""

    @abstractmethod
    def change(self, statement: Statement, values: Values) -> int:
        """Run a statement and say how many rows it changed."""


def driver_of(connection: object, bridge: Bridge | None = None) -> Driver | None:
    """The driver of a connection, which has a bridge if it belongs to an event loop; None if we know none."""
    if bridge is None:
        if isinstance(connection, psycopg.Connection):
            return Psycopg(connection)
        return Psycopg2(connection) if _is(connection, "psycopg2", "connection") else None
    if isinstance(connection, psycopg.AsyncConnection):
        return Psycopg(connection, bridge.wait)
    if _is(connection, "asyncpg", "Connection") or _is(connection, "asyncpg", "PoolConnectionProxy"):
        return Asyncpg(connection, bridge.wait)
    return None


def _is(connection: object, package: str, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(connection).__mro__
    )


class Psycopg(Driver):
    """psycopg 3. The caller's own settings stay: only our cursors read and write in our way."""

    def idle(self) -> bool:
        return bool(self.connection.info.transaction_status == TransactionStatus.IDLE)

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        found: Sequence[Row] = self._wait(self._run(statement, values).fetchall())
        return found

    def change(self, statement: Statement, values: Values) -> int:
        return int(self._run(statement, values).rowcount)

    def _run(self, statement: Statement, values: Values) -> Any:
        kind = (
            psycopg.RawCursor if isinstance(self.connection, psycopg.Connection) else psycopg.AsyncRawCursor
        )
        cursor = kind(self.connection, row_factory=dict_row)
        session.adapt(cursor.adapters)
        given = [values[name] for name in statement.names]
        return self._wait(cursor.execute(statement.text.encode(), given))


class Psycopg2(Driver):
    """psycopg2, which frameworks still use."""

    def idle(self) -> bool:
        return bool(self.connection.get_transaction_status() == TransactionStatus.IDLE)

    def command(self, words: str) -> None:
        self._run(words, None)

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        return [_row(answer) for (answer,) in self._run(_AS_TEXT.format(_bare(statement.named)), values)[0]]

    def change(self, statement: Statement, values: Values) -> int:
        return self._run(statement.named, values)[1]

    def _run(self, text: str, values: Values | None) -> tuple[list[tuple[Any, ...]], int]:
        if values is not None:
            text = _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
        # The caller may have set a class of cursors whose rows have any shape.
        plain = sys.modules["psycopg2.extensions"].cursor
        with self.connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(text, values)
            return (cursor.fetchall() if cursor.description else []), cursor.rowcount


class Asyncpg(Driver):
    """asyncpg, which knows the type of each parameter and takes nothing else."""

    def begins_by_itself(self) -> bool:
        return False

    def idle(self) -> bool:
        return not self.connection.is_in_transaction()

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        text = _AS_TEXT.format(_bare(_arrays_as_text(statement.text)))
        found = self._wait(self.connection.fetch(text, *(values[name] for name in statement.names)))
        return [_row(record["answer"]) for record in found]

    def change(self, statement: Statement, values: Values) -> int:
        text = _arrays_as_text(statement.text)
        told = self._wait(self.connection.execute(text, *(values[name] for name in statement.names)))
        # Such as "DELETE 3".
        number = str(told).rpartition(" ")[2]
        return int(number) if number.isdecimal() else 0


def _arrays_as_text(text: str) -> str:
    return _ARRAY.sub(r"cast(cast(\1 as text) as \2)", text)


def _bare(text: str) -> str:
    return text.rstrip().removesuffix(";")


def _row(answer: str) -> Row:
    # The payload stays as it was sent, to the letter.
    return {
        name: bytes(raw).decode() if name == "payload" else msgspec.json.decode(raw)
        for name, raw in _fields.decode(answer).items()
    }


_MARK = "windlass_guest"


class Guests:
    """Enqueues on callers' connections, if they lead to the queue's own database."""

    def __init__(
        self, address: Address, begin: Callable[[Driver], GuestTx], *, ours: Callable[[], list[Any]]
    ) -> None:
        self._address = address
        self._begin = begin
        self._ours = ours
        # Which database of which server ours is, once somebody has asked; and connections known to be to it.
        self._home: list[Any] | None = None
        self._at_home: WeakSet[Any] = WeakSet()

    def enqueue_on(self, connection: object, jobs: Sequence[NewJob], bridge: Bridge | None) -> list[Enqueued]:
        driver = driver_of(connection, bridge)
        if driver is None:
            raise must_be("connection", connection, ALLOWED if bridge is None else ALLOWED_ASYNC)
        with transaction(self._begin(driver)) as tx:
            self._check_place(driver, tx)
            with _taken_since(self._address):
                done = hot.enqueue(tx, jobs) if jobs else []
            if self._address.notify and any(each.created for each in done):
                # Told when the caller commits, and not at all otherwise.
                tx.rows("notify", channel=CHANNEL)
            return done

    def _check_place(self, driver: Driver, tx: GuestTx) -> None:
        """A job in another database than the queue's would never be found."""
        if driver.connection in self._at_home:
            return
        name, *theirs = place(tx)
        if theirs != self._home:
            # A server that was started again has another beginning than the one that we know.
            self._home = self._ours()[1:]
        if theirs != self._home:
            own = f"to the queue's own database {self._address.shown}"
            raise must_be("connection", f"one to {name!r}", own)
        # Not every driver's connection can be remembered; the others are asked each time.
        with suppress(TypeError):
            self._at_home.add(driver.connection)


_UNIQUE_VIOLATION = "23505"


@contextmanager
def _taken_since(address: Address) -> Iterator[None]:
    """Say that a unique name was taken after the caller's snapshot, which cannot see the job that has it."""
    try:
        yield
    except Exception as error:  # wall: each driver has an error class of its own; any other error goes on
        if _UNIQUE_VIOLATION not in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None)):
            raise
        raise StoreBusy(
            f"{address.shown}: another transaction took a unique name of these jobs after this transaction's"
            " snapshot; roll back and try again"
        ) from error


def place(tx: PostgresTx) -> list[Any]:
    """Which database a connection leads to, by name and by number, and since when its server runs."""
    [row] = tx.rows("place")
    return [row["name"], row["database"], row["since"]]


@contextmanager
def transaction(tx: GuestTx) -> Iterator[GuestTx]:
    """A part of the caller's transaction; the commit is left to the caller.

    Where no transaction is open and none begins by itself, each statement of the caller commits at once, and
    so does this part: nobody would commit it later.
    """
    driver = tx.driver
    began = driver.idle()
    alone = began and not driver.begins_by_itself()
    if alone:
        driver.command("begin")
    try:
        with tx.part():
            yield tx
        if alone:
            driver.command("commit")
    except BaseException:  # wall: what we began ends with us; the error goes on
        if alone and not driver.idle():
            driver.command("rollback")
        elif began and not driver.idle():
            driver.rollback()
        raise


class GuestTx(PostgresTx):
    """A transaction on the caller's connection, whichever driver it belongs to."""

    __slots__ = ("driver",)

    def __init__(self, driver: Driver, known: Mapping[str, Statement], clock: Clock | None = None) -> None:
        super().__init__(driver.connection, known, clock)
        self.driver = driver

    def rows(self, statement: str, /, **values: object) -> Sequence[Row]:
        return self.driver.rows(self._statements[statement], values)

    def row(self, statement: str, /, **values: object) -> Row | None:
        return next(iter(self.rows(statement, **values)), None)

    def change(self, statement: str, /, **values: object) -> int:
        return self.driver.change(self._statements[statement], values)

    @contextmanager
    def part(self) -> Iterator[None]:
        self.driver.command(f"savepoint {_MARK}")
        try:
            yield
        except BaseException:  # wall: the caller's transaction stays usable; the error goes on
            if not self.driver.idle():
                self.driver.command(f"rollback to savepoint {_MARK}")
                self.driver.command(f"release savepoint {_MARK}")
            raise
        self.driver.command(f"release savepoint {_MARK}")


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
    return Handlers(read(url), Guard(), partial(GuestTx, known=session.load()), patience=patience)


class Handlers:
    """Connections for handlers' own transactions, apart from those that the worker needs itself."""

    def __init__(
        self, address: Address, guard: Guard, begin: Callable[[Driver], GuestTx], *, patience: float
    ) -> None:
        self._address = address
        self._begin = begin
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
            hot.complete(self._begin(Psycopg(connection)), completion())

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
                    lambda bridge: hot.complete(self._begin(Psycopg(connection, bridge.wait)), settlement)
                )
            session.check_confirmed(connection, self._address.shown)

    def close(self) -> None:
        self._pool.close()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        address = self._address
        try:
            connection = await psycopg.AsyncConnection.connect(
                address.conninfo(**session.USES["handler"]), autocommit=True
            )
        except psycopg.Error as error:
            raise session.explain(error, address.shown) from error
        _make_ready(connection, address)
        return connection


def _connect(address: Address) -> psycopg.Connection[Any]:
    """A connection as an application makes one: rows, values and cursors are psycopg's own."""
    connection = psycopg.Connection.connect(address.conninfo(**session.USES["handler"]), autocommit=True)
    _make_ready(connection, address)
    return connection


def _make_ready(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], address: Address) -> None:
    if address.pooler:
        connection.prepare_threshold = None
    session.listen_for_replica(connection)


def _milliseconds(within: timedelta) -> str:
    return str(max(1, round(within.total_seconds() * 1000)))
