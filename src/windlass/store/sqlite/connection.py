"""Connections to a SQLite file, transactions on them, and what SQLite's errors mean to a person."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from windlass.errors import StoreBusy, StoreError, StoreMismatch, StoreUnavailable
from windlass.job import NewJob
from windlass.store import statements as texts
from windlass.store.engine import Enqueued, Row, Unstorable
from windlass.store.sqlite import beside, seal
from windlass.store.sqlite.library import sqlite3

if TYPE_CHECKING:
    from windlass.store.sqlite.storefile import StoreFile


MEMORY = ":memory:"
LONGEST_LOG = 64 * 1024 * 1024

_MARK = "/*where*/"
_ROW_MARK = "/*row*/"

_DATA_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)


class Connection(sqlite3.Connection):
    """A connection of ours, which can be watched without being kept."""

    __slots__ = ("__weakref__", "generation", "main")

    # Which file it has open, and which one that was at its path, counted from the opening of the store; see
    # storefile.py.
    main: tuple[int, int] | None
    generation: int


def open_connection(
    path: str, kind: type[Connection] = Connection, *, cached: int = 256, mode: str = "rw"
) -> Connection:
    """A connection with our settings: durable commits, no checkpoints of its own, explicit transactions."""
    beside.refuse_emptied(path)
    target = MEMORY if path == MEMORY else f"file:{quote(path)}?mode={mode}"
    if mode == "ro" and not beside.size_of(path + "-wal"):
        # Without a log nobody writes; SQLite would want to make one beside a file that cannot be written.
        target += "&immutable=1"
    with translated(path):
        connection = sqlite3.connect(
            target,
            uri=path != MEMORY,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=cached,
            factory=kind,
        )
        with beside.or_close(connection.close):
            connection.main, connection.generation = None, 0
            connection.row_factory = sqlite3.Row
            for pragma in _PRAGMAS:
                connection.execute(f"pragma {pragma}")
    return connection


_PRAGMAS = (
    # Reads the file's first page: what is not a database is refused before anything is written beside it.
    "schema_version",
    # Readers wait only for a recovery or a change of the schema, which are short.
    "busy_timeout = 30000",
    "synchronous = full",
    "wal_autocheckpoint = 0",
    # The log's file is used again and again, which makes commits cheaper than a file that grows; one that a
    # long reader has let grow far beyond that is cut back.
    f"journal_size_limit = {LONGEST_LOG}",
    "cache_size = -16384",
    "temp_store = memory",
)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours, with what to do next."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite quotes the damaged text in its message, and Python cannot decode it.
        raise StoreMismatch(f"{path} is damaged: its schema cannot be read") from error


def explain(error: sqlite3.Error, path: str) -> StoreError:
    """One of our errors for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{path} is locked by somebody else's transaction; try again")
    if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreMismatch(f"{path} is not a SQLite database, or is damaged ({error})")
    if primary == sqlite3.SQLITE_FULL:
        return StoreUnavailable(
            f"no space left to write {path}; nothing was accepted: free some and try again"
        )
    if primary == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(f"{path} is read-only for this user; nothing was written")
    if primary == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailable(f"cannot open {path}: {_why_not(path)}")
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT):
        return StoreUnavailable(
            f"{path} cannot be read or written ({error}); nothing of this request was written"
        )
    return StoreError(f"{path}: {error}")


def _why_not(path: str) -> str:
    place = Path(path)
    try:
        if place.is_dir():
            return "it is a directory, not a file"
        if not place.parent.is_dir():
            return f"there is no directory {place.parent}"
        if not place.exists() and not os.access(place.parent, os.W_OK):
            return f"this user may not write the directory {place.parent}"
        if not place.exists():
            return "there is no such file"
    except OSError as error:
        return str(error.strerror)
    for name in (f"{path}-wal", f"{path}-shm"):
        if os.path.islink(name):  # noqa: PTH114 - a plain name
            return f"{name} is a symbolic link, which SQLite does not follow: remove it"
    if not os.access(place, os.R_OK):
        return "this user may not read it"
    return "this user may not write it or its directory"


class SqliteTx(msgspec.Struct, gc=False):
    """One transaction on one connection."""

    connection: sqlite3.Connection
    _statements: Mapping[str, str]
    now: int

    @property
    def given(self) -> int:
        return self.now

    def learn(self, now: int) -> None:
        """Nothing to do: the time was known from the beginning."""

    def rows(self, statement: str, /, **values: object) -> Sequence[Row]:
        found = self._run(self._statements[statement], values).fetchall()
        # As plain dicts: a Row looks through all of its columns for each name.
        names = found[0].keys() if found else ()
        return [*map(dict, map(zip, repeat(names), found))]

    def row(self, statement: str, /, **values: object) -> Row | None:
        # Fetching all ends the statement: one that waits half-way would hold the transaction open.
        found = self._run(self._statements[statement], values).fetchall()
        return found[0] if found else None

    def change(self, statement: str, /, **values: object) -> int:
        return self._run(self._statements[statement], values).rowcount

    def insert(self, statement: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Run a named statement that inserts a row for many at once; how many it has inserted.

        Their values stand in the order in which the statement names them, each name once.
        """
        values = list(chain.from_iterable(rows))
        return self._run(_repeated(self._statements[statement], len(rows)), values).rowcount

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from windlass.store.sqlite.hot import enqueue  # noqa: PLC0415 - it is written over this class

        return enqueue(self, jobs)

    def change_all(self, statements: Sequence[str], /, **values: object) -> None:
        for statement in statements:
            self._run(self._statements[statement], values)

    def search(
        self, statements: Sequence[str], clauses: str, values: Mapping[str, object], *, oldest: bool = False
    ) -> Sequence[Row]:
        found = [self._statements[name].replace(_MARK, clauses) for name in statements]
        order = "asc" if oldest else "desc"
        return self._run(f"{' union all '.join(found)} order by seq {order} limit :limit", values).fetchall()

    def count(self, statements: Sequence[str], clauses: str, values: Mapping[str, object]) -> int:
        found = " union all ".join(self._statements[name].replace(_MARK, clauses) for name in statements)
        # Statements and clauses are our own texts; every value is bound.
        [row] = self._run(f"select count(*) from ({found} limit :limit)", values)  # noqa: S608
        return int(row[0])

    def field(self, name: str) -> str:
        return f"json_extract(error, '$.{name}')"

    def payload_equals(self, name: str, path: Sequence[str], value: object, values: dict[str, object]) -> str:
        if any(character in part for part in path for character in '"\\'):
            return _odd_field_equals(name, path, value, values)
        values[f"{name}_path"] = "$" + "".join(f'."{part}"' for part in path)
        kinds = _json_types(value)
        if value is None or isinstance(value, bool):
            return f"json_type(payload, :{name}_path) in {kinds}"
        values[name] = value
        found = f"json_extract(payload, :{name}_path) = :{name}"
        return f"(json_type(payload, :{name}_path) in {kinds} and {found})"

    def hint(self) -> None:
        """Nothing to do: every process sees that the file has changed."""

    @contextmanager
    def part(self) -> Iterator[None]:
        self.connection.execute("savepoint part")
        try:
            yield
        except BaseException:  # wall: the part is undone; the error goes on
            # An error such as a full disk has ended the whole transaction, and with it the savepoint.
            if self.connection.in_transaction:
                self.connection.execute("rollback to part")
                self.connection.execute("release part")
            raise
        self.connection.execute("release part")

    def _run(self, text: str, values: Mapping[str, Any] | Sequence[object]) -> sqlite3.Cursor:
        try:
            return self.connection.execute(text, values)
        except _DATA_ERRORS as error:
            if sealed := seal.refusal(self.connection, error):
                raise sealed from error
            raise Unstorable(str(error)) from error


@lru_cache(maxsize=64)
def _repeated(text: str, times: int) -> str:
    """A statement with the row between its marks so many times; a value for each name in it."""
    head, row, tail = text.split(_ROW_MARK)
    return head + ", ".join([texts.unnamed(row)] * times) + tail


def _json_types(value: object) -> str:
    """The types that a JSON value equal to this one can have; in SQL alone 1 and true would be the same."""
    match value:
        case None:
            return "('null')"
        case bool():
            return "('true')" if value else "('false')"
        case str():
            return "('text')"
        case _:
            return "('integer', 'real')"


def _odd_field_equals(name: str, path: Sequence[str], value: object, values: dict[str, object]) -> str:
    """As `payload_equals` for names with quotes, which SQLite's paths cannot write: level by level."""
    levels, conditions, inner = [], [], "payload"
    for depth, part in enumerate(path):
        values[f"{name}_{depth}"] = part
        levels.append(f"json_each({inner}) as level_{depth}")
        conditions.append(f"level_{depth}.key = :{name}_{depth}")
        inner = f"case level_{depth}.type when 'object' then level_{depth}.value else '{{}}' end"
    values[name] = value
    last = f"level_{len(path) - 1}"
    conditions.append(f"{last}.type in {_json_types(value)} and {last}.value is :{name}")
    # Only numbered names are put together here; every value is bound.
    return f"exists (select 1 from {', '.join(levels)} where {' and '.join(conditions)})"  # noqa: S608


# Longer than any read of ours.
_ENDING_SECONDS = 2.0
_LOOK_SECONDS = 0.002
# Every commit of somebody else empties a reader's cache, and there may be a reader for every thread: what the
# writer's brings, many of them would only take from the machine.
_CACHE_KILOBYTES = 1_024


class Readers:
    """Connections that only read, lent for one read each and used again.

    An exception may strike a reading thread at any step (see `writer.py`). A connection that it loses on the
    way is closed when it is collected; so nobody counts who reads, but looks which connections still live.
    """

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._path = file.path
        self._idle: list[Connection] = []
        self._opened: list[weakref.ref[Connection]] = []
        # Held while connections are handed out, and from `pause` to `resume`.
        self._gate = threading.Lock()
        self._watching: Connection | None = None
        self._probing: Connection | None = None

    @contextmanager
    def one(self) -> Iterator[Connection]:
        """A connection in a transaction of its own.

        One snapshot: a job that ends meanwhile is seen once, neither twice nor not at all.
        """
        connection = self._take()
        try:
            connection.execute("begin")
            yield connection
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
        finally:
            connection.rollback()
            self._idle.append(connection)

    def data_version(self) -> int:
        """A number that moves when another connection has committed.

        Asked many times a second by a process that is idle, whose caches are cold: little is called here.
        """
        with self._gate:
            try:
                if self._watching is None or self._watching.generation != self._file.generation:
                    _close(self._watching)
                    self._watching = self._open()
                version: int = self._watching.execute("pragma data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise explain(error, self._path) from error
        return version

    def is_locked(self) -> bool:
        with self._gate:
            try:
                if self._probing is None or self._probing.generation != self._file.generation:
                    _close(self._probing)
                    self._probing = self._file.connect()
                    self._probing.execute("pragma busy_timeout = 0")
                self._probing.execute("begin immediate")
                self._probing.rollback()
            except sqlite3.Error as error:
                failure = explain(error, self._path)
                if isinstance(failure, StoreBusy):
                    return True
                raise failure from error
        return False

    def pause(self) -> bool:
        self._gate.acquire()
        if self._is_reading():
            # A connection refers to itself by its cached statements: one that was lost waits for this.
            gc.collect()
        calm = threading.Event()
        for _ in range(round(_ENDING_SECONDS / _LOOK_SECONDS)):
            if not self._is_reading():
                self._close_idle()
                return True
            calm.wait(_LOOK_SECONDS)
        self._gate.release()
        return False

    def resume(self) -> None:
        self._gate.release()

    def close(self) -> None:
        with self._gate:
            self._close_idle()

    def _take(self) -> Connection:
        if self._file.lost:
            self._file.ensure()
        self._file.check()
        with self._gate:
            while self._idle:
                connection = self._idle.pop()
                if connection.generation == self._file.generation:
                    return connection
                connection.close()
            connection = self._open()
            self._opened = [known for known in self._opened if known() is not None]
            self._opened.append(weakref.ref(connection))
            return connection

    def _open(self) -> Connection:
        connection = self._file.connect()
        connection.execute("pragma query_only = on")
        connection.execute(f"pragma cache_size = -{_CACHE_KILOBYTES}")
        return connection

    def _is_reading(self) -> bool:
        living = sum(known() is not None for known in self._opened)
        return living > len(self._idle)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
        self._opened = [known for known in self._opened if known() is not None]
        _close(self._watching)
        _close(self._probing)
        self._watching = self._probing = None


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
