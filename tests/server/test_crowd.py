"""Who waits, sends slowly, reads slowly or says nothing is bounded, and never keeps others from working."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator

import httpx2
import psutil
import pytest

from tests.conformance.conftest import NEW
from tests.server.conftest import House, serving, shop, visitor
from tests.server.messages import everything, one_message
from tests.server.test_hostile import a_post, connect
from tests.waiting import until
from windlass.server import connection
from windlass.server.connection import Connection, Connections

JOB = {"type": "add", "payload": {"a": 1}, "delay": "1d"}
FEW = 10


@pytest.fixture
def small() -> Iterator[House]:
    """A server with room for few, on one store: nothing here is the store's business."""
    with (
        NEW["sqlite"]() as url,
        shop(url) as queue,
        serving(queue, most_requests=FEW, most_waiting=FEW) as house,
    ):
        yield house


def a_wait(job: str, key: str | None = None) -> bytes:
    who = "" if key is None else f"Authorization: Bearer {key}\r\n"
    return f"GET /api/v1/jobs/{job}?wait=60s HTTP/1.1\r\nHost: localhost\r\n{who}\r\n".encode()


def open_lines(house: House) -> int:
    """How many connections the server has."""
    port = int(house.url.rpartition(":")[2])
    found = psutil.Process().net_connections("tcp4")
    return sum(each.laddr.port == port and each.status != psutil.CONN_LISTEN for each in found)


def status(line: socket.socket) -> tuple[int, bool]:
    """What is answered, and whether it says when to come again."""
    answer = one_message(line)
    return int(answer[9:12]), b"retry-after: " in answer


def those_who_hear(lines: list[socket.socket], count: int) -> list[socket.socket]:
    """So many of them, the others being kept waiting: those on which something has come."""

    def heard() -> list[socket.socket]:
        return select.select(lines, [], [], 0)[0]

    until(lambda: len(heard()) >= count, f"{count} are answered")
    assert len(heard()) == count
    return heard()


def test_who_waits_takes_no_place_of_who_works_and_is_bounded(small: House) -> None:
    api = small.caller()
    job = api.post("/jobs", json=JOB).json()["id"]
    with contextlib.ExitStack() as closing:
        lines = [closing.enter_context(connect(small)) for _ in range(2 * FEW)]
        for line in lines:
            line.sendall(a_wait(job))
        assert {status(line) for line in those_who_hear(lines, FEW)} == {(503, True)}
        assert {api.post("/jobs", json=JOB).status_code for _ in range(2 * FEW)} == {201}
        assert api.get(f"/jobs/{job}").status_code == 200


def test_who_hangs_up_waits_no_more(small: House) -> None:
    api = small.caller()
    job = api.post("/jobs", json=JOB).json()["id"]
    for _ in range(5):
        for _ in range(FEW):
            with connect(small) as line:
                line.sendall(a_wait(job))
        until(lambda: open_lines(small) <= 1, "the server has seen them go")
    assert api.get(f"/jobs/{job}", params={"wait": "0.1s"}).status_code == 200


def test_one_key_has_its_share_of_the_places_and_no_more(small: House) -> None:
    small.key("root", "admin")
    greedy, other = small.key("shop", "producer"), small.key("shop", "producer")
    job = small.caller(other).post("/jobs", json=JOB).json()["id"]
    with contextlib.ExitStack() as closing:
        lines = [closing.enter_context(connect(small)) for _ in range(FEW)]
        for line in lines:
            line.sendall(a_wait(job, greedy))
        assert {status(line) for line in those_who_hear(lines, FEW - FEW // 4)} == {(429, True)}
        assert small.caller(other).get(f"/jobs/{job}", params={"wait": "0.1s"}).status_code == 200


def test_bodies_that_never_come_take_no_place_of_who_works(small: House) -> None:
    small.key("root", "admin")
    slow, good = small.key("slow", "producer"), small.key("good", "producer")
    head = a_post(b"", b"Authorization: Bearer " + slow.encode() + b"\r\n")
    half = head.replace(b"Content-Length: 0", b"Content-Length: 100") + b"{"
    with contextlib.ExitStack() as closing:
        lines = [closing.enter_context(connect(small)) for _ in range(FEW)]
        for line in lines:
            line.sendall(half)
        # Beyond its share the key is told so at once, whether the rest comes or not.
        assert {status(line) for line in those_who_hear(lines, FEW // 2)} == {(429, True)}
        api = small.caller(good)
        assert {api.post("/jobs", json=JOB).status_code for _ in range(FEW)} == {201}


def test_an_address_that_fails_to_log_in_must_wait(small: House) -> None:
    key = small.key("root", "admin")
    with visitor(small.url, headers={"Origin": small.url}) as browser:

        def log_in(with_key: str) -> httpx2.Response:
            return browser.post("/login", json={"key": with_key})

        assert {log_in(key).status_code for _ in range(30)} == {200}
        failed = [log_in("wl_nobody_nothing") for _ in range(30)]
        assert {answer.status_code for answer in failed} == {401, 429}
        assert int(failed[-1].headers["retry-after"]) >= 1
        assert log_in(key).status_code == 429


def test_of_connections_that_show_no_key_the_oldest_makes_room(
    small: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = small.key("root", "admin")
    known = small.caller(key)
    assert known.get("/keys").status_code == 200
    monkeypatch.setattr(Connections, "opened", few_strangers(Connections.opened))
    with contextlib.ExitStack() as closing:
        strangers = [closing.enter_context(connect(small)) for _ in range(FEW)]
        assert [line.recv(1) for line in strangers[: FEW // 2]] == [b""] * (FEW // 2)
        assert known.get("/keys").status_code == 200
        # The newest is heard.
        strangers[-1].sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status(strangers[-1])[0] == 200


def few_strangers(opened: Callable[[Connections, Connection], None]) -> Callable[..., None]:
    def instead(self: Connections, line: Connection) -> None:
        self.most_strangers = FEW // 2
        opened(self, line)

    return instead


def test_who_does_not_read_the_answers_is_cut_off(small: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "READ_SECONDS", 0.1)
    with connect(small) as line:
        line.sendall(100 * b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: open_lines(small) == 0, "it was cut off")


def test_a_request_that_follows_ends_the_wait_of_the_one_before(small: House) -> None:
    job = small.caller().post("/jobs", json=JOB).json()["id"]
    claim = b'{"worker": "w", "types": ["mail.send"], "wait": "60s"}'
    with connect(small) as line:
        line.sendall(a_wait(job) + a_post(claim).replace(b"/jobs", b"/leases", 1))
        line.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert everything(line).count(b"HTTP/1.1 200 ") == 3
