"""What do the fault tests start from? A real server that they may harm, and a proxy in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.scene import Yard
from tests.servers import postgres, standby
from tests.servers.proxy import Proxy

MAJOR = 15


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.crash)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def database() -> Iterator[str]:
    """The name of a new store's database in the shared server."""
    with postgres.prepared(MAJOR) as url:
        yield standby.name_of(url)


@pytest.fixture
def proxy(database: str, closing: ExitStack) -> Proxy:
    """The way to that database through a network that can fail."""
    return closing.enter_context(Proxy(standby.socket_in(postgres.shared(MAJOR).folder)))


@pytest.fixture
def yard(proxy: Proxy, database: str, closing: ExitStack) -> Yard:
    """A queue behind the proxy."""
    return _made(closing, proxy.url(database))


@pytest.fixture
def make_yard(closing: ExitStack) -> Callable[[str], Yard]:
    """A queue at any URL."""
    return lambda url: _made(closing, url)


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    """A server of the test's own, to be killed and frozen."""
    standby.required(MAJOR)
    with postgres.running(MAJOR) as server:
        yield server


def _made(closing: ExitStack, url: str) -> Yard:
    yard = Yard(url)
    closing.callback(yard.close)
    return yard
