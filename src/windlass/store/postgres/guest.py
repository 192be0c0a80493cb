"""How does a job commit with the caller's own row? By writing it on the caller's connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.store.postgres.session import PostgresTx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from windlass.clock import Clock
    from windlass.store.postgres.drivers import Driver
    from windlass.store.postgres.session import Statement
    from windlass.store.transaction import Row

_MARK = "windlass_guest"


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
    except BaseException:
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
        except BaseException:
            if not self._driver.idle():
                self._driver.command(f"rollback to savepoint {_MARK}")
                self._driver.command(f"release savepoint {_MARK}")
            raise
        self._driver.command(f"release savepoint {_MARK}")
