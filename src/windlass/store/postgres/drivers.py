"""Which drivers may the caller's own connection belong to, and how does each run our statements?

Recognised by their classes' names, so that none of them need be installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from windlass.store.postgres.session import Statement, adapt

if TYPE_CHECKING:
    from windlass.store.bridge import Bridge
    from windlass.store.engine import Row

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


class Driver(Protocol):
    """A caller's connection as our statements see it."""

    @property
    def connection(self) -> object:
        """The driver's own."""

    def begins_by_itself(self) -> bool:
        """Whether the next statement begins a transaction that the caller will commit."""

    def idle(self) -> bool:
        """Whether no transaction is open."""

    def command(self, words: str) -> None:
        """Run a command without parameters."""

    def rollback(self) -> None:
        """Undo the transaction that began by itself with our statement."""

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        """Run a statement and give its rows."""

    def change(self, statement: Statement, values: Values) -> int:
        """Run a statement and say how many rows it changed."""


def driver_of(connection: object) -> Driver | None:
    """The driver of a connection; None if we know none for it."""
    if isinstance(connection, psycopg.Connection):
        return Psycopg(connection)
    if _is(connection, "psycopg2", "connection"):
        return Psycopg2(connection)
    return None


def async_driver_of(connection: object, bridge: Bridge) -> Driver | None:
    """The same for a connection that belongs to an event loop."""
    if isinstance(connection, psycopg.AsyncConnection):
        return PsycopgAsync(connection, bridge)
    if _is(connection, "asyncpg", "Connection") or _is(connection, "asyncpg", "PoolConnectionProxy"):
        return Asyncpg(connection, bridge)
    return None


def _is(connection: object, package: str, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(connection).__mro__
    )


class Psycopg:
    """psycopg 3. The caller's own settings stay: only our cursors read and write in our way."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def begins_by_itself(self) -> bool:
        return not self.connection.autocommit

    def idle(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.IDLE

    def command(self, words: str) -> None:
        self.connection.execute(words.encode())

    def rollback(self) -> None:
        self.connection.rollback()

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        return self._run(statement, values).fetchall()

    def change(self, statement: Statement, values: Values) -> int:
        return self._run(statement, values).rowcount

    def _run(self, statement: Statement, values: Values) -> psycopg.Cursor[dict[str, Any]]:
        cursor = psycopg.RawCursor(self.connection, row_factory=dict_row)
        adapt(cursor.adapters)
        return cursor.execute(statement.text.encode(), [values[name] for name in statement.names])


class PsycopgAsync:
    """psycopg 3 on an event loop."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], bridge: Bridge) -> None:
        self.connection = connection
        self._bridge = bridge

    def begins_by_itself(self) -> bool:
        return not self.connection.autocommit

    def idle(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.IDLE

    def command(self, words: str) -> None:
        self._bridge.wait(self.connection.execute(words.encode()))

    def rollback(self) -> None:
        self._bridge.wait(self.connection.rollback())

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        async def run() -> Sequence[Row]:
            return await (await self._run(statement, values)).fetchall()

        return self._bridge.wait(run())

    def change(self, statement: Statement, values: Values) -> int:
        return self._bridge.wait(self._run(statement, values)).rowcount

    async def _run(self, statement: Statement, values: Values) -> psycopg.AsyncCursor[dict[str, Any]]:
        cursor = psycopg.AsyncRawCursor(self.connection, row_factory=dict_row)
        adapt(cursor.adapters)
        return await cursor.execute(statement.text.encode(), [values[name] for name in statement.names])


class Psycopg2:
    """psycopg2, which frameworks still use."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def begins_by_itself(self) -> bool:
        return not self.connection.autocommit

    def idle(self) -> bool:
        return bool(self.connection.get_transaction_status() == TransactionStatus.IDLE)

    def command(self, words: str) -> None:
        self._run(words, None)

    def rollback(self) -> None:
        self.connection.rollback()

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


class Asyncpg:
    """asyncpg, which knows the type of each parameter and takes nothing else."""

    def __init__(self, connection: Any, bridge: Bridge) -> None:
        self.connection = connection
        self._bridge = bridge

    def begins_by_itself(self) -> bool:
        return False

    def idle(self) -> bool:
        return not self.connection.is_in_transaction()

    def command(self, words: str) -> None:
        self._bridge.wait(self.connection.execute(words))

    def rollback(self) -> None:
        """Never asked: no transaction begins by itself."""

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        text = _AS_TEXT.format(_bare(_arrays_as_text(statement.text)))
        found = self._bridge.wait(self.connection.fetch(text, *(values[name] for name in statement.names)))
        return [_row(record["answer"]) for record in found]

    def change(self, statement: Statement, values: Values) -> int:
        text = _arrays_as_text(statement.text)
        told = self._bridge.wait(self.connection.execute(text, *(values[name] for name in statement.names)))
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
