"""What if callers are slow, broken or up to no good? Clean refusals, and nobody else notices."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx2
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tests.conformance.conftest import NEW
from tests.server.conftest import House, serving, shop, visitor
from tests.server.messages import everything, one_message
from tests.waiting import PATIENCE, until
from windlass.server import call, connection, limits, run
from windlass.server.problems import Problem


@pytest.fixture(scope="module")
def house() -> Iterator[House]:  # one store is enough: nothing here gets as far as the store
    with NEW["sqlite"]() as url, shop(url) as queue, serving(queue) as house:
        yield house


@pytest.fixture
def api(house: House) -> httpx2.Client:
    return house.caller()


def connect(house: House) -> socket.socket:
    parts = urlsplit(house.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE)


def speak(house: House, text: bytes) -> bytes:
    with connect(house) as line:
        line.sendall(text)
        line.shutdown(socket.SHUT_WR)
        return everything(line)


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("size", [b"Content-Length: %d", b"Transfer-Encoding: chunked"])
def test_a_body_that_comes_with_an_upgrade_is_refused_and_never_taken_for_a_request(
    house: House, api: httpx2.Client, size: bytes
) -> None:
    job = b'{"type": "add", "payload": {"a": 1}}'
    post = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = post + b"Content-Length: %d\r\n\r\n" % len(job) + job
    before = api.get("/jobs").json()["jobs"]
    with connect(house) as line:
        line.sendall(post + UPGRADE + size.replace(b"%d", b"%d" % len(body)) + b"\r\n\r\n")
        line.sendall(body)
        answer = everything(line)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"send a body without Upgrade" in answer
    assert api.get("/jobs").json()["jobs"] == before


def test_a_request_without_a_body_may_ask_for_an_upgrade_that_it_does_not_get(house: House) -> None:
    with connect(house) as line:
        line.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"\r\n")
        assert everything(line).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "text",
    [
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhi",
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: evil\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_what_is_not_http_is_refused_and_the_server_lives(
    house: House, api: httpx2.Client, text: bytes
) -> None:
    answer = speak(house, text)
    assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
    assert not answer or b"application/problem+json" in answer
    assert api.get("/jobs").status_code == 200


def test_headers_have_a_bound(house: House, api: httpx2.Client) -> None:
    with connect(house) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        sent = 0
        # The answer may be lost with the connection; that no more is taken is what counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(20_000):
                line.sendall(b"X: " + b"y" * 1000 + b"\r\n")
                sent += 1
        assert sent < 20_000
    assert api.get("/jobs").status_code == 200
    assert api.get("/jobs", headers={"X-Long": "y" * 40_000}).status_code in (200, 431)


def test_slow_callers_are_sent_away_and_do_not_hold_up_others(
    house: House, api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Enough for whoever is not slow, also on a busy machine.
    monkeypatch.setattr(connection, "HEADER_SECONDS", 2.0)
    monkeypatch.setattr(call, "_BODY_SECONDS", 0.3)
    silent = [connect(house) for _ in range(200)]
    slow = connect(house)
    slow.sendall(b"GET /hea")
    half = connect(house)
    half.sendall(
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    assert api.get("/jobs").status_code == 200
    assert b" 408 " in everything(slow)
    assert b" 408 " in everything(half)
    for line in silent:
        everything(line)
    for line in (*silent, slow, half):
        line.close()


def test_a_body_that_nobody_reads_ends_its_connection(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.3)
    for path in (b"/health/live", b"/api/v1/nowhere"):
        with connect(house) as line:
            line.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx")
            assert everything(line).startswith(b"HTTP/1.1 ")


def test_bodies_together_have_a_bound_and_are_forgotten_when_answered(
    api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"type": "add", "payload": {"a": 1}, "delay": 60}
    monkeypatch.setattr(call, "MOST_BODY_BYTES", 200)
    assert {api.post("/jobs", json=job).status_code for _ in range(10)} == {201}
    refused = api.post("/jobs", json=job | {"tenant": "t" * 200})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert api.post("/jobs", json=job).status_code == 201


def test_a_body_that_was_read_is_not_kept_until_garbage_is_looked_for(api: httpx2.Client) -> None:
    mark = "a body of this test " * 500
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            job = {"type": "mail.send", "payload": {"to": "a", "body": mark}, "delay": 60}
            assert api.post("/jobs", json=job).status_code == 201
        # By type(): isinstance() asks the objects of others, which may not be ready to answer.
        cycles = [each for each in gc.get_objects() if type(each) is RequestResponseCycle]
        # Others of this process may have bodies as well, and the last of ours may just be on its way.
        assert sum(mark.encode() in bytes(each.body) for each in cycles) <= 1
    finally:
        gc.enable()


def too_busy(*_: object) -> None:
    raise Problem(503, "too-busy", "there is too much to do")


def test_whether_it_is_well_is_answered_however_much_there_is_to_do(
    house: House, api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits.RequestLimits, "enter", too_busy)
    assert api.get("/jobs").status_code == 503
    for path in ("/health", "/health/live", "/health/ready"):
        with visitor(house.url) as probe:
            assert probe.get(path).status_code == 200


def test_a_huge_body_is_cut_off_early_and_costs_no_memory(house: House) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    with connect(house) as line:
        line.sendall(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        sent = 0
        try:
            for _ in range(4000):
                line.sendall(chunk)
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert sent < 4000
    assert process.memory_info().rss - before < 64 * 2**20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
FIELDS = [
    "type",
    "payload",
    "priority",
    "delay",
    "run_at",
    "key",
    "id",
    "tenant",
    "jobs",
    "worker",
    "types",
    "filter",
]
POSTS = [
    "jobs",
    "jobs/batch",
    "jobs/actions",
    "leases",
    "keys",
    "jobs/x/replay",
    "workers/w/beat",
    "leases/x/fail",
]


# The server, in this very process, draws numbers of its own.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@settings(max_examples=150)
@given(st.sampled_from(POSTS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON)
def test_whatever_is_posted_is_taken_or_cleanly_refused(api: httpx2.Client, path: str, body: Any) -> None:
    text = json.dumps(body).encode("utf-8", "surrogatepass")
    answer = api.post(f"/{path}", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, (path, body, answer.text)
    if answer.status_code >= 400:
        assert answer.json()["detail"]


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@settings(max_examples=100)
@given(st.text(max_size=50), st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=3))
def test_whatever_is_asked_for_is_found_or_cleanly_refused(
    api: httpx2.Client, name: str, query: dict[str, str]
) -> None:
    safe = quote(name.encode("utf-8", "replace"), safe="")
    words = urlencode(
        {key.encode("utf-8", "replace"): value.encode("utf-8", "replace") for key, value in query.items()}
    )
    for path in (f"/jobs/{safe}?{words}", f"/batches/{safe}", f"/jobs?{words}", f"/audit?target={safe}"):
        assert api.get(path).status_code < 500, path


def test_a_thousand_wrong_keys_do_not_wear_the_server_out(house: House, api: httpx2.Client) -> None:
    done = threading.Event()
    stranger = house.caller("wl_0123456789ab_nothing")

    def knock() -> None:
        if {stranger.get("/jobs").status_code for _ in range(50)} == {401}:
            done.set()

    threads = [threading.Thread(target=knock) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert api.get("/jobs").status_code == 200
    for thread in threads:
        thread.join()
    assert done.is_set()


def test_a_connection_on_which_nothing_comes_is_closed_and_one_in_use_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_IDLE_SECONDS", 0.5)
    with NEW["sqlite"]() as url, shop(url) as queue, serving(queue) as house:
        until(lambda: outlives_an_idle_one(house), "one that is in use is not closed")


def outlives_an_idle_one(house: House) -> bool:
    """Whether requests are answered for longer than an idle connection lives, and then it is closed.

    Not if the machine stalls: then this one was idle, too.
    """
    with connect(house) as line:
        for _ in range(3):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if one_message(line).startswith(b"HTTP/1.1 200"):
                    threading.Event().wait(0.2)
                    continue
            return False
        return everything(line) == b""


@pytest.mark.parametrize(
    ("sent", "then"),
    [
        (b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n"),
        (b"POST /api/v1/nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n", b"{}"),
    ],
    ids=["a line break", "a body after its answer"],
)
def test_what_is_no_request_keeps_no_connection_open(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, then: bytes
) -> None:
    monkeypatch.setattr(run, "_IDLE_SECONDS", 0.5)
    with NEW["sqlite"]() as url, shop(url) as queue, serving(queue) as house, connect(house) as line:
        line.sendall(sent)
        assert one_message(line).startswith(b"HTTP/1.1 ")
        line.sendall(then)
        assert everything(line) == b""


def test_requests_that_come_all_at_once_are_answered_one_after_the_other(house: House) -> None:
    live = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
    with connect(house) as line:
        line.sendall(2 * (live + b"\r\n") + live + b"Connection: close\r\n\r\n")
        assert everything(line).count(b"HTTP/1.1 200") == 3


JOB = b'{"type": "add", "payload": {"a": 1}}'


def a_post(body: bytes, more: bytes = b"") -> bytes:
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + more
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def test_a_post_takes_nothing_any_more_when_it_is_answered_or_nobody_waits_for_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call, "MOST_BODY_BYTES", 500)
    stranger = b"Authorization: Bearer wl_00000000_nobody\r\n"
    with NEW["sqlite"]() as url, shop(url) as queue, serving(queue, most_requests=10) as house:
        for post in (a_post(JOB), a_post(b"{"), a_post(b'{"type": "nobody"}'), a_post(JOB, stranger)):
            for number in range(20):
                with connect(house) as line:
                    line.sendall(post)
                    if number % 2:
                        assert one_message(line).startswith(b"HTTP/1.1 ")
        job = {"type": "add", "payload": {"a": 1}}
        api = house.caller()
        until(lambda: api.post("/jobs", json=job).status_code == 201, "there is room for a job")


def test_an_answer_that_nobody_can_hear_any_more_is_no_mistake_of_the_server(
    house: House, api: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    # What comes behind two requests ends the connection, before the first of them is stored.
    assert b" 400 " in speak(house, 2 * a_post(JOB) + b"\0\r\n\r\n")
    # It is told after them, so they have been by now.
    assert api.post("/jobs", json={"type": "add", "payload": {"a": 1}}).status_code == 201
    ours = [each for each in caplog.records if each.name.startswith("windlass")]
    assert not [each for each in ours if each.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("path", "form", "field"),
    [
        ("/jobs", {"type": "add\n"}, "type"),
        ("/leases", {"worker": "w\n", "types": ["add"]}, "worker"),
        (
            "/jobs/batch",
            {
                "jobs": [{"type": "add", "payload": {"a": 1}}],
                "batch": "b",
                "batch_id": "0190a5a0-0000-7000-8000-000000000003\n",
            },
            "batch_id",
        ),
    ],
)
def test_a_name_does_not_end_in_a_line_break(
    api: httpx2.Client, path: str, form: dict[str, Any], field: str
) -> None:
    answer = api.post(path, json=form)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
