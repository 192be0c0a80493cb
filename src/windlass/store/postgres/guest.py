"""How does a job commit with the caller's own row? By writing it on the caller's connection."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from windlass.errors import must_be
from windlass.store.bridge import Bridge, across
from windlass.store.postgres import drivers, enqueue
from windlass.store.postgres.listener import CHANNEL
from windlass.store.postgres.session import PostgresTx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from windlass.clock import Clock
    from windlass.job import NewJob
    from windlass.store.engine import Enqueued, Row
    from windlass.store.postgres.address import Address
    from windlass.store.postgres.drivers import Driver
    from windlass.store.postgres.session import Statement

_MARK = "windlass_guest"


class Guests:
    """Enqueues on callers' connections, if they lead to the queue's own database."""

    def __init__(
        self,
        address: Address,
        statements: Mapping[str, Statement],
        clock: Clock | None,
        *,
        ours: Callable[[], Row],
    ) -> None:
        self._address = address
        self._statements = statements
        self._clock = clock
        self._ours = ours
        # Which database of which server ours is, once somebody has asked; and connections known to be to it.
        self._home: Row | None = None
        self._at_home: WeakSet[Any] = WeakSet()

    def enqueue_on(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs within the caller's transaction."""
        driver = drivers.driver_of(connection)
        if driver is None:
            raise must_be("connection", connection, drivers.ALLOWED)
        return self._enqueue(driver, jobs)

    async def enqueue_on_async(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same for a connection that belongs to the running event loop."""

        def work(bridge: Bridge) -> list[Enqueued]:
            driver = drivers.async_driver_of(connection, bridge)
            if driver is None:
                raise must_be("connection", connection, drivers.ALLOWED_ASYNC)
            return self._enqueue(driver, jobs)

        return await across(work)

    def _enqueue(self, driver: Driver, jobs: Sequence[NewJob]) -> list[Enqueued]:
        with transaction(driver, self._statements, self._clock) as tx:
            self._check_place(driver, tx)
            done = enqueue.enqueue_jobs(tx, jobs) if jobs else []
            if self._address.notify and any(each.created for each in done):
                # Told when the caller commits, and not at all otherwise.
                tx.rows("notify", channel=CHANNEL)
            return done

    def _check_place(self, driver: Driver, tx: GuestTx) -> None:
        """A job in another database than the queue's would never be found."""
        if driver.connection in self._at_home:
            return
        theirs = place(tx)
        if not self._is_home(theirs):
            raise must_be(
                "connection",
                f"one to {theirs['name']!r}",
                f"to the queue's own database {self._address.shown}",
            )
        # Not every driver's connection can be remembered; the others are asked each time.
        with suppress(TypeError):
            self._at_home.add(driver.connection)

    def _is_home(self, theirs: Row) -> bool:
        if self._home is not None and _same(theirs, self._home):
            return True
        # A server that was started again has another beginning than the one that we know.
        self._home = self._ours()
        return _same(theirs, self._home)


def place(tx: PostgresTx) -> Row:
    """Which database of which running server a connection leads to."""
    [row] = tx.rows("place")
    return row


def _same(one: Row, other: Row) -> bool:
    return bool(one["database"] == other["database"] and one["since"] == other["since"])


@contextmanager
def transaction(
    driver: Driver, statements: Mapping[str, Statement], clock: Clock | None
) -> Iterator[GuestTx]:
    """A part of the caller's transaction; the commit is left to the caller.

    Where no transaction is open and none begins by itself, each statement of the caller commits at once, and
    so does this part: nobody would commit it later.
    """
    began = driver.idle()
    alone = began and not driver.begins_by_itself()
    if alone:
        driver.command("begin")
    tx = GuestTx(driver, statements, clock)
    try:
        with tx.part():
            yield tx
        if alone:
            driver.command("commit")
    except BaseException:  # wall: what we began ends with us; the error goes on
        if alone and not driver.idle():
            driver.command("rollback")
        elif began and not driver.idle():
            driver.rollback()
        raise


class GuestTx(PostgresTx):
    """A transaction on the caller's connection, whichever driver it belongs to."""

    __slots__ = ("_driver",)

    def __init__(self, driver: Driver, known: Mapping[str, Statement], clock: Clock | None) -> None:
        self._driver = driver
        self._statements = known
        self._now = None if clock is None else clock.micros()
        self.hinted = False

    def rows(self, statement: str, /, **values: object) -> Sequence[Row]:
        return self._driver.rows(self._statements[statement], values)

    def row(self, statement: str, /, **values: object) -> Row | None:
        return next(iter(self.rows(statement, **values)), None)

    def change(self, statement: str, /, **values: object) -> int:
        return self._driver.change(self._statements[statement], values)

    @contextmanager
    def part(self) -> Iterator[None]:
        self._driver.command(f"savepoint {_MARK}")
        try:
            yield
        except BaseException:  # wall: the caller's transaction stays usable; the error goes on
            if not self._driver.idle():
                self._driver.command(f"rollback to savepoint {_MARK}")
                self._driver.command(f"release savepoint {_MARK}")
            raise
        self._driver.command(f"release savepoint {_MARK}")
