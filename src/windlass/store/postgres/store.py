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

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial, partialmethod
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg import errors

from windlass.clock import Clock, from_micros
from windlass.errors import StoreBusy, StoreError, StoreUnavailable
from windlass.job import Lease, NewJob, TypeInfo
from windlass.store import migration, running, samples, upkeep
from windlass.store.engine import Bridge, Claimed, Enqueued, Settlement, Want, asks, beats, glances, reads
from windlass.store.group_commit import GroupCommit, ListCall, calling, write_lists
from windlass.store.oncall import DatabaseHealth
from windlass.store.postgres import claim, guests, health, hot, schema, session
from windlass.store.postgres.address import read
from windlass.store.postgres.connections import Guard, Link, Listener, Pool
from windlass.store.postgres.guests import Guests, GuestTx, Handlers
from windlass.store.postgres.hot import Unanswered
from windlass.store.postgres.session import Connection, PostgresTx
from windlass.store.store import Store
from windlass.store.upkeep import Retention, StoreStatus

P = ParamSpec("P")
T = TypeVar("T")
Verb = Callable[Concatenate[PostgresTx, P], T]

_POOL = "pool"
_PATIENCE_SECONDS = 30.0
# A transaction that met another one in the wrong moment is run again so often.
_TRIES = 8
# A call with more jobs than this gains nothing from company, and would hold it up.
_LARGE = 100
_MOST_AT_ONCE = 1000
_GATHER_SECONDS = 0.0002
# How long a group that is being written may take to end when the store is closed.
_CLOSE_SECONDS = 1.0
# An enqueue whose answer was lost again and again is asked for so often.
_REPEATS = 4


class PostgresStore(Store):
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
        self._url = url
        self.address = read(url)
        super().__init__(self.address.shown)
        # None: the server's own clock, which is the only one that all machines share.
        self._clock = clock
        statements = session.load()
        self._tx = partial(PostgresTx, known=statements, clock=clock)
        self._known = migration.load(session.DIALECT, migrations)
        self._guard = Guard()
        uses = ("claim", "settle", "beat", "upkeep")
        self._links = {use: Link(self.address, use, self._guard) for use in uses}
        self._pool = Pool(self.address, self._guard, patience=patience)
        self._listener = Listener(self.address, self._guard)
        self._floors = claim.Floors()
        # Behind a pooler nobody can wait for a turn.
        self._recent = None if self.address.pooler else claim.Recent()
        guest = partial(GuestTx, known=statements, clock=clock)
        self._guests = Guests(self.address, guest, ours=lambda: self._read(guests.place))
        self._handlers = Handlers(self.address, self._guard, guest, patience=patience)
        self._unanswered = Unanswered()
        self.wake_with(lambda: None)
        self._line = GroupCommit(
            "windlass-enqueue", self._enqueue_together, most=_MOST_AT_ONCE, gather_seconds=_GATHER_SECONDS
        )
        try:
            prepare = partial(self._prepare, create=create)
            self._links["upkeep"].run(prepare, again=False)
        except BaseException:  # wall: nothing stays open behind a failed opening; the error goes on
            self.close()
            raise

    # --- how verbs are run ---

    def _hot(self, use: str, verb: Callable[..., T], *args: object, again: bool = True) -> T:
        """On the connection of this use; again if it broke."""
        return self._links[use].run(partial(self._try, use, verb, args), again=again)

    def _try(self, use: str, verb: Callable[..., T], args: tuple[object, ...], connection: Connection) -> T:
        """Run again if a day is missing, or if it met another transaction in the wrong moment."""
        # Upkeep has statements that run in no transaction.
        whole = use == _POOL or (self.address.pooler and use != "upkeep")
        tried = 0
        while True:
            tried += 1
            tx = self._tx(connection)
            try:
                if whole:
                    with connection.transaction():
                        if self.address.pooler:
                            session.localize(connection, use)
                        done = verb(tx, *args)
                else:
                    done = verb(tx, *args)
            except errors.CheckViolation as error:
                if tried > _TRIES or not session.lacks_day(error):
                    raise
                health.make_days(self._tx(connection))
            except psycopg.Error as error:
                if tried > _TRIES or not session.is_passing(error):
                    raise
            else:
                if tx.hinted:
                    self._wake()
                return done

    def _pooled(
        self,
        call: Callable[[Connection], T],
        until: float | None = None,
        *,
        again: bool = False,
        checked: bool = True,
    ) -> T:
        """Through the pool; with `again` once more if the connection broke and there is time left for it."""
        if until is None:
            # What has a deadline was let in before: the store may be closing, and still writes what waits.
            self._check_open()
            until = self._pool.deadline()
        try:
            with self._pool.connection(until, checked=checked) as connection:
                return call(connection)
        except psycopg.Error as error:
            broken = session.explain(error, self.address.shown)
            if not again or not worth_repeating(broken, until):
                raise broken from error
        except StoreUnavailable as error:
            if not again or not worth_repeating(error, until):
                raise
        return self._pooled(call, until, checked=checked)

    def _beat(self, verb: Verb[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._hot("beat", partial(verb, **kwargs) if kwargs else verb, *args)

    _glance = _beat
    _beside_claims = partialmethod(_hot, "claim")

    def _write(self, verb: Verb[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._pooled(partial(self._try, _POOL, partial(verb, **kwargs), args))

    def _rewrite(self, verb: Verb[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._pooled(partial(self._try, _POOL, partial(verb, **kwargs), args), again=True)

    def _read(self, verb: Verb[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """In one snapshot: a job that ends meanwhile is seen once, neither twice nor not at all."""

        def snapshot(connection: Connection) -> T:
            connection.execute("begin isolation level repeatable read read only")
            try:
                if self.address.pooler:
                    session.localize(connection, _POOL)
                return verb(self._tx(connection), *args, **kwargs)
            finally:
                if not connection.closed:
                    # Nothing was written; but a rollback makes the driver forget what it has prepared.
                    connection.execute("commit")

        return self._pooled(snapshot, again=True)

    def _ask(self, verb: Verb[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Without a snapshot, which is two statements more: an idle fleet shall ask little."""
        if self.address.pooler:
            return self._read(verb, *args, **kwargs)
        return self._pooled(lambda connection: verb(self._tx(connection), *args, **kwargs), again=True)

    def _count(self, verb: Callable[..., T], *args: object) -> T:
        """A long count, through the pool. Unchecked: it is asked again, and at rest each statement counts."""
        return self._pooled(lambda connection: verb(self._tx(connection), *args), again=True, checked=False)

    # Another file can only come in the place of a SQLite store.
    generation = 0

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if self._opened_by != os.getpid():
            self._check_open()
        if not jobs:
            return []
        try:
            if len(jobs) > _LARGE or calling().wanted is not None:
                # The thread writes for no caller that may leave: only its own asks whether it is still there.
                return self._enqueue_all(jobs)
            if self._line.is_free():
                with self._line.lead:
                    return self._enqueue_all(jobs)
            return self._line.run(ListCall(jobs))  # type: ignore[no-any-return]
        except StoreUnavailable:
            self._unanswered.note(jobs)
            raise

    def enqueue_on(
        self,
        connection: object,
        jobs: Sequence[NewJob],
        types: Sequence[TypeInfo] = (),
        app: str = "",
        bridge: Bridge | None = None,
    ) -> list[Enqueued]:
        self._check_open()
        if types:
            # On a connection of our own: nobody shall wait for the caller's transaction to register theirs.
            self.register(types, app)
        return self._guests.enqueue_on(connection, jobs, bridge)

    extend = beats(claim.extend)
    look = glances(claim.look)
    # On the connection of claims: what a worker holds may be much, and a beat must not wait for it.
    held_by = reads(running.held_by, "_beside_claims")
    _count_live = asks(samples.look, "_count")

    def claim(self, want: Want) -> Claimed:
        # Without a mark never asked again by itself: the leases of a lost answer are the claimer's to
        # find and give back.
        call = partial(self._try, "claim", claim.claim, (want, self._floors, self._recent))
        return self._links["claim"].run(call, again=want.mark is not None)

    def settle(self, settlements: Sequence[Settlement]) -> list[Lease]:
        call = partial(self._try, "settle", hot.settle, (settlements,))
        return self._links["settle"].run(call) if settlements else []

    def handlers(self) -> Handlers:
        self._check_open()
        return self._handlers

    def shared_address(self) -> str:
        return self._url

    def now(self) -> datetime:
        return from_micros(self._clock.micros() if self._clock else self._hot("beat", attrgetter("now")))

    def prune(self, keep: Retention, *, limit: int = 1_000, by: str = "") -> int:
        return self._hot("upkeep", health.prune, keep, limit, by)

    def status(self) -> StoreStatus:
        return self._read(health.status, self.address, self._known)

    def database(self) -> DatabaseHealth:
        return self._read(health.database, self.address, self._known)

    def backup(self, path: str) -> None:
        self._check_open()
        health.backup(self.address, path)

    def check(self) -> list[str]:
        return self._read(upkeep.check)

    @property
    def listener(self) -> Listener | None:
        """How other processes are notified and heard; None if the URL or a pooler forbids it."""
        return self._listener if self.address.notify else None

    def close(self) -> None:
        if self._opened_by != os.getpid():
            return
        self._opened_by = None
        self._line.close(_CLOSE_SECONDS)
        self._listener.close()
        for link in self._links.values():
            link.close()
        self._pool.close()
        self._handlers.close()
        self._guard.close()

    def _prepare(self, connection: Connection, *, create: bool) -> None:
        health.check_session(self._tx(connection), self.address)
        schema.prepare(self._tx(connection), self.address, self._known, create=create)

    # --- enqueueing ---

    def _enqueue_together(self, group: list[ListCall]) -> None:
        write_lists(self._line.begin(group), partial(self._enqueue_all, alone=False), self._enqueue_all)

    def _enqueue_all(self, jobs: Sequence[NewJob], *, alone: bool = True) -> list[Enqueued]:
        """One statement, its own transaction; with a closer look if one caller's are known already.

        Ids are ours to repeat, so a lost answer is asked for again.
        """
        until = self._pool.deadline()
        try:
            if self._is_new(jobs):
                try:
                    return self._pooled(partial(self._insert, jobs), until)
                except StoreError as error:
                    if not alone or not isinstance(error.__cause__, _LOOK_CLOSER):
                        raise
            elif not alone:
                raise LookupError("some may be known already: each call is looked at alone")
            return self._enqueue_closely(jobs, until, repeated=self._unanswered.has(jobs))
        except StoreUnavailable as error:
            return self._enqueue_again(jobs, until, error)

    def _enqueue_again(self, jobs: Sequence[NewJob], until: float, error: StoreUnavailable) -> list[Enqueued]:
        """After a lost answer, which says nothing about what was written: the repeat finds out.

        Where one connection breaks the next may as well: it is asked a few times.
        """
        for _ in range(_REPEATS):
            if not worth_repeating(error, until):
                break
            try:
                return self._enqueue_closely(jobs, until, repeated=True)
            except StoreUnavailable as broken:
                error = broken
            except StoreBusy as busy:
                # Which says that nothing was written; that is true of the repeat alone.
                raise StoreUnavailable(str(busy)) from busy
        raise error

    def _is_new(self, jobs: Sequence[NewJob]) -> bool:
        """Whether nobody, and nothing that was tried before, can have brought these ids into the store."""
        for new in jobs:
            if new.own_id or new.depends_on or new.unique:
                return False
        return not (self._unanswered and self._unanswered.has(jobs))

    def _insert(self, jobs: Sequence[NewJob], connection: Connection) -> list[Enqueued]:
        tx = self._tx(connection)
        if not (hot.may_be_first(jobs) and self._first()):
            return hot.enqueue_new(tx, jobs)
        # The first after a pause: while its commit goes to the disk, workers claim it already.
        done = hot.enqueue_new(tx, jobs, self._listener.name)
        self._wake_here()
        try:
            hot.flush(tx)
        except psycopg.Error as error:
            if session.is_away(error):
                raise
            # They are written: to their producer this is an answer that was lost, whatever else it is.
            raise StoreUnavailable(f"{self.address.shown}: {session.told(error)}; try again") from error
        return done

    def _enqueue_closely(self, jobs: Sequence[NewJob], until: float, *, repeated: bool) -> list[Enqueued]:
        """With a look at what is known; `repeated`: it may have been written, and may even have ended."""
        enqueue = partial(hot.enqueue, repeated=repeated)
        return self._pooled(partial(self._try, _POOL, enqueue, (jobs,)), until)


def worth_repeating(error: StoreError, until: float) -> bool:
    """Whether another connection may do what this one did not; a missing replica was waited for."""
    lost = isinstance(error, StoreUnavailable) and not isinstance(error, session.Unconfirmed)
    return lost and monotonic() < until


# What a plain insert meets that a closer look can tell apart; that one tells nobody, so it also helps where a
# listener that stands still has let the server's notifications fill up.
_LOOK_CLOSER = (
    errors.UniqueViolation,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.ProgramLimitExceeded,
)
