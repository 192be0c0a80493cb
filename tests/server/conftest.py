"""How does a test speak with a server? Over a real socket, with a real store of each kind behind it."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.conformance.conftest import NEW
from tests.servers import postgres
from tests.waiting import PATIENCE
from windlass import FatalError, Queue
from windlass.config import ServerConfig
from windlass.ops import Ops
from windlass.ops.access import KeyWish
from windlass.server.run import Server


def shop(url: str, patience: float = 30) -> Queue:
    """An application's queue, with handlers for the tests."""
    queue = Queue(url, patience=patience)

    @queue.job(max_attempts=2)
    def add(a: int, b: int = 0) -> int:
        return a + b

    @queue.job
    def poison(n: int) -> None:
        raise FatalError(f"never {n}")

    @queue.job(name="mail.send")
    def send(to: str, body: str = "") -> None:
        """Nothing is sent."""

    return queue


def visitor(url: str, **options: Any) -> httpx2.Client:
    """Somebody who asks at an address, and waits as long as a busy machine takes."""
    return httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False, **options)


class House:
    """A server, its store, and whoever speaks with it."""

    def __init__(self, queue: Queue, url: str, stop: Callable[[], None] = lambda: None) -> None:
        self.queue = queue
        self.url = url
        # Tells the server to stop, before the block is at its end.
        self.stop = stop
        self.ops = Ops(queue.store, wakeup=queue.wakeup, by="test")
        self._closing = contextlib.ExitStack()

    def caller(self, key: str | None = None, **headers: str) -> httpx2.Client:
        """Somebody who calls, with a key or without."""
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return self._closing.enter_context(visitor(f"{self.url}/api/v1", headers=headers))

    def key(self, name: str, *roles: str, **wish: Any) -> str:
        """A new API key."""
        made = self.ops.create_key(KeyWish(name=name, roles=roles, **wish)).key
        assert made is not None
        return made

    def close(self) -> None:
        """Nobody calls any more."""
        self._closing.close()


@contextlib.contextmanager
def serving(queue: Queue, **options: Any) -> Iterator[House]:
    """A server for as long as a block lasts."""
    # However long the store takes on a busy machine, it is not called away.
    server = Server(queue, ServerConfig(**{"port": 0, "patience": 60.0, **options}))
    address: list[str] = []
    up = threading.Event()

    def started(url: str) -> None:
        address.append(url)
        up.set()

    def run() -> None:
        try:
            server.run(started)
        finally:
            up.set()

    thread = threading.Thread(target=run, name="server")
    with pytest.MonkeyPatch.context() as patch:
        # However long a count takes while the machine is busy, nobody is told the last one instead; and
        # however long the store takes to answer, it is not called silent.
        patch.setattr("windlass.ops.overview._CHEAP_SECONDS", math.inf)
        patch.setattr("windlass.server.health._PATIENCE_SECONDS", PATIENCE)
        thread.start()
        try:
            assert up.wait(PATIENCE)
            assert address, "the server did not start"
            with contextlib.closing(House(queue, address[0], server.request_stop)) as house:
                yield house
        finally:
            server.request_stop()
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A new store of each kind."""
    with NEW["sqlite"]() if request.param == "sqlite" else postgres.prepared(postgres.MAJORS[0]) as url:
        yield url


@pytest.fixture
def house(store_url: str) -> Iterator[House]:
    """A server that asks for no key."""
    with shop(store_url) as queue, serving(queue) as house:
        yield house


@pytest.fixture
def api(house: House) -> httpx2.Client:
    """Somebody on the same machine."""
    return house.caller()


@pytest.fixture
def locked(store_url: str) -> Iterator[House]:
    """A server with a key, so that everybody needs one."""
    with shop(store_url) as queue, serving(queue) as house:
        house.key("root", "admin")
        # The server learns of its first key within seconds; who knows it tells it at once.
        root = house.caller(house.key("root", "admin"))
        assert root.get("/keys").status_code == 200
        yield house
