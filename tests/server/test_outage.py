"""While the store is away every post is told so soon, and nothing is stored for a caller that has left."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx2
import psutil
import pytest

from tests.conformance.conftest import NEW
from tests.server.conftest import House, serving, shop
from tests.server.test_hostile import a_post, connect
from tests.servers import postgres
from tests.servers.proxy import Proxy
from tests.servers.standby import socket_in
from tests.waiting import until

JOB = {"type": "add", "payload": {"a": 1}}
# Far less than the waits of two posts one after the other took, and far more than a busy machine takes.
SOON = 25.0


class Place(NamedTuple):
    """A store that can be taken away and given back, and words that no answer may contain."""

    url: str
    take: Callable[[], object]
    give: Callable[[], object]
    secrets: tuple[str, ...]


@contextlib.contextmanager
def locked_file() -> Iterator[Place]:
    with NEW["sqlite"]() as url:
        path = url.removeprefix("sqlite:///")
        with contextlib.closing(
            sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        ) as other:
            yield Place(
                url,
                lambda: other.execute("begin immediate"),
                lambda: other.execute("rollback"),
                (path, path.rpartition("/")[2]),
            )


@contextlib.contextmanager
def stopped_server() -> Iterator[Place]:
    with postgres.running(postgres.MAJORS[0]) as server:
        url = server.new_database()
        yield Place(url, server.stop, server.start, ("postgres", str(server.folder)))


@contextlib.contextmanager
def silent_server() -> Iterator[Place]:
    with postgres.prepared(postgres.MAJORS[0]) as url:
        name = url.partition("?")[0].rpartition("/")[2]
        with Proxy(socket_in(postgres.shared(postgres.MAJORS[0]).folder)) as proxy:
            yield Place(proxy.url(name), proxy.silence, proxy.speak, ("postgres", name, str(proxy.port)))


PLACES = {"locked": locked_file, "stopped": stopped_server, "silent": silent_server}


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with PLACES[request.param]() as place:
        yield place


def timed(caller: httpx2.Client) -> tuple[float, httpx2.Response]:
    began = time.monotonic()
    answer = caller.post("/jobs", json=JOB)
    return time.monotonic() - began, answer


def test_posts_that_come_together_are_all_answered_soon_and_then_at_once(place: Place) -> None:
    with shop(place.url) as queue, serving(queue, patience=2.0) as house:
        callers = [house.caller() for _ in range(20)]
        assert callers[0].post("/jobs", json=JOB).status_code == 201
        place.take()
        try:
            with ThreadPoolExecutor(len(callers)) as pool:
                answers = list(pool.map(timed, callers))
            for seconds, answer in answers:
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
                assert seconds < SOON
                assert not any(secret in answer.text for secret in place.secrets), answer.text
            # Once that is known, nobody waits any more.
            until(lambda: timed(callers[0])[0] < 1, "a post is refused at once")
            until(lambda: callers[0].get(house.url + "/health").status_code == 503, "health says so")
            # The process itself is well: to start it again would not bring the store back.
            assert callers[0].get(house.url + "/health/live").status_code == 200
        finally:
            place.give()
        until(lambda: callers[0].post("/jobs", json=JOB).status_code == 201, "the store is back")


@pytest.mark.parametrize("place", ["locked", "stopped"], indirect=True)
def test_of_callers_that_hung_up_while_the_store_was_away_nothing_is_stored(place: Place) -> None:
    with shop(place.url) as queue, serving(queue) as house:
        api = house.caller()
        assert api.post("/jobs", json=JOB).status_code == 201
        place.take()
        try:
            for number in range(10):
                with connect(house) as line:
                    line.sendall(a_post(b'{"type": "add", "payload": {"a": 7%03d}}' % number))
            until(lambda: others_have_left(house), "the server has seen them go")
        finally:
            place.give()
        until(lambda: api.post("/jobs", json=JOB).status_code == 201, "the store is back")
        jobs = api.get("/jobs", params={"limit": 100}).json()["jobs"]
        assert {job["payload"]["a"] for job in jobs} == {1}


def others_have_left(house: House) -> bool:
    """Whether the server has no connection but that of one caller."""
    port = int(house.url.rpartition(":")[2])
    ours = [
        each
        for each in psutil.Process().net_connections("tcp4")
        if each.laddr.port == port and each.status != psutil.CONN_LISTEN
    ]
    return len(ours) <= 1


def test_a_stranger_is_told_nothing_of_a_store_that_is_away(place: Place) -> None:
    with shop(place.url) as queue, serving(queue, patience=2.0) as house:
        root = house.caller(house.key("root", "admin"))
        assert root.get("/keys").status_code == 200
        stranger = house.caller("wl_00000000_nobody")
        place.take()
        try:
            for answer in (stranger.get("/jobs"), stranger.post("/jobs", json=JOB)):
                assert answer.status_code in (401, 503)
                assert not any(secret in answer.text for secret in place.secrets), answer.text
        finally:
            place.give()
