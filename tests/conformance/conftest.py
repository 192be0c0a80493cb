"""Which stores does the suite run on, and how does a test hold one?

The suite asks a store only what the protocol promises. Files named `test_sqlite_*` are about one engine.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.servers import postgres, sqlite
from windlass import connect
from windlass.clock import Clock, ManualClock, from_micros
from windlass.store.store import Store


@contextlib.contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/jobs.db"


@contextlib.contextmanager
def _sqlite_with_tables() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield sqlite.prepared(Path(folder, "jobs.db"), ManualClock)


def _prepare(url: str) -> None:
    connect.open(url, clock=ManualClock()).close()


def _wipe(url: str) -> bool:
    """Whether the tables are what they were, and empty again: that takes a tenth of making a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        rest = "datname = current_database() and pid <> pg_backend_pid()"
        connection.execute(
            f"select pg_terminate_backend(pid, 60000) from pg_stat_activity where {rest}".encode()
        )
        days = connection.execute(_DAYS).fetchall()
        if days != _FIRST_DAYS:
            return False
        connection.execute(_WIPE)
    return True


# The schema's number is the only row that is there from the beginning.
_WIPE = b"""
do $$ declare name text; begin
    for name in select relname from pg_class where relnamespace = 'windlass'::regnamespace
                   and relkind in ('r', 'p') and not relispartition and relname <> 'schema' loop
        execute format('delete from windlass.%I', name);
    end loop;
    alter sequence windlass.jobs_seq_seq restart;
end $$"""
_DAYS = b"""select relname from pg_class where relnamespace = 'windlass'::regnamespace
            and relname ~ '^archive_[0-9]+$' order by 1"""
_FIRST_DAYS = [
    (f"archive_{from_micros(ManualClock().micros()) + timedelta(days=day):%Y%m%d}",) for day in range(8)
]


Engine = Callable[[], contextlib.AbstractContextManager[str]]

# Each gives the URL of a fresh store for as long as a block lasts: one without anything, or one not used yet.
NEW: dict[str, Engine] = {
    "sqlite": _sqlite,
    **{f"postgres-{major}": partial(postgres.fresh, major) for major in postgres.MAJORS},
}
ENGINES: dict[str, Engine] = {
    "sqlite": _sqlite_with_tables,
    **{f"postgres-{major}": partial(postgres.filled, major, _prepare, _wipe) for major in postgres.MAJORS},
}


class Place:
    """One fresh database that can be opened many times, by this process and by others."""

    def __init__(self, url: str, clock: Clock, closing: contextlib.ExitStack) -> None:
        self.url = url
        self._clock = clock
        self._closing = closing

    def open(self) -> Store:
        """Open the store once more, with nothing shared but the database and the test's clock."""
        opened = connect.open(self.url, clock=self._clock)
        self._closing.callback(opened.close)
        return opened.store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    # Who opens the store by itself begins with nothing at all.
    engines = ENGINES if "place" in request.fixturenames else NEW
    with engines[request.param]() as url:
        yield url


@pytest.fixture
def place(url: str, clock: ManualClock) -> Iterator[Place]:
    with contextlib.ExitStack() as closing:
        yield Place(url, clock, closing)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def other(store: Store, place: Place) -> Store:
    """A second, independent opening of the same store."""
    return place.open()
