"""What does a worker test start from? A real store in a file, in real time or under the test's clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import sqlite
from tests.worker.scene import Still
from windlass import connect
from windlass.clock import ManualClock
from windlass.connect import Opened
from windlass.queue import Queue


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The store's file."""
    return tmp_path / "jobs.db"


@pytest.fixture
def url(path: Path) -> str:
    """Where the queue's store is; `url = on_both` in a module stands above it."""
    return sqlite.prepared(path)


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    """A queue in real time."""
    with Queue(url, shell=True) as queue:  # noqa: S604 - commands are what some tests run
        yield queue


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands until the test moves it."""
    return ManualClock()


@pytest.fixture
def opened(path: Path, clock: ManualClock) -> Iterator[Opened]:
    """The store under that clock."""
    opened = connect.open(sqlite.prepared(path, ManualClock), clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def still(opened: Opened, clock: ManualClock) -> Iterator[Still]:
    """A worker whose loops stand still: the test calls their ticks."""
    still = Still(opened, clock)
    yield still
    still.close()
