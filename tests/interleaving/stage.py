"""A database, a store for each actor, and the way back to an empty database."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import psycopg
from psycopg.rows import dict_row

from tests.interleaving.turns import DEADLOCK_MS, stepping
from tests.servers import postgres
from windlass.clock import ManualClock
from windlass.store.postgres import claim, connections, hot, session
from windlass.store.postgres.connections import Guard
from windlass.store.postgres.store import PostgresStore
from windlass.store.upkeep import Retention

MOST_ACTORS = 5
_TRUNCATED_EVERY = 50
# The server never gives up: an actor may wait for as long as the scheduler lets others run.
_ENDLESS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")


class Clock(ManualClock):
    """A clock that can begin again."""

    def begin(self) -> None:
        """Go back to the first moment."""
        super().__init__()


class Stage:
    """One database and its stores: the last one belongs to no actor, and is where scenes are made."""

    def __init__(self, url: str) -> None:
        self.clock = Clock()
        self.observer: psycopg.Connection[dict[str, Any]] = psycopg.connect(
            url, autocommit=True, row_factory=dict_row
        )
        self.stores = [PostgresStore(url, clock=self.clock, patience=3600.0) for _ in range(MOST_ACTORS + 1)]
        self._url = url
        self.guests = [self._guest() for _ in range(MOST_ACTORS)]
        self.observer.execute("create table if not exists effects (job uuid not null)")
        # Pruning makes the days of the archive.
        self.house.prune(Retention())
        self._tables = self._found_empty()
        found = self.observer.execute("select oid::regclass::text as name from pg_class where relkind = 'S'")
        self._sequences = [row["name"] for row in found.fetchall()]
        self._resets = 0
        # Whether a session may have been cut off since the last reset.
        self.doubted = True

    @property
    def house(self) -> PostgresStore:
        """The store that belongs to no actor."""
        return self.stores[-1]

    def reset(self) -> None:
        """As on the first day, with every connection in its place."""
        self.clock.begin()
        for place, each in enumerate(self.guests):
            if not _idle(each):
                each.close()
                self.guests[place] = self._guest()
        # To truncate takes much longer than to delete a few rows, which leaves dead ones behind.
        thorough = self._resets % _TRUNCATED_EVERY == 0
        self._resets += 1
        words = [f"truncate {', '.join(self._tables)}"]
        if not thorough:
            words = [f"delete from {each}" for each in self._tables]
        words += [f"alter sequence {each} restart" for each in self._sequences]
        self.observer.execute("; ".join(words).encode())
        for store in self.stores:
            _refresh(store, doubted=self.doubted)
        self.doubted = False

    def close(self) -> None:
        """Close every connection."""
        for store in self.stores:
            store.close()
        for connection in (*self.guests, self.observer):
            connection.close()

    def _guest(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, autocommit=True)

    def _found_empty(self) -> list[str]:
        """Our tables that hold nothing when a store is new; partitions go with their table."""
        found = self.observer.execute(
            "select c.oid::regclass::text as name from pg_class as c"
            " where c.relnamespace in ('windlass'::regnamespace, 'public'::regnamespace)"
            " and c.relkind in ('r', 'p') and not c.relispartition order by 1"
        ).fetchall()
        names = [row["name"] for row in found]
        return [
            name
            for name in names
            if self.observer.execute(f"select from {name} limit 1".encode()).fetchone() is None
        ]


def _idle(connection: psycopg.Connection[Any]) -> bool:
    return not connection.closed and connection.info.transaction_status == 0


def _refresh(store: PostgresStore, *, doubted: bool) -> None:
    """Forget what a store has learned, and open again what was cut off."""
    store._floors.known.clear()  # noqa: SLF001
    store._unanswered.clear()  # noqa: SLF001
    store._guests._at_home.clear()  # noqa: SLF001
    store._guests._home = None  # noqa: SLF001
    if store._recent is not None:  # noqa: SLF001
        store._recent.found.clear()  # noqa: SLF001
        store._recent.crowded.clear()  # noqa: SLF001
    store._pool._doubted = 0.0  # noqa: SLF001
    if doubted:
        for pool in (store._pool, store._handlers._pool):  # noqa: SLF001
            pool._clear()  # noqa: SLF001
        for link in store._links.values():  # noqa: SLF001
            # Whether a call is repeated depends on whether its connection was there before.
            link.run(lambda connection: connection.execute("select 1"), again=True)


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """Within the block no time of the machine decides anything, and actors can be stepped."""
    endless = {
        use: {name: "0" if name in _ENDLESS else value for name, value in settings.items()}
        for use, settings in session.USES.items()
    }
    log = logging.getLogger("psycopg")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with (
            mock.patch.dict(session.USES, endless),
            mock.patch.object(Guard, "watching", return_value=contextlib.nullcontext()),
            mock.patch.object(connections, "_FRESH_SECONDS", math.inf),
            mock.patch.object(connections, "_REST_SECONDS", math.inf),
            mock.patch.object(hot, "_PAUSE_SECONDS", 0.0),
            mock.patch.object(claim, "_TURN_PATIENCE", "0"),
            mock.patch.object(claim, "_LARGE", 2),
            stepping(),
        ):
            yield
    finally:
        log.setLevel(level)


@contextlib.contextmanager
def opened(major: int) -> Iterator[Stage]:
    """A stage on a server of its own."""
    with patched(), postgres.running(major, autovacuum="off", deadlock_timeout=f"{DEADLOCK_MS}ms") as server:
        stage = Stage(server.new_database())
        try:
            yield stage
        finally:
            stage.close()
