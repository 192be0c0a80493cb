"""Run verbs on PostgreSQL: on a connection of their own if they are hot, or else through a pool.

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
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg import errors

from windlass.errors import StoreUnavailable
from windlass.store.engine import StoreClosed
from windlass.store.postgres import health
from windlass.store.postgres.address import read
from windlass.store.postgres.connections import Guard, Link, Pool
from windlass.store.postgres.session import (
    Connection,
    PostgresTx,
    Unconfirmed,
    explain,
    is_passing,
    lacks_day,
    load,
    localize,
)
from windlass.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")

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
        whole = self.address.pooler

        def call(connection: Connection) -> T:
            return self._try(connection, use, whole, verb, args)

        return self._links[use].run(call, again=again)

    def _try(
        self,
        connection: Connection,
        use: str,
        whole: bool,  # noqa: FBT001 - of `_hot` and `_write_until` alone
        verb: Callable[..., T],
        args: tuple[object, ...],
    ) -> T:
        """Run again if a day is missing, or if it met another transaction in the wrong moment."""
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
        return self._pooled(lambda connection: self._try(connection, "pool", True, verb, args), until)  # noqa: FBT003

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
                    localize(connection, "pool")
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
