"""Which stores does the suite run on, and how does a test hold one?

The suite asks a store only what the protocol promises. Files named `test_sqlite_*` are about one engine.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.servers import postgres
from windlass import connect
from windlass.clock import Clock, ManualClock
from windlass.store.protocol import Store


@contextlib.contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/jobs.db"


# Each gives the URL of a fresh, empty database for as long as a block lasts.
ENGINES: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "sqlite": _sqlite,
    **{f"postgres-{major}": partial(postgres.fresh, major) for major in postgres.MAJORS},
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
    with ENGINES[request.param]() as url:
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
