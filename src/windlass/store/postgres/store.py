"""The PostgreSQL store: hot verbs on connections of their own, the others through a pool."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors

from windlass.clock import from_micros
from windlass.errors import StoreBusy, StoreError, StoreUnavailable
from windlass.store import migration, running, samples
from windlass.store.engine import Bound, beats, glances
from windlass.store.group_commit import GroupCommit, ListCall, wanted_check, write_lists
from windlass.store.postgres import claim, guests, health, hot, schema
from windlass.store.postgres.guests import Guests, Handlers
from windlass.store.postgres.hot import Unanswered
from windlass.store.postgres.listener import Listener
from windlass.store.postgres.reach import Reach, worth_repeating
from windlass.store.postgres.session import DIALECT, Connection, PostgresTx, is_away, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime, timedelta
    from pathlib import Path

    from windlass.clock import Clock
    from windlass.job import Lease, NewJob, TypeInfo
    from windlass.store.engine import Claimed, Enqueued, Settlement, Want
    from windlass.store.oncall import DatabaseHealth
    from windlass.store.upkeep import Retention, StoreStatus

T = TypeVar("T")

_PATIENCE_SECONDS = 30.0
# A call with more jobs than this gains nothing from company, and would hold it up.
_LARGE = 100
_MOST_AT_ONCE = 1000
_GATHER_SECONDS = 0.0002
# How long a group that is being written may take to end when the store is closed.
_CLOSE_SECONDS = 1.0
# An enqueue whose answer was lost again and again is asked for so often, and once more.
_REPEATS = 3


class PostgresStore(Reach):
    """A store in one database. Safe for many threads, processes and machines."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        create: bool = True,
        patience: float = _PATIENCE_SECONDS,
        migrations: Path | None = None,
    ) -> None:
        super().__init__(url, clock, patience)
        self._known = migration.load(DIALECT, migrations)
        self._listener = Listener(self.address, self._guard)
        self._floors = claim.Floors()
        self._lately = claim.Lately()
        self._guests = Guests(self.address, self._statements, clock, ours=lambda: self._read(guests.place))
        self._handlers = Handlers(self.address, self._guard, self._statements, clock, patience=patience)
        self._unanswered = Unanswered()
        self._wake_here: Callable[[], None] = lambda: None
        self._first: Callable[[], bool] = lambda: False
        self._line = GroupCommit(
            "windlass-enqueue", self._enqueue_together, most=_MOST_AT_ONCE, gather_seconds=_GATHER_SECONDS
        )
        try:
            self._prepare(create=create)
        except BaseException:  # wall: nothing stays open behind a failed opening; the error goes on
            self.close()
            raise

    # --- producing ---

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._check_open()
        if not jobs:
            return []
        try:
            if len(jobs) > _LARGE or wanted_check() is not None:
                # The thread writes for no caller that may leave: only its own asks whether it is still there.
                return self._enqueue_alone(jobs)
            if self._line.is_free():
                with self._line.lead:
                    return self._enqueue_alone(jobs)
            return self._line.run(ListCall(jobs))  # type: ignore[no-any-return]
        except StoreUnavailable:
            self._unanswered.note(jobs)
            raise

    def enqueue_on(
        self, connection: object, jobs: Sequence[NewJob], types: Sequence[TypeInfo] = (), app: str = ""
    ) -> list[Enqueued]:
        self._check_open()
        if types:
            # On a connection of our own: nobody shall wait for the caller's transaction to register theirs.
            self.register(types, app)
        return self._guests.enqueue_on(connection, jobs)

    async def enqueue_on_async(
        self, connection: object, jobs: Sequence[NewJob], types: Sequence[TypeInfo] = (), app: str = ""
    ) -> list[Enqueued]:
        self._check_open()
        if types:
            await asyncio.to_thread(self.register, types, app)
        return await self._guests.enqueue_on_async(connection, jobs)

    # --- running ---

    extend = beats(claim.extend)
    look = glances(claim.look)
    # On the connection of claims: what a worker holds may be much, and a beat must not wait for it.
    held_by = Bound(running.held_by, "_beside_claims")
    _count_live = Bound(samples.look, "_count")

    def claim(self, want: Want) -> Claimed:
        # Within a transaction, which must not end because somebody's turn is waited for in vain.
        together = self.address.pooler or want.mark is not None or bool(want.reader)
        plain = claim.claim if together else partial(claim.claim_fitting, lately=self._lately)
        verb = partial(claim.claim_within_limits, plain) if want.restricted or want.lowest else plain
        if want.reader:
            verb = partial(claim.claim_with_unread, verb)
        if want.mark is not None:
            return self._hot("claim", partial(claim.claim_once, verb), want, self._floors)
        # Never asked again by itself: leases of a lost answer are the claimer's to find and give back.
        return self._hot("claim", verb, want, self._floors, again=False)

    def settle(self, settlements: Sequence[Settlement]) -> list[Lease]:
        return self._hot("settle", hot.settle, settlements) if settlements else []

    # --- handlers ---

    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractContextManager[Any]:
        self._check_open()
        return self._handlers.transaction(completion, within=within)

    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        self._check_open()
        return self._handlers.transaction_async(completion, within=within)

    def shared_address(self) -> str:
        return self._url

    # --- upkeep ---

    def now(self) -> datetime:
        return from_micros(self._clock.micros() if self._clock else self._hot("beat", _time))

    def prune(self, keep: Retention, *, limit: int = 1_000, by: str = "") -> int:
        self._check_open()

        def prune(connection: Connection) -> int:
            tx = PostgresTx(connection, self._statements, self._clock)
            done = health.prune(tx, connection, keep, limit, by)
            if tx.hinted:
                self._wake()
            return done

        return self._links["upkeep"].run(prune)

    def status(self) -> StoreStatus:
        return self._read(health.status, self.address, self._known)

    def database(self) -> DatabaseHealth:
        return self._read(health.database, self.address, self._known)

    def backup(self, path: str) -> None:
        health.backup(self.address, path)

    def check(self) -> list[str]:
        return self._read(health.check)

    @property
    def listener(self) -> Listener | None:
        """How other processes are notified and heard; None if the URL or a pooler forbids it."""
        return self._listener if self.address.notify else None

    def wake_with(
        self,
        notify: Callable[[], None],
        *,
        first: Callable[[], bool] = lambda: False,
        here: Callable[[], None] = lambda: None,
    ) -> None:
        """Say how whoever waits is told of jobs that the end of others has released.

        `first` says whether a commit may tell other processes of what it makes; then `here` tells this one.
        """
        self._wake, self._first, self._wake_here = notify, first, here

    def close(self) -> None:
        if self._closed or os.getpid() != self._opened_by:
            return
        self._closed = True
        self._line.close(_CLOSE_SECONDS)
        self._listener.close()
        for link in self._links.values():
            link.close()
        self._pool.close()
        self._handlers.close()
        self._guard.close()

    def _prepare(self, *, create: bool) -> None:
        def prepare(connection: Connection) -> None:
            health.check_session(connection, self.address)
            tx = PostgresTx(connection, self._statements, self._clock)
            schema.prepare(connection, tx, self.address, self._known, create=create)

        self._links["upkeep"].run(prepare, again=False)

    # --- enqueueing ---

    def _enqueue_together(self, group: list[ListCall]) -> None:
        write_lists(self._line.begin(group), self._enqueue_new, self._enqueue_alone)

    def _enqueue_new(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """One statement, its own transaction; fails if anything is known already."""
        if not self._is_new(jobs):
            raise _LookCloser
        until = self._pool.deadline()
        try:
            return self._insert(jobs, until)
        except StoreUnavailable as error:
            if not worth_repeating(error, until):
                raise
        return self._enqueue_again(jobs, until)

    def _enqueue_alone(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The jobs of one caller. Ids are ours to repeat, so a lost answer is asked for again."""
        until = self._pool.deadline()
        if self._is_new(jobs):
            try:
                return self._insert(jobs, until)
            except StoreUnavailable as error:
                if not worth_repeating(error, until):
                    raise
                return self._enqueue_again(jobs, until)
            except StoreError as error:
                if not isinstance(error.__cause__, _LOOK_CLOSER):
                    raise
        try:
            return self._enqueue_closely(jobs, until, repeated=self._unanswered.has(jobs))
        except StoreUnavailable as error:
            # A connection that broke says nothing about what was written: the repeat finds out.
            if not worth_repeating(error, until):
                raise
        return self._enqueue_again(jobs, until)

    def _enqueue_again(self, jobs: Sequence[NewJob], until: float) -> list[Enqueued]:
        """After a lost answer. Where one connection breaks the next may as well: it is asked a few times."""
        try:
            for _ in range(_REPEATS):
                try:
                    return self._enqueue_closely(jobs, until, repeated=True)
                except StoreUnavailable as error:
                    if not worth_repeating(error, until):
                        raise
            return self._enqueue_closely(jobs, until, repeated=True)
        except StoreBusy as error:
            # Which says that nothing was written; that is true of the repeat alone.
            raise StoreUnavailable(str(error)) from error

    def _is_new(self, jobs: Sequence[NewJob]) -> bool:
        """Whether nobody, and nothing that was tried before, can have brought these ids into the store."""
        return hot.is_plain(jobs) and not self._unanswered.has(jobs)

    def _insert(self, jobs: Sequence[NewJob], until: float) -> list[Enqueued]:
        first = hot.may_be_first(jobs) and self._first()
        insert = self._insert_first if first else hot.enqueue_new

        def run(connection: Connection) -> list[Enqueued]:
            return insert(PostgresTx(connection, self._statements, self._clock), jobs)

        return self._pooled(run, until)

    def _insert_first(self, tx: PostgresTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The first after a pause: while its commit goes to the disk, workers claim it already."""
        done = hot.enqueue_first(tx, jobs, self._listener.name)
        self._wake_here()
        try:
            hot.flush(tx)
        except psycopg.Error as error:
            if is_away(error):
                raise
            # They are written: to their producer this is an answer that was lost, whatever else it is.
            raise StoreUnavailable(f"{self.address.shown}: {told(error)}; try again") from error
        return done

    def _enqueue_closely(self, jobs: Sequence[NewJob], until: float, *, repeated: bool) -> list[Enqueued]:
        """With a look at what is known; `repeated`: it may have been written, and may even have ended."""
        return self._write_until(until, partial(hot.enqueue, repeated=repeated), jobs)


# What a plain insert meets that a closer look can tell apart; that one tells nobody, so it also helps where a
# listener that stands still has let the server's notifications fill up.
_LOOK_CLOSER = (
    errors.UniqueViolation,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.ProgramLimitExceeded,
)


class _LookCloser(Exception):
    """What is to be stored may be known already: it is looked at alone."""


def _time(tx: PostgresTx) -> int:
    return tx.now
