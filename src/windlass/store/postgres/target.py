"""How does a database take in the jobs of another store? Sealed until it has them all, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from psycopg import sql

from windlass.errors import Refused
from windlass.store import migration
from windlass.store.moving import TABLES, Batch, Mark, State, Sum, add_up
from windlass.store.postgres import schema
from windlass.store.postgres.address import read
from windlass.store.postgres.connections import Guard, Link
from windlass.store.postgres.session import DIALECT, PostgresTx, load

T = TypeVar("T")

_copied = msgspec.json.Decoder(dict[str, list[str | int]])
_order = msgspec.json.Encoder(order="sorted")


class PostgresTarget:
    """A PostgreSQL store that is being filled."""

    def __init__(self, url: str) -> None:
        self._address = read(url)
        self.place = self._address.shown
        self._tx = partial(PostgresTx, known=load())
        self._guard = Guard()
        self._link = Link(self._address, "upkeep", self._guard)
        known = migration.load(DIALECT)
        try:
            self._run(lambda tx: schema.prepare(tx, self._address, known, create=True))
        except BaseException:  # wall: nothing stays open behind a failed opening; the error goes on
            self.close()
            raise

    def mark(self) -> Mark | None:
        return self._run(_mark)

    def begin(self, mark: Mark) -> None:
        """Seal the store, to be filled. Refused unless it holds nothing."""

        def begin(tx: PostgresTx) -> None:
            there = _mark(tx)
            if there is not None and there.state is State.FILLING:
                raise Refused(f"{self.place} is being filled by a move from {there.place}")
            with tx.part():
                tx.change("move_begins", id=mark.id, place=mark.place, began_at=mark.began_at)
                for table in TABLES:
                    tx.connection.execute(
                        _trigger("create trigger seal before insert or update or delete", table)
                    )
                # Behind the seal: what was written before it was put on is seen here.
                [found] = tx.rows("holds_anything")
                if found["anything"]:
                    raise Refused(
                        f"{self.place} holds jobs, keys or settings already: a move needs a store of its own"
                    )
                tx.rows("move_passes", id=mark.id)
                # Workers that were started here before have registered theirs; the source's take their place.
                for what in ("types", "schemas", "history", "audit"):
                    tx.change(f"move_forgets_{what}")

        self._run(begin)

    def fill(self, mark: Mark, table: str, columns: Sequence[str], batch: Batch) -> Mark:
        """Write rows and how far it is by then; the mark after that. Refused if somebody else goes on."""
        further = msgspec.structs.replace(mark, copied=mark.copied | {table: batch.last})

        def fill(tx: PostgresTx) -> None:
            with tx.part():
                before, copied = _order.encode(mark.copied).decode(), _order.encode(further.copied).decode()
                if tx.change("move_copied", id=mark.id, before=before, copied=copied) != 1:
                    raise Refused(
                        f"the move to {self.place} was taken back, or is carried on by somebody else"
                    )
                tx.rows("move_passes", id=mark.id)
                for day in batch.days:
                    tx.rows("make_days", now=day, days=1)
                into = sql.SQL("copy {} ({}) from stdin").format(_name(table), _names(columns))
                with tx.connection.cursor().copy(into) as copy:
                    copy.write(b"".join(batch.lines))

        self._run(fill)
        return further

    def sum(self, table: str, columns: Sequence[str]) -> Sum:
        out = sql.SQL("copy (select {} from {}) to stdout").format(_names(columns), _name(table))

        def lines(tx: PostgresTx) -> Iterator[bytes]:
            with tx.connection.cursor().copy(out) as copy:
                for each in copy:
                    yield bytes(each)

        return self._run(lambda tx: add_up(lines(tx)))

    def finish(self, highest: int) -> None:
        """Make ready for use what was copied; new jobs are numbered after `highest`. Still sealed."""

        def finish(tx: PostgresTx) -> None:
            tx.rows("number_after", highest=highest)
            tx.rows("audit_number_after")
            for table in TABLES:
                tx.connection.execute(sql.SQL("analyze {}").format(_name(table)))

        self._run(finish)

    def open(self, move: str) -> None:
        self._run(lambda tx: self._unseal(tx, "move_filled", move))

    def clear(self, move: str, *, begun: bool) -> None:
        """Throw away what was copied, and let everybody in. Refused if it was not `begun`, and is by now."""

        def clear(tx: PostgresTx) -> None:
            with tx.part():
                self._unseal(tx, "move_cleared" if begun else "move_cleared_unbegun", move)
                tx.connection.execute(sql.SQL("truncate {}").format(sql.SQL(", ").join(map(_name, TABLES))))

        self._run(clear)

    def close(self) -> None:
        self._link.close()
        self._guard.close()

    def _unseal(self, tx: PostgresTx, note: str, move: str) -> None:
        with tx.part():
            if tx.change(note, id=move) != 1:
                raise Refused(f"{self.place} is not being filled by this move any more")
            for table in TABLES:
                tx.connection.execute(_trigger("drop trigger if exists seal", table))

    def _run(self, call: Callable[[PostgresTx], T]) -> T:
        # Never asked again by itself: whether a lost answer was a yes is read from the mark.
        return self._link.run(lambda connection: call(self._tx(connection)), again=False)


def _mark(tx: PostgresTx) -> Mark | None:
    row = tx.row("move")
    return None if row is None else msgspec.convert({**row, "copied": _copied.decode(row["copied"])}, Mark)


def _trigger(what: str, table: str) -> sql.Composed:
    call = " for each statement execute function windlass.refuse_while_filling()" if what[0] == "c" else ""
    return sql.SQL(f"{what} on {{}}{call}").format(_name(table))


def _name(table: str) -> sql.Identifier:
    return sql.Identifier("windlass", table)


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
