"""How does a Python producer speak with a server, and what if the server is away?"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.server.conftest import House, serving
from tests.waiting import PATIENCE
from windlass import (
    Client,
    IdConflict,
    InvalidPayload,
    InvalidValue,
    JobNotFound,
    JobState,
    KeyConflict,
    Queue,
    QueueFull,
    Refused,
    StoreMismatch,
    StoreUnavailable,
    UniqueConflict,
    UnknownType,
    WaitTimeout,
    WrongState,
)
from windlass.ops.remote import verbs_on
from windlass.store.jobs import Filter
from windlass.store.remote import RemoteStore


@pytest.fixture
def client(house: House) -> Iterator[Client]:
    with Client(house.url) as client:
        yield client


def test_jobs_are_enqueued_found_awaited_and_cancelled(house: House, client: Client) -> None:
    job = client.enqueue("add", {"a": 1, "b": 2}, key="sum", priority=7, tenant="acme")
    assert client.get("sum").id == job.id
    assert (bytes(client.get(job.id).payload), job.state) == (b'{"a":1,"b":2}', JobState.PENDING)
    assert client.enqueue("add", {"a": 1, "b": 2}, key="sum", tenant="acme").created is False
    with pytest.raises(WaitTimeout):
        client.wait(job.id, 0.1)
    with pytest.raises(WaitTimeout):
        client.wait(job.id, 0.00005)
    with house.queue.worker():
        assert client.wait(job.id, PATIENCE).state is JobState.COMPLETED
        assert job.result(PATIENCE) == 3
    late = client.enqueue("add", {"a": 1}, delay="1h")
    assert client.cancel(late.id).state is JobState.CANCELLED


def test_a_queue_with_the_address_of_a_server_is_a_producer(house: House) -> None:
    with Queue(house.url) as queue:

        @queue.job
        def add(a: int, b: int = 0) -> int:
            return a + b

        job = add.options(key="typed").enqueue(4, b=5)
        assert house.queue.get(job.id).key == "typed"
        assert bytes(asyncio.run(add.enqueue_async(6)).get().payload) == b'{"a":6}'
        with queue.batch("night") as batch:
            batch.add(add.draft(1), add.draft(2))
        assert (batch.status().total, batch.status().name) == (2, "night")
        with pytest.raises(Refused, match=r"^a worker needs the store itself"), queue.worker():
            pass


def test_many_are_sent_in_hundreds_and_paged_through(client: Client) -> None:
    handles = client.enqueue_many(client.draft("add", {"a": n}) for n in range(250))
    assert len({handle.id for handle in handles}) == 250
    found = list(client.jobs(types=("add",), states=(JobState.PENDING,)))
    assert [job.id for job in found] == [handle.id for handle in reversed(handles)]

    async def collect() -> int:
        return len([job async for job in client.jobs_async(types=("add",))])

    assert asyncio.run(collect()) == 250


def test_what_ties_jobs_to_each_other_is_passed_on(house: House, client: Client) -> None:
    first = client.enqueue("add", {"a": 1}, unique="sync:1")
    again = client.enqueue("add", {"a": 1}, unique="sync:1")
    assert (again.id, again.created) == (first.id, False)
    client.enqueue("add", {"a": 2}, unique="sync:1", until="start", on_unique="replace")
    assert bytes(house.queue.get(first.id).payload) == b'{"a":2}'
    with pytest.raises(UniqueConflict) as conflict:
        client.enqueue("add", {"a": 1}, unique="sync:1", on_unique="error")
    assert conflict.value.job_id == first.id
    then = client.enqueue("add", {"a": 3}, depends_on=[first], on_dead="cancel", payload_ref="s3://b/k")
    assert house.queue.store.waits_for(then.id) == [first.id]
    assert house.queue.get(then.id).payload_ref == "s3://b/k"
    house.ops.bury(first.id)
    assert then.state is JobState.CANCELLED


def test_a_full_queue_is_told_when_patience_is_at_its_end(house: House) -> None:
    house.queue.store.set_setting("add.hard_depth", "1")
    with Client(house.url, patience=0) as client:
        client.enqueue("add", {"a": 1})
        with pytest.raises(QueueFull, match="hard_depth") as full:
            client.enqueue("add", {"a": 2})
    assert (full.value.retryable, full.value.retry_after) == (True, 5)


def test_refusals_are_the_errors_of_the_library(house: House, client: Client) -> None:
    with pytest.raises(UnknownType, match="nope"):
        client.enqueue("nope", {})
    with pytest.raises(InvalidPayload):
        client.enqueue("add", {"a": "x"})
    with pytest.raises(InvalidValue):
        client.enqueue("add", {"a": 1}, priority=11)
    first = client.enqueue("add", {"a": 1}, key="k")
    with pytest.raises(KeyConflict) as conflict:
        client.enqueue("add", {"a": 2}, key="k")
    assert conflict.value.job_id == first.id
    with pytest.raises(JobNotFound):
        client.get("nix")
    house.ops.bury(first.id)
    with pytest.raises(WrongState):
        client.cancel(first.id)
    house.key("root", "admin")
    with (
        Client(house.url, house.key("eye", "viewer")) as eye,
        pytest.raises(Refused, match="needs the role producer or admin"),
    ):
        eye.enqueue("add", {"a": 1})


class Flaky(ThreadingHTTPServer):
    """Stands before a server: hands requests on, and loses, refuses or breaks off the first few answers."""

    daemon_threads = True

    def __init__(self, house: House, mishaps: list[str]) -> None:
        self.house = house
        self.mishaps = mishaps
        self.seen = 0
        super().__init__(("127.0.0.1", 0), _Proxy)


_PAGES = {"proxy": 502, "page": 200, "moved": 302, "missing": 404}


class _Proxy(BaseHTTPRequestHandler):
    server: Flaky
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._pass_on("GET")

    def do_POST(self) -> None:
        self._pass_on("POST")

    def do_PATCH(self) -> None:
        self._pass_on("PATCH")

    def _pass_on(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        mishap = self.server.mishaps.pop(0) if method != "GET" and self.server.mishaps else ""
        self.server.seen += method != "GET"
        if mishap == "away":
            self._answer(503, b'{"status":503,"detail":"away"}', {"Retry-After": "0"})
            return
        if mishap in _PAGES:
            self._answer(_PAGES[mishap], b"<html>", {"Content-Type": "text/html"})
            return
        if mishap == "gone":
            self.close_connection = True
            return
        api = self.server.house.caller()
        named = self.headers.get("Idempotency-Key")
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": named} if named else {})
        sent: dict[str, Any] = {"content": body, "headers": headers} if body else {}
        answer = api.request(method, self.path.removeprefix("/api/v1"), **sent)
        if mishap == "lost":
            # The job is stored, and nobody hears of it.
            self.close_connection = True
            return
        self._answer(answer.status_code, answer.content, {"Content-Type": answer.headers["content-type"]})

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def flaky(house: House, *mishaps: str) -> Iterator[tuple[Flaky, str]]:
    server = Flaky(house, list(mishaps))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_lost_answer_a_refusal_and_a_broken_connection_cost_time_and_nothing_else(house: House) -> None:
    with flaky(house, "lost", "away", "gone", "lost") as (server, url), Client(url) as client:
        one = client.enqueue("add", {"a": 1})
        many = client.enqueue_many([client.draft("add", {"a": n}) for n in (2, 3)])
        assert server.seen >= 6
    stored = {job.id for job in house.ops.find(Filter()).jobs}
    assert stored == {one.id, *(handle.id for handle in many)}


def test_what_an_operator_asks_for_is_done_once_though_every_first_answer_is_lost(house: House) -> None:
    jobs = [house.queue.enqueue("add", {"a": number}).id for number in range(4)]
    with flaky(house, *["lost", ""] * 7) as (server, url), Client(url) as client:
        ops = verbs_on(client.front)
        assert ops.bury(jobs[0], why="later").state is JobState.DEAD
        assert ops.replay(jobs[0]).state is JobState.PENDING
        assert ops.edit(jobs[0], payload={"a": 9}).state is JobState.PENDING
        assert ops.bury(jobs[1]).state is JobState.DEAD
        assert ops.discard(jobs[1]).state is JobState.DISCARDED
        assert client.cancel(jobs[2]).state is JobState.CANCELLED
        assert (server.seen, server.mishaps) == (12, ["lost", ""])
        # Many jobs are one operation, however often it is asked for.
        begun = ops.operations.start("bury", Filter(ids=(jobs[3],), states=(JobState.PENDING,)))
        done = ops.operations.follow(begun.id).reached
        assert (done.done, done.refused) == (1, 0)
        # A count that comes first says the same as the request that follows it.
        assert ops.operations.count("priority", Filter(types=("add",)), priority=9).matched == 1
        # Another request is another: it is refused, as by the store itself.
        with pytest.raises(WrongState):
            client.cancel(jobs[2])
    told = [[change.verb for change in house.queue.get(job).changes] for job in jobs]
    assert told == [["bury", "replay", "edit"], ["bury", "discard"], ["cancel"], ["bury"]]
    assert house.queue.get(jobs[0]).replay_count == 1


def test_when_patience_is_at_its_end_the_caller_is_told(house: House) -> None:
    with flaky(house, *["away"] * 1000) as (_, url), Client(url, patience=0.5) as client:
        with pytest.raises(StoreUnavailable, match="away") as error:
            client.enqueue("add", {"a": 1})
        assert error.value.retryable
    with Client("http://127.0.0.1:9", patience=0.2) as client, pytest.raises(StoreUnavailable):
        client.enqueue("add", {"a": 1})


def test_the_key_is_never_shown() -> None:
    with Client("http://127.0.0.1:9", "wl_a_secret", patience=0) as client:
        with pytest.raises(StoreUnavailable) as error:
            client.enqueue("add", {"a": 1})
        assert "secret" not in str(error.value)
        with pytest.raises(Refused, match="needs the store itself") as refused:
            client.store.claim  # noqa: B018
        assert "secret" not in str(refused.value)
    with pytest.raises(InvalidValue):
        Client("ftp://x")


def test_what_cannot_be_an_address_or_a_key_is_said_and_no_key_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in ("http://wl_a_secret@host:abc", "http://wl_a_secret@host:99999", "http://[::1"):
        with Queue(url) as queue, pytest.raises(InvalidValue, match="server URL") as wrong:
            queue.get("x")
        assert "secret" not in str(wrong.value)
    for key in ("wl_a_secret\n\nX-Header: x", "wl_a_sécret", "wl a secret"):
        with (
            Client("http://127.0.0.1:9", key) as client,
            pytest.raises(InvalidValue, match="API key") as wrong,
        ):
            client.get("x")
        assert "cret" not in str(wrong.value)
    monkeypatch.setenv("WINDLASS_API_KEY", "wl_a_secret\n")
    with Client("http://127.0.0.1:9", patience=0) as client, pytest.raises(StoreUnavailable):
        client.get("x")


def test_options_and_filters_reach_the_server_or_are_refused(house: House, client: Client) -> None:
    far = client.enqueue("add", {"a": 1}, payload_ref="s3://bucket/a", key="order/42")
    near = client.enqueue("add", {"a": 2})
    assert house.queue.get(far.id).payload_ref == "s3://bucket/a"
    assert client.get("order/42").id == far.id
    assert [job.id for job in client.front.find(Filter(payload={("a",): 2})).jobs] == [near.id]
    assert client.front.find(Filter(older_than=timedelta(hours=1))).jobs == []
    assert [job.id for job in client.front.find(Filter(ids=(far.id,))).jobs] == [far.id]
    for where in (Filter(batch=far.id), Filter(caller="x")):
        with pytest.raises(Refused, match="needs the store itself"):
            client.front.find(where)


def test_who_answers_like_no_server_of_ours_is_not_taken_for_one(house: House) -> None:
    mishaps = ("proxy", "page", "moved", "missing")
    with flaky(house, *mishaps) as (_, url), Client(url, patience=PATIENCE) as client:
        # 502 of a proxy: again; then a page, with 200, of somebody else.
        with pytest.raises(StoreMismatch, match="does not answer as a Windlass server"):
            client.enqueue("add", {"a": 1})
        for status in (302, 404):
            match = f"{url} does not answer as a Windlass server does: status {status}"
            with pytest.raises(StoreMismatch, match=match):
                client.enqueue("add", {"a": 1})


def test_a_person_hears_that_a_server_is_away_and_until_when_it_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("windlass.store.remote._SILENT_SECONDS", 0.2)
    said: list[str] = []
    store = RemoteStore("http://127.0.0.1:1", patience=1.0)
    store.on_wait = said.append
    with pytest.raises(StoreUnavailable):
        store.types()
    [line] = said
    assert re.fullmatch(
        r"http://127\.0\.0\.1:1: .*refused.*; it is tried again until \d\d:\d\d:\d\d UTC", line
    )


def test_secrets_are_sealed_by_the_server_and_a_repeated_request_is_known(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", base64.b64encode(b"k" * 32).decode())
    with Queue(store_url) as queue:

        @queue.job(encrypt=["secret"])
        def hide(secret: str) -> str:
            return secret[::-1]

        with serving(queue) as house, flaky(house, "lost") as (_, url), Client(url) as client:
            job = client.enqueue("hide", {"secret": "swordfish"})
            assert b"swordfish" not in bytes(queue.get(job.id).payload)
            with pytest.raises(IdConflict):
                client.enqueue("hide", {"secret": "another"}, id=job.id)
            with queue.worker():
                assert job.result(PATIENCE) == "hsifdrows"
