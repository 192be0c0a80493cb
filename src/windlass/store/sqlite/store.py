"""The SQLite store: every verb of the seam over one writer and short readers."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from windlass.clock import Clock, SystemClock, from_micros
from windlass.errors import Refused, StoreBusy, StoreUnavailable
from windlass.job import Lease, NewJob, TypeInfo
from windlass.store import catalogue, migration, statements
from windlass.store.engine import Bridge, Claimed, Enqueued, Settlement, Want
from windlass.store.oncall import DatabaseHealth
from windlass.store.sqlite import guests, health, hot, schema, storefile
from windlass.store.sqlite.connection import MEMORY, Connection, Readers, SqliteTx, open_connection
from windlass.store.sqlite.library import require_version, sqlite3
from windlass.store.sqlite.storefile import StoreFile
from windlass.store.sqlite.writer import Writer
from windlass.store.store import Store
from windlass.store.upkeep import Retention, StoreStatus

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE_SECONDS = 30.0
# A caller that waits for its own transaction is told so after this time.
_OWN_LOCK_SECONDS = 5.0


class SqliteStore(Store):
    """A store in one file. Safe for many threads and, on one machine, many processes."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        create: bool = True,
        patience: float = _PATIENCE_SECONDS,
        migrations: Path | None = None,
    ) -> None:
        require_version()
        if _tainted:
            raise StoreUnavailable(
                f"this process was forked while {path} was in use, and cannot lock it safely: "
                "fork when nothing is being read or written, or start processes by spawn"
            )
        self._file = StoreFile(path)
        self.path = self._file.path
        super().__init__(self.path)
        self.clock = clock or SystemClock()
        self._statements = statements.load(schema.DIALECT)
        self._known = migration.load(schema.DIALECT, migrations)
        self._patience = patience
        self._readers = Readers(self._file)
        self._handlers = guests.Handlers(self._file.ensure, self._statements, self.clock, patience=patience)
        self._make = partial(schema.make, self._file, self.clock, self._known, patience=patience)
        # False while a transaction of somebody else keeps us from adding our tables to a file.
        self._made = self.path == MEMORY or self._make_at_once(create=create)
        self._file.reopen = self._reopen
        self._writer = Writer(
            self._connect,
            self._file,
            statements=self._statements,
            clock=self.clock,
            patience=patience,
            open_now=self._made,
        )
        _open.add(self)

    def _make_at_once(self, *, create: bool) -> bool:
        """False if the tables cannot be added just now. The lock may be held by the caller itself."""
        try:
            self._make(create=create, busy=0 if create else self._patience)
        except StoreBusy:
            if not create:
                raise
            return False
        return True

    def _make_patiently(self) -> None:
        own = min(_OWN_LOCK_SECONDS, self._patience)
        try:
            self._make(create=True, busy=own)
        except StoreBusy as error:
            if own == self._patience or storefile.writes_itself(self.path):
                raise StoreBusy(
                    f"{self.path} has no Windlass tables yet, and a transaction holds its write lock: commit "
                    "it first, or enqueue within it by connection=..."
                ) from error
            self._make(create=True, busy=self._patience - own)
        self._made = True

    def _reopen(self) -> None:
        """Another file was put at the path: it must be a store, and one that this code knows."""
        self._make(create=False, busy=self._patience)
        self._made = True
        if self._file.read_only is not self._writer.read_only:
            raise StoreUnavailable(
                f"{self.path} was replaced by a file with other permissions: restart this process"
            )

    def _connect(self) -> Connection:
        if not self._made:
            self._make_patiently()
        if self.path != MEMORY:
            return self._file.connect()
        return self._blank()

    def _blank(self) -> Connection:
        connection = open_connection(MEMORY)
        schema.prepare(schema.transaction(connection, self.clock.micros()), MEMORY, self._known)
        return connection

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        alone = hot.enqueue_alone if len(jobs) == 1 and jobs[0].fresh and hot.is_plain(jobs[0]) else None
        return self._writer.run(hot.enqueue, jobs, joins=True, alone=alone)

    def enqueue_on(
        self,
        connection: object,
        jobs: Sequence[NewJob],
        types: Sequence[TypeInfo] = (),
        app: str = "",
        bridge: Bridge | None = None,
    ) -> list[Enqueued]:
        guest = guests.checked(connection) if bridge is None else guests.AsyncGuest(connection, bridge)
        # The caller's connection runs no checkpoints, so ours must not wait for a write of our own.
        self._writer.checkpoint_soon()
        self._file.ensure()
        self._file.check_kept()

        def prepare(tx: SqliteTx) -> None:
            """On the first use of the queue our tables may be missing; they commit with the caller's rows."""
            if not self._made:
                schema.add_within(tx, self._known)

        with guests.guest_transaction(guest, self.path, self._statements, self.clock, prepare=prepare) as tx:
            if types:
                # With the jobs: on a connection of our own it would wait for the caller's lock.
                catalogue.register(tx, types, app)
            done = hot.enqueue(tx, jobs)
            self._check_guest()
            return done

    def _check_guest(self) -> None:
        """The caller's connection holds a write lock: is it the one of our file?

        A connection goes on with the file that it opened, also when another one is at the path by now.
        """
        self._file.check_kept()
        here = self._readers.is_locked()
        # Others may hold the lock of the new file; so after a replacement the kernel is asked who does.
        if here and self._file.generation > 1 and Path("/proc/locks").exists():
            here = storefile.writes_itself(self.path)
        if not here:
            raise StoreUnavailable(
                f"the connection= is open on a file that is no longer at {self.path}; nothing was enqueued: "
                "close it and connect again"
            )

    @property
    def generation(self) -> int:
        if self._file.lost:
            self._file.ensure()
        return self._file.generation

    def claim(self, want: Want) -> Claimed:
        # A look first: an idle fleet must not queue for the write lock to find nothing.
        limit_state = None
        if want.restricted or want.lowest or self.path != MEMORY:
            seen = self._read(hot.look, want)
            if isinstance(seen, Claimed):
                return seen
            limit_state = seen
        return self._writer.run(hot.claim_once, want, limit_state)

    def settle(self, settlements: Sequence[Settlement]) -> list[Lease]:
        return self._writer.run(hot.settle, settlements) if settlements else []

    def handlers(self) -> guests.Handlers:
        # As for a caller's connection: it runs no checkpoints of its own.
        self._writer.checkpoint_soon()
        return self._handlers

    def shared_address(self) -> str:
        if self.path == MEMORY:
            raise Refused("a store in memory has no second connection; ctx.transaction() needs a file")
        self._writer.checkpoint_soon()
        return self.path

    def now(self) -> datetime:
        return from_micros(self.clock.micros())

    def prune(self, keep: Retention, *, limit: int = 1_000, by: str = "") -> int:
        pruned = self._writer.run(health.prune, keep, limit, by)
        if pruned:
            while self._writer.run(health.give_back_room):
                pass
        return pruned

    def status(self) -> StoreStatus:
        with self._reader() as connection:
            return health.status(connection, self.path, self._known)

    def database(self) -> DatabaseHealth:
        with self._reader() as connection:
            return health.database(connection, self.path, self._known, read_only=self._file.read_only)

    def backup(self, path: str) -> None:
        self._check_open()
        health.backup(self._file, path)

    def check(self) -> list[str]:
        with self._reader() as connection:
            return health.check(connection)

    def watch(self) -> Callable[[], int] | None:
        """A number that moves when anybody commits, which is how other processes are noticed."""
        return None if self.path == MEMORY else self._readers.data_version

    def close(self) -> None:
        if self._opened_by != os.getpid():
            return
        self._opened_by = None
        # The writer is last: it notes that the log is gone.
        self._readers.close()
        self._writer.close()

    # --- around a fork ---

    def before_fork(self) -> bool:
        """Close every file; False if one is in use and cannot be closed."""
        if self.path == MEMORY or self._opened_by != os.getpid():
            return True
        if not self._readers.pause():
            return False
        if not self._writer.pause():
            self._readers.resume()
            return False
        return True

    def after_fork_in_parent(self) -> None:
        if self.path != MEMORY and self._opened_by == os.getpid():
            self._readers.resume()
            self._writer.resume()

    # --- reading and writing ---

    def _write(self, verb: Callable[Concatenate[SqliteTx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._writer.run(partial(verb, **kwargs) if kwargs else verb, *args)

    def _beat(self, verb: Callable[Concatenate[SqliteTx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._writer.run(partial(verb, **kwargs) if kwargs else verb, *args, urgent=True)

    def _read(self, verb: Callable[Concatenate[SqliteTx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.path == MEMORY:
            return self._write(verb, *args, **kwargs)
        usable = self._made and self._opened_by == os.getpid()
        with self._readers.one() if usable else self._reader() as connection:
            return verb(SqliteTx(connection, self._statements, self.clock.micros()), *args, **kwargs)

    def _reader(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection for one short read, which sees one state of the store."""
        self._check_open()
        return self._readers.one() if self._made else self._reader_of_unmade()

    @contextmanager
    def _reader_of_unmade(self) -> Iterator[sqlite3.Connection]:
        """Before our tables are in the file there is nothing to read: as in a new store."""
        with self._readers.one() as connection:
            if migration.applied(schema.transaction(connection)) is not None:
                yield connection
                return
        with closing(self._blank()) as connection:
            yield connection


# --- around a fork ------------------------------------------------------------------------------
# SQLite keeps an account of its file locks in memory, a fork copies the account, but the locks themselves
# stay with the parent. A connection opened in the child then believes that it holds locks which it has not:
# whoever closes last elsewhere takes the log away from under it. So before a fork every file is closed, and
# both sides open what they need again.

# In a child: whether the fork copied an open connection, after which SQLite's locks cannot be trusted here.
_tainted = False

_open: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_paused: list[SqliteStore] = []
_left_open = False


def _before_fork() -> None:
    global _left_open  # noqa: PLW0603 - what the hook before a fork tells the hook behind it
    _left_open = False
    for store in list(_open):
        if store.before_fork():
            _paused.append(store)
        else:
            _left_open = True


def _in_parent_after_fork() -> None:
    while _paused:
        _paused.pop().after_fork_in_parent()


def _in_child_after_fork() -> None:
    global _tainted  # noqa: PLW0603 - as above
    _tainted = _tainted or _left_open
    _paused.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_in_parent_after_fork, after_in_child=_in_child_after_fork
    )
