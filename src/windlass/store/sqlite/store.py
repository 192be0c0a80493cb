"""The SQLite store: every verb of the seam over one writer and short readers."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.clock import SystemClock, from_micros
from windlass.errors import Refused, StoreUnavailable
from windlass.store import migration, statements
from windlass.store.bridge import across
from windlass.store.keeping import StoreStatus
from windlass.store.protocol import Claimed
from windlass.store.shared import SharedVerbs
from windlass.store.sqlite import enqueue, files, forks, guest, health, retention, schema, settle
from windlass.store.sqlite import handling as own
from windlass.store.sqlite.claim import (
    claim,
    claim_within_limits,
    nothing_to_claim,
    nothing_within_limits,
)
from windlass.store.sqlite.connection import MEMORY, SqliteTx, open_connection
from windlass.store.sqlite.files import real_path
from windlass.store.sqlite.library import require_version, sqlite3
from windlass.store.sqlite.readers import Readers
from windlass.store.sqlite.writer import Writer
from windlass.store.verbs import fleet, handling, marked, running, upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path

    from windlass.clock import Clock
    from windlass.job import Lease, NewJob
    from windlass.store.examining import DatabaseHealth
    from windlass.store.fleet import Look, Vitals
    from windlass.store.keeping import Retention
    from windlass.store.protocol import Enqueued, Settlement, Want

T = TypeVar("T")

_PATIENCE_SECONDS = 30.0


class SqliteStore(SharedVerbs):
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
        if forks.tainted:
            raise StoreUnavailable(
                f"this process was forked while {path} was in use, and cannot lock it safely: "
                "fork when nothing is being read or written, or start processes by spawn",
            )
        self.path = real_path(path)
        self.clock = clock or SystemClock()
        self._statements = statements.load(schema.DIALECT)
        self._known = migration.load(schema.DIALECT, migrations)
        self._readers = Readers(self.path)
        self._handlers = own.Handlers(self.path, self._statements, self.clock, patience=patience)
        self._opened_by = os.getpid()
        self._closed = False
        if self.path != MEMORY:
            files.make(self.path, self.clock, self._known, create=create, patience=patience)
        self._writer = Writer(
            self._connect, self.path, statements=self._statements, clock=self.clock, patience=patience
        )
        forks.watch(self)

    def _connect(self) -> sqlite3.Connection:
        connection = open_connection(self.path)
        if self.path == MEMORY:
            schema.prepare(connection, self.path, self.clock, self._known, create=True)
        return connection

    # --- producing ---

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        alone = enqueue.enqueue_alone if enqueue.goes_alone(jobs) else None
        return self._writer.run(enqueue.enqueue, jobs, joins=True, alone=alone)

    def enqueue_on(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._enqueue_as_guest(guest.checked(connection), jobs)

    async def enqueue_on_async(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await across(lambda bridge: self._enqueue_as_guest(guest.AsyncGuest(connection, bridge), jobs))

    def _enqueue_as_guest(self, connection: guest.Guest, jobs: Sequence[NewJob]) -> list[Enqueued]:
        # The caller's connection runs no checkpoints, so ours must not wait for a write of our own.
        self._writer.checkpoint_soon()
        with guest.transaction(connection, self.path, self._statements, self.clock) as tx:
            return enqueue.enqueue(tx, jobs)

    # --- running ---

    def claim(self, want: Want) -> Claimed:
        # A look first: an idle fleet must not queue for the write lock to find nothing.
        if want.restricted or want.lowest:
            seen = self._read(marked.once, nothing_within_limits, want)
            if isinstance(seen, Claimed):
                return seen
            return self._writer.run(marked.once, claim_within_limits, want, seen)
        nothing = None if self.path == MEMORY else self._read(marked.once, nothing_to_claim, want)
        return nothing or self._writer.run(marked.once, claim, want)

    def extend(self, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
        return self._writer.run(settle.extend, leases, by, urgent=True)

    def settle(self, settlements: Sequence[Settlement]) -> list[Lease]:
        return self._writer.run(settle.settle, settlements)

    def held_by(self, worker: str) -> list[Lease]:
        return self._read(running.held_by, worker)

    # --- handlers ---

    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractContextManager[Any]:
        # As for a caller's connection: it runs no checkpoints of its own.
        self._writer.checkpoint_soon()
        return self._handlers.transaction(completion, within=within)

    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        self._writer.checkpoint_soon()
        return self._handlers.transaction_async(completion, within=within)

    def shared_address(self) -> str:
        if self.path == MEMORY:
            raise Refused("a store in memory has no second connection; ctx.transaction() needs a file")
        self._writer.checkpoint_soon()
        return self.path

    def note_progress(self, said: Sequence[tuple[Lease, int, int | None]]) -> None:
        self._writer.run(handling.note_progress, said)

    # --- the fleet ---

    def beat(self, worker: str, vitals: Vitals) -> bool:
        return self._writer.run(fleet.beat, worker, vitals, urgent=True)

    def leave(self, worker: str) -> None:
        self._writer.run(fleet.leave, worker)

    def look(self, worker: str, types: Mapping[str, int]) -> Look:
        return self._read(fleet.look, worker, types)

    # --- upkeep ---

    def now(self) -> datetime:
        return from_micros(self.clock.micros())

    def promote(self, *, limit: int = 1000) -> int:
        return self._writer.run(upkeep.promote, limit)

    def prune(self, keep: Retention, *, limit: int = 1_000) -> int:
        pruned = self._writer.run(retention.prune, keep, limit)
        if pruned:
            self._writer.run(health.give_back_room)
        return pruned

    def status(self) -> StoreStatus:
        with self._reader() as connection:
            return health.status(connection, self.path, self._known)

    def database(self) -> DatabaseHealth:
        with self._reader() as connection:
            return health.database(connection, self.path, self._known)

    def backup(self, path: str) -> None:
        health.backup(self.path, path)

    def check(self) -> list[str]:
        with self._reader() as connection:
            return health.check(connection)

    def watch(self) -> Callable[[], int] | None:
        """A number that moves when anybody commits, which is how other processes are noticed."""
        return None if self.path == MEMORY else self._readers.data_version

    def close(self) -> None:
        if self._closed or os.getpid() != self._opened_by:
            return
        self._closed = True
        self._writer.close()
        self._readers.close()

    # --- around a fork ---

    def before_fork(self) -> bool:
        """Close every file; False if one is in use and cannot be closed."""
        if self.path == MEMORY or self._closed or os.getpid() != self._opened_by:
            return True
        readers, writer = self._readers.pause(), self._writer.pause()
        if not (readers and writer):
            if readers:
                self._readers.resume()
            if writer:
                self._writer.resume()
            return False
        return True

    def after_fork_in_parent(self) -> None:
        """Go on; files are opened again when they are needed."""
        if self.path != MEMORY and not self._closed and os.getpid() == self._opened_by:
            self._readers.resume()
            self._writer.resume()

    # --- reading and writing ---

    def _write(self, verb: Callable[..., T], *args: object) -> T:
        return self._writer.run(verb, *args)

    @property
    def _enqueuing(self) -> Callable[..., list[Enqueued]]:
        return enqueue.enqueue

    def _read(self, verb: Callable[..., T], *args: object) -> T:
        if self.path == MEMORY:
            return self._writer.run(verb, *args)
        with self._reader() as connection:
            return verb(SqliteTx(connection, self._statements, self.clock.micros()), *args)

    def _reader(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection for one short read, which sees one state of the store."""
        if self._closed or os.getpid() != self._opened_by:
            raise StoreUnavailable(f"{self.path} was closed in this process; open it again")
        return self._readers.one()
