"""How does a file give its jobs away? Sealed first, then read in order, batch by batch."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from windlass.errors import Refused, StoreUnavailable
from windlass.store import migration
from windlass.store.moving import DAY, TABLES, Batch, Mark, Place, State, line
from windlass.store.sqlite import schema, seal
from windlass.store.sqlite.beside import or_close
from windlass.store.sqlite.connection import translated
from windlass.store.sqlite.library import sqlite3
from windlass.store.sqlite.storefile import StoreFile, our_turn

# Stored as 32 digits here, and grouped by PostgreSQL.
_TOKENS = ("token", "last_token", "probe_token")
# Characters, beyond which a batch takes no more rows.
_ENOUGH = 8_000_000


class SqliteSource:
    """A SQLite store that is being moved."""

    def __init__(self, path: str, *, patience: float) -> None:
        self._file = StoreFile(path)
        self._path = self._file.path
        self._patience = patience
        # The machine's name too: two machines may each have such a file.
        self.place = f"sqlite:///{self._path} on {socket.gethostname()}"
        if not Path(self._path).is_file():
            raise StoreUnavailable(f"there is no store at {self._path}; only a file can be moved")
        self._connection = self._file.open_first(create=False, patience=patience)
        self._tx = schema.transaction(self._connection)
        with or_close(self._connection.close), translated(self._path):
            migration.check(schema.look(self._tx, migration.load(schema.DIALECT)), self._path)

    def mark(self) -> Mark | None:
        with translated(self._path):
            row = self._tx.row("move")
        return None if row is None else msgspec.convert(dict(row), Mark)

    def begin(self, mark: Mark) -> None:
        """Seal the store. Refused if it is being moved, or was."""
        with self._writing() as connection:
            if self.mark() is not None:
                raise Refused(f"{self._path} is being moved by somebody else")
            self._tx.change(
                "begin_move", id=mark.id, state=mark.state.value, place=mark.place, began_at=mark.began_at
            )
            for statement in seal.put_on():
                connection.execute(statement)

    def change(self, move: str, before: State, after: State) -> None:
        """Note how far the move has come. Refused if it is not where it should be."""
        with self._writing():
            done = self._tx.change("change_move", id=move, before=before.value, after=after.value)
            if done != 1:
                raise Refused(f"the move of {self._path} was taken back, or is carried on by somebody else")

    def take_back(self, move: str) -> None:
        """Open the store again. Refused once the jobs have changed hands."""
        with self._writing() as connection:
            if self._tx.change("take_back_move", id=move) != 1:
                raise Refused(f"the move of {self._path} is over: it cannot be taken back")
            for statement in seal.take_off():
                connection.execute(statement)

    def columns(self, table: str) -> tuple[str, ...]:
        with translated(self._path):
            return tuple(
                row["name"] for row in self._connection.execute(f"pragma table_info(windlass_{table})")
            )

    def count(self, table: str, after: Place | None = None) -> int:
        # The names of tables and columns here and below are our own; every value is bound.
        text = f"select count(*) from windlass_{table} {_beyond(table, after)}"  # noqa: S608
        with translated(self._path):
            [count] = self._connection.execute(text, after or ()).fetchone()
            return int(count)

    def batch(self, table: str, after: Place | None, limit: int) -> Batch | None:
        order = TABLES[table]
        columns = self.columns(table)
        text = (
            f"select {', '.join(map(_read, columns))} from windlass_{table} {_beyond(table, after)} "  # noqa: S608
            f"order by {', '.join(order)} limit ?"
        )
        with translated(self._path):
            cursor = self._connection.cursor()
            cursor.row_factory = None
            rows = list(_while_small(cursor.execute(text, (*(after or ()), limit))))
            cursor.close()
        if not rows:
            return None
        last = [rows[-1][columns.index(name)] for name in order]
        ended = {row[columns.index("finished_at")] for row in rows} if table == "archive" else ()
        days = tuple(sorted({at // DAY * DAY for at in ended}))
        return Batch([line(row) for row in rows], last, days)

    def highest(self) -> int:
        with translated(self._path):
            [row] = self._tx.rows("highest_seq")
        return int(row["seq"] or 0)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(our_turn(self._path, self._patience)), translated(self._path):
            self._connection.execute("begin immediate")
            try:
                self._file.check(self._connection)
                yield self._connection
                self._connection.execute("commit")
                self._file.check(self._connection)
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")


def _while_small(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows until they are enough for one batch: payloads and histories may be large."""
    size = 0
    for row in rows:
        yield row
        size += sum(len(value) for value in row if isinstance(value, str))
        if size >= _ENOUGH:
            return


def _beyond(table: str, after: Place | None) -> str:
    order = TABLES[table]
    return "" if after is None else f"where ({', '.join(order)}) > ({', '.join('?' for _ in order)})"


def _read(column: str) -> str:
    if column not in _TOKENS:
        return column
    groups = " || '-' || ".join(
        f"substr({column}, {start}, {length})"
        for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    return f"case when length({column}) = 32 then {groups} else {column} end"
