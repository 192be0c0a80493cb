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


def _prepared(url: str) -> None:
    connect.open(url, clock=ManualClock()).close()


Engine = Callable[[], contextlib.AbstractContextManager[str]]

# Each gives the URL of a fresh store for as long as a block lasts: one without anything, or one not used yet.
NEW: dict[str, Engine] = {
    "sqlite": _sqlite,
    **{f"postgres-{major}": partial(postgres.fresh, major) for major in postgres.MAJORS},
}
ENGINES: dict[str, Engine] = {
    "sqlite": _sqlite,
    **{f"postgres-{major}": partial(postgres.fresh, major, _prepared) for major in postgres.MAJORS},
}


# The oldest and the newest major run everything; one between them, what its statements could break.
_BETWEEN = "postgres-16"
_ENOUGH_BETWEEN = ("test_claim", "test_enqueue", "test_find", "test_settle")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what would only cost time."""
    left_out = [
        item
        for item in items
        if f"[{_BETWEEN}" in item.nodeid and not any(name in item.nodeid for name in _ENOUGH_BETWEEN)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


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
