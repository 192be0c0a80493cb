"""What does a verb see of the database? Named statements, and the time at which it acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from windlass.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from windlass.job import NewJob
    from windlass.store.protocol import Enqueued

Row = Mapping[str, Any]


class StoreClosed(StoreUnavailable):
    """This process has closed the store, or was forked off after it was opened; nothing was written."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} was closed in this process; open it again")


class Unstorable(StoreError):
    """A value that the database does not take; only the part that brought it is undone."""


class Tx(Protocol):
    """One transaction. Whoever runs the verb begins and commits it; the verb only speaks."""

    @property
    def now(self) -> int:
        """Microseconds since 1970 by the store's clock, the same throughout."""

    def rows(self, statement: str, /, **values: object) -> Sequence[Row]:
        """Run a named statement and give all its rows."""

    def row(self, statement: str, /, **values: object) -> Row | None:
        """Run a named statement and give its first row."""

    def change(self, statement: str, /, **values: object) -> int:
        """Run a named statement and say how many rows it changed."""

    def change_all(self, statements: Sequence[str], /, **values: object) -> None:
        """Run named statements that do not concern each other; each takes of the values what it names."""

    def search(
        self, statements: Sequence[str], clauses: str, values: Mapping[str, object], *, oldest: bool = False
    ) -> Sequence[Row]:
        """Run named statements as one, newest or oldest first; a filter's clauses go in at their marks."""

    def count(self, statements: Sequence[str], clauses: str, values: Mapping[str, object]) -> int:
        """How many rows such a search would find."""

    def field(self, name: str) -> str:
        """An expression for one field of a job's error."""

    def payload_equals(self, name: str, path: Sequence[str], value: object, values: dict[str, object]) -> str:
        """A clause that a payload's field at `path` has this value, its parameters put into `values`."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs within this transaction, all or none."""

    def hint(self) -> None:
        """Jobs became claimable that were not enqueued here: whoever waits is told after the commit."""

    def part(self) -> AbstractContextManager[None]:
        """A part that is undone alone when it raises."""
