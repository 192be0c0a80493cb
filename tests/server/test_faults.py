"""F-14, F-15, F-22, F-44, F-46: what goes wrong between callers and a server, seen from outside."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.conformance.contenders import at_once
from tests.server.conftest import House, serving, shop
from tests.server.messages import one_message
from tests.waiting import PATIENCE
from windlass import Client, JobState
from windlass.store.jobs import Filter

ROUNDS = 8


def claim(api: httpx2.Client) -> list[dict[str, Any]]:
    answer = api.post("/leases", json={"worker": "w1", "types": ["add"]})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["leases"]
    return found


def add(api: httpx2.Client, number: int = 1) -> str:
    job_id: str = api.post("/jobs", json={"type": "add", "payload": {"a": number}}).json()["id"]
    return job_id


# --- F-14: a flood ------------------------------------------------------------------------------


def test_f14_one_service_that_floods_is_slowed_down_and_the_others_are_not(house: House) -> None:
    house.queue.store.set_setting("*.soft_depth", "400")
    house.key("root", "admin")
    flood = house.caller(house.key("flood", "producer", rate=10.0))
    calm = house.caller(house.key("calm", "producer", rate=1_000.0))
    ten = {"jobs": [{"type": "add", "payload": {"a": n}} for n in range(10)]}
    told = Counter(flood.post("/jobs/batch", json=ten).status_code for _ in range(25))
    # A second's worth at once, and then one a second.
    assert told.keys() == {201, 429}
    assert calm.post("/jobs/batch", json=ten).status_code == 201
    # And however slowly it comes: beyond the depth nothing is taken, whoever sends it.
    house.queue.enqueue_many(house.queue.draft("add", {"a": n}) for n in range(400))
    full = calm.post("/jobs/batch", json=ten)
    assert (full.status_code, full.json()["type"].rpartition(":")[2]) == (429, "queue-full")
    assert int(full.headers["retry-after"]) >= 1


# --- F-15: hostile payloads ---------------------------------------------------------------------

STORED = [
    "<script>alert(1)</script>",
    "'; drop table windlass.jobs; --",
    "{{ 7 * 7 }} ${7*7} %s %(x)s {0}",
    '\\u0000 \\x00 C:\\temp "quoted"',
    "\u202e\ufeff\u2028 \U0001f4a3 e\u0301",
    "x" * 60_000,
]
REFUSED = [
    b'{"to": "\\u0000"}',
    b'{"to": "\\ud800"}',
    b'{"to": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"to": "a", "to": "b"}',
    b'{"to": "a", "body": ' + b"9" * 400 + b"}",
    b'{"to": 1e999}',
    b'{"to": NaN}',
    b'{"to": "\xff\xfe"}',
    b'{"to": "' + b"x" * 65_536 + b'"}',
    b'{"to": "' + b"\\u00e4" * 60_000 + b'"}',
    b'["to"]',
    b"null",
]


def test_f15_whatever_a_payload_holds_is_kept_as_it_is_or_refused(api: httpx2.Client) -> None:
    for text in STORED:
        posted = api.post("/jobs", json={"type": "mail.send", "payload": {"to": text}})
        assert posted.status_code == 201, text[:50]
        assert api.get(f"/jobs/{posted.json()['id']}").json()["payload"] == {"to": text}
    before = len(api.get("/jobs", params={"limit": 1000}).json()["jobs"])
    for payload in REFUSED:
        body = b'{"type": "mail.send", "payload": ' + payload + b"}"
        refused = api.post("/jobs", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code in (400, 413), (payload[:50], refused.text[:200])
        assert refused.json()["detail"]
    assert len(api.get("/jobs", params={"limit": 1000}).json()["jobs"]) == before


def test_f15_no_more_is_read_than_a_job_can_be(house: House) -> None:
    """The rest of a body that is too large is not waited for."""
    address = urlsplit(house.url)
    head = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for size in (f"Content-Length: {200_000}", "Transfer-Encoding: chunked"):
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE) as line:
            line.sendall(f"{head}{size}\r\n\r\n".encode())
            if size.startswith("Transfer"):
                line.sendall(b"24000\r\n" + b" " * 0x24000 + b"\r\n")
            assert one_message(line).startswith(b"HTTP/1.1 413 ")


# --- F-22: the answer is lost -------------------------------------------------------------------


class Deaf:
    """Stands before a server, hands on whole requests, and loses the first answers."""

    def __init__(self, url: str, losing: int) -> None:
        self._target = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._losing = losing
        self.lost = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(caller,), daemon=True).start()

    def _carry(self, caller: socket.socket) -> None:
        # Whoever hangs up has heard enough.
        with (
            contextlib.suppress(OSError),
            caller,
            socket.create_connection(self._target, timeout=PATIENCE) as server,
        ):
            while request := one_message(caller):
                server.sendall(request)
                answer = one_message(server)
                if b"POST /api/v1/jobs" in request and self.lost < self._losing:
                    self.lost += 1
                    return
                caller.sendall(answer)

    def close(self) -> None:
        # A close alone does not reach who waits at the door.
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


def test_f22_a_client_whose_answer_was_lost_is_given_the_same_job(house: House) -> None:
    deaf = Deaf(house.url, losing=3)
    try:
        with Client(deaf.url) as client:
            job = client.enqueue("add", {"a": 1})
            batch = client.enqueue_many(client.draft("add", {"a": n}) for n in range(5))
    finally:
        deaf.close()
    assert deaf.lost == 3
    stored = house.queue.store.find(Filter(), limit=100).jobs
    assert sorted(each.id for each in stored) == sorted([job.id, *(each.id for each in batch)])


def test_f22_fifty_at_once_with_one_key_are_given_one_job(house: House) -> None:
    body = {"type": "add", "payload": {"a": 1}, "key": "order:1"}
    with ThreadPoolExecutor(50) as callers:
        api = house.caller()
        told = list(callers.map(lambda _: api.post("/jobs", json=body), range(50)))
    assert Counter(each.status_code for each in told) == {201: 1, 200: 49}
    assert len({each.json()["id"] for each in told}) == 1


# --- F-44: a cancel at the same moment ----------------------------------------------------------


def test_f44_a_cancel_at_the_moment_of_a_claim_or_an_end_has_one_legal_outcome(house: House) -> None:
    one, other = house.caller(), house.caller()
    for number in range(ROUNDS):
        job_id = add(one, number)
        cancelled, leases = at_once(lambda: one.post(f"/jobs/{job_id}/cancel"), lambda: claim(other))  # noqa: B023
        assert isinstance(cancelled, httpx2.Response)
        assert isinstance(leases, list)
        assert cancelled.status_code == 200
        if leases:
            # It was running by then: the worker is asked to stop, and says that it could not go on.
            told = other.post(f"/leases/{leases[0]['lease']}/fail", json={"message": "stopped"}).json()
            assert told["outcome"] == "cancelled"
        assert one.get(f"/jobs/{job_id}").json()["state"] == "cancelled"

        job_id = add(one, number)
        [lease] = claim(other)
        cancelled, done = at_once(
            lambda: one.post(f"/jobs/{job_id}/cancel"),  # noqa: B023
            lambda: other.post(f"/leases/{lease['lease']}/complete", json={"result": 1}),  # noqa: B023
        )
        assert isinstance(cancelled, httpx2.Response)
        assert isinstance(done, httpx2.Response)
        # A completion wins; whoever comes after it is told so.
        assert (done.status_code, done.json()["outcome"]) == (200, "done")
        assert cancelled.status_code in (200, 409)
        assert one.get(f"/jobs/{job_id}").json()["state"] == "completed"


# --- F-46: one half is stopped ------------------------------------------------------------------


def test_f46_workers_go_on_without_the_server_and_the_server_without_workers(store_url: str) -> None:
    with shop(store_url) as queue:
        with serving(queue) as house:
            api = house.caller()
            # Nobody works, and jobs are taken.
            jobs = [add(api, number) for number in range(5)]
            assert {api.get(f"/jobs/{job}").json()["state"] for job in jobs} == {"pending"}
        # Nobody serves, and the jobs are done.
        with queue.worker():
            assert {queue.wait(job, PATIENCE).state for job in jobs} == {JobState.COMPLETED}
        with serving(queue) as house:
            assert house.caller().get(f"/jobs/{jobs[0]}").json()["result"] == 0
