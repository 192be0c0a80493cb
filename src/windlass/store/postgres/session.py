"""Sessions and transactions on PostgreSQL, arrays in its spelling, and what its errors mean.

A column of values is one parameter: an array in the server's own spelling. The driver's own way of writing
lists costs several times as much, on the path of every job.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import TextLoader

from windlass.clock import Clock
from windlass.errors import StoreBusy, StoreError, StoreMismatch, StoreUnavailable
from windlass.job import NewJob
from windlass.store import statements
from windlass.store.engine import Enqueued, Row, Unstorable
from windlass.store.postgres.address import Address

NOTHING = "{}"
_NULL = "NULL"


def _array(spell: Callable[[Any], str], values: Iterable[Any]) -> str:
    listed = list(values)
    if listed and listed.count(listed[0]) == len(listed):
        # Of many jobs most columns say the same in every row: it is spelled once. Where they say nothing, the
        # column is left out: `unnest` fills up with nulls.
        return NOTHING if listed[0] is None else "{" + ",".join([spell(listed[0])] * len(listed)) + "}"
    return "{" + ",".join([_NULL if value is None else spell(value) for value in listed]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Whole numbers; texts of which it is known that they need no quotes, such as tokens and states; any texts.
numbers: Callable[[Iterable[int | None]], str] = partial(_array, int.__repr__)
words: Callable[[Iterable[str | None]], str] = partial(_array, str)
texts: Callable[[Iterable[str | None]], str] = partial(_array, _quoted)


_BUSY = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.ObjectInUse,
)
_FOREIGN = (errors.InvalidSchemaName, errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction)
# What PgBouncer says to a connection that brings settings with it.
_POOLED = "unsupported startup parameter"
# Raised by the seal of a store that a move is filling.
_FILLING = "WL001"
# Where the server finds that a prepared statement would answer with other columns than before.
_PREPARED_BEFORE = "RevalidateCachedQuery"
# Classes of SQLSTATE that mean that the connection, or the server behind it, is no good.
_AWAY = ("08", "57P", "53", "28", "3D")


def explain(error: psycopg.Error, shown: str) -> StoreError:
    """One of our errors for one of PostgreSQL's, with what to do next."""
    why = told(error)
    if error.sqlstate == _FILLING:
        return StoreUnavailable(f"{shown} {why}; nothing was written: try again when the move is over")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(f"{shown} is read-only, as a standby is; nothing was written: try again")
    if isinstance(error, errors.DeadlockDetected):
        return StoreBusy(f"{shown}: two transactions waited for each other; try again")
    if isinstance(error, _BUSY):
        return StoreBusy(f"{shown} did not answer in time ({why}); try again")
    if isinstance(error, _FOREIGN):
        return StoreMismatch(f"{shown} has no Windlass schema of this version ({why}): `windlass db migrate`")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreUnavailable(f"{shown}: this user may not do that ({why})")
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory)):
        return StoreUnavailable(f"{shown} has no room left ({why}); nothing was accepted")
    if _POOLED in why:
        return StoreUnavailable(
            f"{shown} is a pooler, which takes no settings of a session: say windlass_pooler=on in the URL"
        )
    if is_away(error):
        return StoreUnavailable(f"{shown} cannot be reached ({why}); try again")
    return StoreError(f"{shown}: {why}")


def is_away(error: psycopg.Error) -> bool:
    """Whether the connection is of no more use, or none could be made."""
    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(_AWAY) or is_stale(error)


def is_stale(error: psycopg.Error) -> bool:
    """Whether this connection is of no more use, and others of its age are not, though the server is there.

    It leads to a standby; or a migration has added to a table since its statements were prepared.
    """
    return isinstance(error, errors.ReadOnlySqlTransaction) or _is_outdated(error)


def _is_outdated(error: psycopg.Error) -> bool:
    changed = isinstance(error, errors.FeatureNotSupported)
    return changed and error.diag.source_function == _PREPARED_BEFORE


def is_passing(error: psycopg.Error) -> bool:
    """Whether the very same transaction may succeed when it is run again at once.

    What it has prepared the driver forgets when it rolls back.
    """
    return isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure)) or _is_outdated(error)


def lacks_day(error: errors.CheckViolation) -> bool:
    """Whether the archive has no partition for the day of a row."""
    return error.diag.constraint_name is None and error.diag.table_name == "archive"


def told(error: psycopg.Error) -> str:
    """The first line of what the server said; libpq's own words carry no password."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    return text.strip().splitlines()[0]


Connection = psycopg.Connection[dict[str, Any]]

DIALECT = "postgres"
_MARK = "/*where*/"
_DATA_ERRORS = (
    psycopg.DataError,
    errors.NotNullViolation,
    errors.CheckViolation,
    UnicodeError,
    OverflowError,
)
# Somebody holds a row for long, or there was too much to do for the time that a server gives a statement.
_HELD_UP = (errors.LockNotAvailable, errors.DeadlockDetected, errors.QueryCanceled)
_WAIT_FOR_REPLICA = "SyncRepWaitForLSN"

# Sessions never wait without end for a lock or an answer, and never keep a forgotten transaction open.
_COMMON = {
    "jit": "off",
    # Each statement sees what was committed before it, whatever the database's own default is.
    "default_transaction_isolation": "read committed",
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "60s",
    "statement_timeout": "30s",
}
# Hot statements are planned once, for any values; what is left to choose from is the right index.
_HOT = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    # Few live rows among many dead ones look cheap to sort: PostgreSQL 18 then reads the whole primary key.
    "enable_sort": "off",
}
USES: dict[str, dict[str, str]] = {
    "pool": _COMMON,
    "claim": _COMMON | _HOT | {"statement_timeout": "15s"},
    "settle": _COMMON | _HOT,
    # A beat that is lost with the server is followed by the next; it never waits for a replica or a disk.
    "beat": _COMMON | _HOT | {"statement_timeout": "5s", "lock_timeout": "2s", "synchronous_commit": "off"},
    # What a handler does in its own transaction is planned as in any other session of its application.
    "handler": {"synchronous_commit": "on", "default_transaction_isolation": "read committed"},
    # A hint need not survive a loss of power: nobody waits for the disk.
    "listen": _COMMON | {"statement_timeout": "5s", "synchronous_commit": "off"},
    "upkeep": _COMMON | {"statement_timeout": "0", "lock_timeout": "10s"},
}
_HOT_USES = [use for use, settings in USES.items() if settings.items() >= _HOT.items()]


def first(parts: Sequence[str], *, oldest: bool = False) -> str:
    """The newest rows of several statements, or the oldest. Each is cut alone: else all would be sorted."""
    cut = f"order by seq {'asc' if oldest else 'desc'} limit :limit"
    if len(parts) == 1:
        return f"{parts[0]} {cut}"
    return " union all ".join(f"({part} {cut})" for part in parts) + f" {cut}"


class Statement(NamedTuple):
    """A text with numbered parameters, their names in order, and the text as it is kept, with the names."""

    text: str
    names: tuple[str, ...]
    named: str

    @classmethod
    def of(cls, named: str) -> Statement:
        return cls(*statements.numbered(named), named)


def load() -> dict[str, Statement]:
    """Our statements as the driver takes them."""
    return {name: Statement.of(text) for name, text in statements.load(DIALECT).items()}


def open_connection(address: Address, use: str) -> Connection:
    """A connection with our settings for one use."""
    connection = psycopg.Connection.connect(
        address.conninfo(**USES[use]), autocommit=True, row_factory=dict_row, cursor_factory=psycopg.RawCursor
    )
    adapt(connection.adapters)
    # Hot statements all come again: one that was not prepared at first would be planned twice.
    connection.prepare_threshold = None if address.pooler else int(use not in _HOT_USES)
    listen_for_replica(connection)
    return connection


def listen_for_replica(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Notice the warning that turns a commit into a failure: its synchronous replica never confirmed it."""

    def hear(said: psycopg.errors.Diagnostic) -> None:
        if said.source_function == _WAIT_FOR_REPLICA:
            unconfirmed.add(connection)

    connection.add_notice_handler(hear)


def localize(connection: Connection, use: str) -> None:
    """Make a use's settings for this transaction alone, where a pooler gives each one another session."""
    words = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in USES[use].items())
    connection.execute(f"select {words}".encode())


def adapt(adapters: AdaptersMap) -> None:
    """Ids and JSON are read as text, every number is sent as a bigint: so statements stay the same."""
    adapters.register_loader("uuid", TextLoader)
    adapters.register_loader("json", TextLoader)
    adapters.register_dumper(int, Int8Dumper)


class Unconfirmed(StoreUnavailable):
    """Committed here, and nowhere else: a failover would lose it."""


# Connections whose last commit was not.
unconfirmed: weakref.WeakSet[Any] = weakref.WeakSet()


def check_confirmed(connection: object, shown: str) -> None:
    """Raise if the last commit was given up waiting for its synchronous replica."""
    if connection in unconfirmed:
        unconfirmed.discard(connection)
        raise Unconfirmed(
            f"{shown} committed, but its synchronous replica did not confirm it: it may be lost; try again"
        )


def _readable(text: str) -> str:
    """JSON that the server can read: it cannot read what stands for a NUL, but anything else in its place."""
    return rf"cast(replace({text}, '\u0000', '\u0001') as json)"


class PostgresTx:
    """One transaction on one connection. Its time is the server's, asked for once when it is needed."""

    __slots__ = ("_statements", "connection", "given", "hinted")

    def __init__(
        self, connection: Connection, known: Mapping[str, Statement], clock: Clock | None = None
    ) -> None:
        self.connection = connection
        self._statements = known
        self.given = None if clock is None else clock.micros()
        self.hinted = False

    @property
    def now(self) -> int:
        if self.given is None:
            [row] = self.rows("time")
            self.given = int(row["now"])
        return self.given

    def learn(self, now: int) -> None:
        if self.given is None:
            self.given = now

    def rows(self, statement: str, /, **values: object) -> Sequence[Row]:
        return self._run(self._statements[statement], values).fetchall()

    def tuples(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        """The same without names, which cost more than the values where there are many rows."""
        cursor = self.connection.cursor(row_factory=tuple_row)
        return self._run(self._statements[statement], values, cursor).fetchall()

    def row(self, statement: str, /, **values: object) -> Row | None:
        return self._run(self._statements[statement], values).fetchone()

    def tuples_after(
        self, first: str, given: Mapping[str, object], statement: str, values: Mapping[str, object]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """The rows of two statements without names, in one transaction and with one wait for both."""
        one, other = (self.connection.cursor(row_factory=tuple_row) for _ in range(2))
        with self.connection.pipeline():
            self._run(self._statements[first], given, one)
            self._run(self._statements[statement], values, other)
        return one.fetchall(), other.fetchall()

    def pipeline(self) -> AbstractContextManager[object]:
        """Statements that do not wait for each other's answers; one that fails fails them all."""
        return self.connection.pipeline()

    def change(self, statement: str, /, **values: object) -> int:
        return self._run(self._statements[statement], values).rowcount

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from windlass.store.postgres.hot import enqueue  # noqa: PLC0415 - it is written over this class

        return enqueue(self, jobs)

    def change_all(self, statements: Sequence[str], /, **values: object) -> None:
        # As one: mostly there is nothing to change, and an idle fleet shall ask little.
        parts = (f"{name} as ({self._statements[name].named.rstrip().rstrip(';')})" for name in statements)
        try:
            self._run(Statement.of(f"with {', '.join(parts)} select"), values)
        except _HELD_UP:
            if self.connection.info.transaction_status is not TransactionStatus.IDLE:
                raise
        else:
            return
        # One by one, so that none is held up by what holds up another; the first that is fails at last.
        failed: psycopg.Error | None = None
        for name in statements:
            try:
                self._run(self._statements[name], values)
            except _HELD_UP as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def search(
        self, parts: Sequence[str], clauses: str, values: Mapping[str, object], *, oldest: bool = False
    ) -> Sequence[Row]:
        text = first(self._filtered(parts, clauses), oldest=oldest)
        return self._run(Statement.of(text), values).fetchall()

    def count(self, parts: Sequence[str], clauses: str, values: Mapping[str, object]) -> int:
        found = " union all ".join(self._filtered(parts, clauses))
        # Statements and clauses are our own texts; every value is bound.
        text = f"select count(*) as count from ({found} limit :limit) as found"  # noqa: S608
        [row] = self._run(Statement.of(text), values)
        return int(row["count"])

    def _filtered(self, parts: Sequence[str], clauses: str) -> list[str]:
        return [self._statements[name].named.replace(_MARK, clauses) for name in parts]

    def field(self, name: str) -> str:
        return f"{_readable('error')} ->> '{name}'"

    def payload_equals(self, name: str, path: Sequence[str], value: object, values: dict[str, object]) -> str:
        found = _readable("cast(payload as text)")
        # Level by level: a whole path would take a number for a place in a list.
        for depth, part in enumerate(path):
            values[f"{name}_{depth}"] = part.replace("\0", "\1")
            found += f" -> cast(:{name}_{depth} as text)"
        values[name] = json.dumps(value).replace("\\u0000", "\\u0001")
        return f"cast({found} as jsonb) = cast(:{name} as jsonb)"

    def hint(self) -> None:
        self.hinted = True

    def part(self) -> AbstractContextManager[object]:
        return self.connection.transaction()

    def _run(
        self, statement: Statement, values: Mapping[str, Any], cursor: psycopg.Cursor[Any] | None = None
    ) -> psycopg.Cursor[Any]:
        at = self.connection if cursor is None else cursor
        try:
            return at.execute(statement.text.encode(), [*map(values.__getitem__, statement.names)])
        except _DATA_ERRORS as error:
            if isinstance(error, errors.CheckViolation) and error.diag.constraint_name is None:
                raise
            raise Unstorable(str(error).splitlines()[0]) from error
