"""The database itself: the statements of Windlass's store on bare connections, and nothing around them."""

from __future__ import annotations

import threading
from pathlib import Path

from bench.drive import contract
from windlass import connect
from windlass.bench import postgres, raw
from windlass.bench.raw import Folder

# The cycles go in whole batches, of this size at most.
_BATCH = 500


class Here:
    """A place whose store is always the one of this driver."""

    def fresh(self, name: str, *, beside: bool = False) -> str:  # noqa: ARG002 - there is one store
        """The URL of this driver's store."""
        return contract.url()


class OnPostgres(contract.Driver):
    """A connection a producer, a row a commit; the cycle is claim and settle in batches of 500."""

    settings = (
        "a connection a producer, a row a commit;"
        " the drain is claim and settle in batches of 500 on one connection"
    )

    def __init__(self) -> None:
        self._mine = threading.local()

    def enqueue(self, name: str, body: str) -> None:  # noqa: ARG002 - always the same row
        """Insert one row."""
        self._raw().insert(1)

    def bulk(self, bodies: list[str]) -> None:
        """Insert many rows by one statement."""
        self._raw().insert(len(bodies))

    def work(self, count: int, processes: int) -> float:
        """Claim and settle in batches."""
        if processes > 1:
            raise contract.Cannot("one connection is the measure")
        return count / postgres.whole_cycles(Here(), max(count, _BATCH))  # type: ignore[arg-type]

    def version(self) -> str:
        """The statements are this tree's."""
        return "this tree's statements"

    def _raw(self) -> postgres._Raw:
        if not hasattr(self._mine, "raw"):
            self._mine.raw = postgres._Raw(contract.url())  # noqa: SLF001 - the same statements, in one place
        return self._mine.raw  # type: ignore[no-any-return]


class OnSqlite(contract.Driver):
    """A row a commit on one connection; the cycle is insert, claim and settle in batches of 100."""

    settings = "one connection, a row a commit; the drain is insert, claim and settle in batches of 100"

    def __init__(self) -> None:
        self._folder = Folder(Path(connect.sqlite_path(contract.url())).parent)
        self._raw: raw._Raw | None = None

    def enqueue(self, name: str, body: str) -> None:
        """Insert one row."""
        self.fill(name, [body])

    def bulk(self, bodies: list[str]) -> None:
        """Insert many rows in one transaction."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:  # noqa: ARG002 - always the same row
        """Insert rows in one transaction."""
        if self._raw is None:
            self._raw = raw._Raw(self._folder.file("raw"))  # noqa: SLF001 - the same statements, in one place
        self._raw.execute("begin immediate")
        for _ in bodies:
            self._raw.insert()
        self._raw.execute("commit")

    def work(self, count: int, processes: int) -> float:
        """Insert, claim and settle in batches."""
        if processes > 1:
            raise contract.Cannot("one connection is the measure")
        return count / raw.whole_cycles(self._folder, max(count, _BATCH))

    def version(self) -> str:
        """The statements are this tree's."""
        return "this tree's statements"


def driver() -> contract.Driver:
    """The one for this store."""
    return OnPostgres() if connect.is_postgres(contract.url()) else OnSqlite()
