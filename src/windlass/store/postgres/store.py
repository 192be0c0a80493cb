"""The PostgreSQL store: hot verbs on connections of their own, the others through a pool.

| kind of verb | runs on | as |
|---|---|---|
| read | the pool, asked again if the connection broke | one snapshot |
| ask | the pool, asked again if the connection broke | each statement by itself |
| write | the pool, once; `rewrite` again if the connection broke | a transaction |
| beat, glance, claim, settle | a connection for that use | each statement by itself |

Behind a pooler every verb is a transaction, which carries the settings of its use.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg import errors

from windlass.clock import from_micros
from windlass.errors import StoreBusy, StoreError, StoreUnavailable
from windlass.store import migration, running, samples
from windlass.store.engine import Bound, StoreClosed, beats, glances
from windlass.store.group_commit import GroupCommit, ListCall, wanted_check, write_lists
from windlass.store.postgres import claim, guests, health, hot, schema
from windlass.store.postgres.address import read
from windlass.store.postgres.connections import Guard, Link, Listener, Pool
from windlass.store.postgres.guests import Guests, Handlers
from windlass.store.postgres.hot import Unanswered
from windlass.store.postgres.session import (
    DIALECT,
    Connection,
    PostgresTx,
    Unconfirmed,
    explain,
    is_away,
    is_passing,
    lacks_day,
    load,
    localize,
    told,
)
from windlass.store.store import Store

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


P = ParamSpec("P")
T = TypeVar("T")

_POOL = "pool"
# A transaction that met another one in the wrong moment is run again so often.
_TRIES = 8


class Reach(Store):
    """The connections of a store, and the ways in which verbs are run on them."""

    def __init__(self, url: str, clock: Clock | None, patience: float) -> None:
        self._url = url
        self.address = read(url)
        # None: the server's own clock, which is the only one that all machines share.
        self._clock = clock
        self._statements = load()
        self._opened_by = os.getpid()
        self._closed = False
        self._guard = Guard()
        uses = ("claim", "settle", "beat", "upkeep")
        self._links = {use: Link(self.address, use, self._guard) for use in uses}
        self._pool = Pool(self.address, self._guard, patience=patience)
        # Notifies whoever waits of jobs that a verb has released.
        self._wake: Callable[[], None] = lambda: None

    def _check_open(self) -> None:
        if self._closed or os.getpid() != self._opened_by:
            raise StoreClosed(self.address.shown)

    def _hot(self, use: str, verb: Callable[..., T], *args: object, again: bool = True) -> T:
        """On the connection of this use; again if it broke."""
        self._check_open()
        return self._links[use].run(partial(self._try, use, verb, args), again=again)

    def _try(self, use: str, verb: Callable[..., T], args: tuple[object, ...], connection: Connection) -> T:
        """Run again if a day is missing, or if it met another transaction in the wrong moment."""
        whole = use == _POOL or self.address.pooler
        tried = 0
        while True:
            tried += 1
            tx = PostgresTx(connection, self._statements, self._clock)
            try:
                if whole:
                    with connection.transaction():
                        if self.address.pooler:
                            localize(connection, use)
                        done = verb(tx, *args)
                else:
                    done = verb(tx, *args)
            except errors.CheckViolation as error:
                if tried > _TRIES or not lacks_day(error):
                    raise
                health.make_days(PostgresTx(connection, self._statements, self._clock))
            except psycopg.Error as error:
                if tried > _TRIES or not is_passing(error):
                    raise
            else:
                if tx.hinted:
                    self._wake()
                return done

    def _beat(self, verb: Callable[Concatenate[PostgresTx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._hot("beat", partial(verb, **kwargs) if kwargs else verb, *args)

    _glance = _beat

    def _beside_claims(self, verb: Callable[..., T], *args: object) -> T:
        return self._hot("claim", verb, *args)

    def _write(
        self, verb: Callable[Concatenate[PostgresTx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._write_until(None, partial(verb, **kwargs) if kwargs else verb, *args)

    def _write_until(self, until: float | None, verb: Callable[..., T], *args: object) -> T:
        """In a transaction of its own."""
        self._check_open()
        return self._pooled(partial(self._try, _POOL, verb, args), until)

    def _rewrite(
        self, verb: Callable[Concatenate[PostgresTx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `_write`, and again when its connection broke."""
        whole = partial(verb, **kwargs) if kwargs else verb
        return self._again_if_broken(lambda until: self._write_until(until, whole, *args))

    def _read(self, verb: Callable[Concatenate[PostgresTx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """In one snapshot: a job that ends meanwhile is seen once, neither twice nor not at all."""
        self._check_open()

        def snapshot(connection: Connection) -> T:
            connection.execute("begin isolation level repeatable read read only")
            try:
                if self.address.pooler:
                    localize(connection, _POOL)
                return verb(PostgresTx(connection, self._statements, self._clock), *args, **kwargs)
            finally:
                if not connection.closed:
                    # Nothing was written; but a rollback makes the driver forget what it has prepared.
                    connection.execute("commit")

        return self._again_if_broken(lambda until: self._pooled(snapshot, until))

    def _ask(self, verb: Callable[Concatenate[PostgresTx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Without a snapshot, which is two statements more: an idle fleet shall ask little."""
        if self.address.pooler:
            return self._read(verb, *args, **kwargs)
        self._check_open()

        def ask(connection: Connection) -> T:
            return verb(PostgresTx(connection, self._statements, self._clock), *args, **kwargs)

        return self._again_if_broken(lambda until: self._pooled(ask, until))

    def _count(self, verb: Callable[..., T], *args: object) -> T:
        """A long count, through the pool. Unchecked: it is asked again, and at rest each statement counts."""
        self._check_open()

        def count(connection: Connection) -> T:
            return verb(PostgresTx(connection, self._statements, self._clock), *args)

        return self._again_if_broken(lambda until: self._pooled(count, until, checked=False))

    def _again_if_broken(self, call: Callable[[float], T]) -> T:
        """Ask once more if the connection broke and there is time left for it."""
        until = self._pool.deadline()
        try:
            return call(until)
        except StoreUnavailable as error:
            if not worth_repeating(error, until):
                raise
        return call(until)

    def _pooled(
        self, call: Callable[[Connection], T], until: float | None = None, *, checked: bool = True
    ) -> T:
        try:
            with self._pool.connection(until, checked=checked) as connection:
                return call(connection)
        except psycopg.Error as error:
            raise explain(error, self.address.shown) from error


def worth_repeating(error: StoreUnavailable, until: float) -> bool:
    """Whether another connection may do what this one did not; a missing replica was waited for."""
    return not isinstance(error, Unconfirmed) and monotonic() < until


_PATIENCE_SECONDS = 30.0
# A call with more jobs than this gains nothing from company, and would hold it up.
_LARGE = 100
_MOST_AT_ONCE = 1000
_GATHER_SECONDS = 0.0002
# How long a group that is being written may take to end when the store is closed.
_CLOSE_SECONDS = 1.0
# An enqueue whose answer was lost again and again is asked for so often, and once more.
_REPEATS = 3


class _beside_claims(Bound[P, T]):  # noqa: N801 - as `reads` and `writes`
    """Bind a read that runs on the connection of claims."""

    run = "_beside_claims"


class _counts(Bound[P, T]):  # noqa: N801
    """Bind a long count."""

    run = "_count"


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

    # Another file can only come in the place of a SQLite store.
    generation = 0

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
    held_by = _beside_claims(running.held_by)
    _count_live = _counts(samples.look)

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
        self._check_open()
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
