"""How do jobs come in over HTTP, and what does their sender see of them?"""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.server.conftest import House, serving, shop
from tests.server.messages import one_message
from tests.waiting import PATIENCE


def post(api: httpx2.Client, **job: Any) -> httpx2.Response:
    return api.post("/jobs", json=job)


def add(api: httpx2.Client, **job: Any) -> str:
    answer = post(api, type="add", payload={"a": 1}, **job)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


def stored(api: httpx2.Client) -> int:
    return len(api.get("/jobs", params={"limit": 1000}).json()["jobs"])


def test_a_job_is_accepted_and_can_be_read_at_once(api: httpx2.Client) -> None:
    answer = post(
        api, type="add", payload={"a": 1, "b": 2}, priority=9, key="sum", tenant="acme", max_attempts=3
    )
    assert answer.status_code == 201
    told = answer.json()
    assert {name: told[name] for name in ("type", "state", "key", "created")} == {
        "type": "add",
        "state": "pending",
        "key": "sum",
        "created": True,
    }
    assert answer.headers["location"] == f"/api/v1/jobs/{told['id']}"
    for name in (told["id"], "sum"):
        job = api.get(f"/jobs/{name}").json()
        assert (job["id"], job["payload"], job["priority"]) == (told["id"], {"a": 1, "b": 2}, 9)
        assert (job["tenant"], job["max_attempts"], job["view"], job["attempts"]) == ("acme", 3, "due", 0)


def test_a_repeated_key_finds_its_job_and_another_payload_is_a_conflict(api: httpx2.Client) -> None:
    first = post(api, type="add", payload={"a": 1}, key="k")
    again = post(api, type="add", payload={"a": 1}, key="k")
    by_header = api.post("/jobs", json={"type": "add", "payload": {"a": 1}}, headers={"Idempotency-Key": "k"})
    assert [each.status_code for each in (first, again, by_header)] == [201, 200, 200]
    assert len({each.json()["id"] for each in (first, again, by_header)}) == 1
    assert again.json()["created"] is False
    conflict = post(api, type="add", payload={"a": 2}, key="k")
    assert (conflict.status_code, conflict.json()["job"]) == (409, first.json()["id"])
    assert conflict.headers["content-type"] == "application/problem+json"
    taken = post(api, type="add", payload={"a": 2}, key="k", on_conflict="existing")
    assert (taken.status_code, taken.json()["id"]) == (200, first.json()["id"])
    assert stored(api) == 1


def test_fifty_at_once_with_one_key_make_one_job(house: House) -> None:
    ready = threading.Barrier(50)
    api = house.caller()

    def send(_: int) -> int:
        ready.wait()
        return post(api, type="add", payload={"a": 1}, key="same").status_code

    with ThreadPoolExecutor(50) as threads:
        codes = list(threads.map(send, range(50)))
    assert sorted(codes) == [200] * 49 + [201]
    assert stored(api) == 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a priority above 10": ({"priority": 11}, "priority"),
    "a priority in words": ({"priority": "high"}, "priority"),
    "no attempts at all": ({"max_attempts": 0}, "max_attempts"),
    "a delay in the past": ({"delay": -1}, "delay"),
    "a delay that is none": ({"delay": "soon"}, "delay"),
    "a time that is none": ({"run_at": "tomorrow"}, "run_at"),
    "both a delay and a time": ({"delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "run_at"),
    "an empty key": ({"key": ""}, "key"),
    "a key with a NUL": ({"key": "a\0b"}, "key"),
    "a key of 257 characters": ({"key": "k" * 257}, "key"),
    "a type of 129 characters": ({"type": "t" * 129}, "type"),
    "an id that is none": ({"id": "job1"}, "id"),
    "a field that does not exist": ({"prio": 1}, "prio"),
    "a payload that is no object": ({"payload": [1]}, "payload"),
    "a type that cannot be one": ({"type": "Nope!"}, "type"),
    "no type": ({"type": None}, "type"),
    "an unknown choice": ({"on_conflict": "merge"}, "on_conflict"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_and_nothing_is_stored(api: httpx2.Client, what: str) -> None:
    change, field = WRONG[what]
    answer = api.post("/jobs", json={"type": "add", "payload": {"a": 1}} | change)
    assert answer.status_code == 400, answer.text
    problem = answer.json()
    assert problem["errors"][0]["field"] == field
    assert problem["errors"][0]["allowed"]
    assert stored(api) == 0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/jobs", {"payload": {"a": 1}}, "type"),
        ("/jobs/batch", {"jobs": [{"type": "add", "payload": {"a": 1}}, {}]}, "jobs[1].type"),
    ],
)
def test_a_field_that_is_missing_is_said_to_be_missing(
    api: httpx2.Client, path: str, body: dict[str, Any], field: str
) -> None:
    answer = api.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["detail"] == f"{field} is missing"
    assert answer.json()["errors"] == [{"field": field, "allowed": "given"}]
    assert stored(api) == 0


def test_unknown_types_and_payloads_that_do_not_fit_are_refused(api: httpx2.Client) -> None:
    unknown = post(api, type="nope", payload={})
    assert (unknown.status_code, unknown.json()["type"]) == (400, "urn:windlass:problem:unknown-type")
    assert "add, mail.send, poison" in unknown.json()["detail"]
    for payload in ({}, {"a": "x"}, {"a": 1, "c": 2}, {"a": 1, "b": None}):
        answer = post(api, type="add", payload=payload)
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:windlass:problem:invalid-payload")
    assert stored(api) == 0


@pytest.mark.parametrize(
    "text",
    [
        b'{"type": "mail.send", "payload": {"to": "a\\u0000b"}}',
        b'{"type": "mail.send", "payload": {"to": "\\ud800"}}',
        b'{"type": "mail.send", "payload": {"to": NaN}}',
        b'{"type": "mail.send", "payload": {"to": "a", "to": "b"}}',
        b'{"type": "mail.send", "payload": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
        b'{"type": "mail.send"',
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"type": "add", "payload": {"a": 1e999}}',
    ],
)
def test_json_that_one_store_would_refuse_is_refused_before_any(api: httpx2.Client, text: bytes) -> None:
    answer = api.post("/jobs", content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert stored(api) == 0


def test_a_body_is_json_and_says_so(api: httpx2.Client) -> None:
    text = json.dumps({"type": "add", "payload": {"a": 1}})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = api.post("/jobs", content=text, headers={"content-type": kind})
        assert answer.status_code == 415
    assert stored(api) == 0


def test_sixty_four_kilobytes_are_the_limit(api: httpx2.Client) -> None:
    envelope = len(json.dumps({"to": "a", "body": ""}, separators=(",", ":")))
    fits = post(api, type="mail.send", payload={"to": "a", "body": "x" * (65_536 - envelope)})
    assert fits.status_code == 201
    over = post(api, type="mail.send", payload={"to": "a", "body": "x" * (65_537 - envelope)})
    assert (over.status_code, "65536 bytes" in over.json()["detail"]) == (413, True)
    huge = post(api, type="mail.send", payload={"to": "a", "body": "x" * 2_000_000})
    assert huge.status_code == 413
    assert stored(api) == 1


def test_a_batch_is_stored_whole_or_not_at_all(api: httpx2.Client) -> None:
    jobs: list[dict[str, Any]] = [{"type": "add", "payload": {"a": n}} for n in range(100)]
    answer = api.post("/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 201
    ids = [job["id"] for job in answer.json()["jobs"]]
    assert [api.get(f"/jobs/{job_id}").json()["payload"]["a"] for job_id in ids[::33]] == [0, 33, 66, 99]
    jobs[99] = {"type": "add", "payload": {"a": "x"}}
    bad = api.post("/jobs/batch", json={"jobs": jobs})
    assert (bad.status_code, bad.json()["index"]) == (400, 99)
    jobs[99] = {"type": "add", "payload": {"a": 1}, "priority": 99}
    worse = api.post("/jobs/batch", json={"jobs": jobs})
    assert (worse.status_code, worse.json()["errors"][0]["field"]) == (400, "jobs[99].priority")
    for wrong in ([], [jobs[0]] * 101):
        assert api.post("/jobs/batch", json={"jobs": wrong}).status_code == 400
    assert stored(api) == 100


def test_a_batch_with_one_key_can_be_sent_again(api: httpx2.Client) -> None:
    jobs = [{"type": "add", "payload": {"a": n}} for n in range(3)]
    send = {"json": {"jobs": jobs}, "headers": {"Idempotency-Key": "night"}}
    first, again = (api.post("/jobs/batch", **send) for _ in range(2))  # type: ignore[arg-type]
    assert (first.status_code, again.status_code) == (201, 200)
    assert [job["id"] for job in first.json()["jobs"]] == [job["id"] for job in again.json()["jobs"]]


@pytest.mark.parametrize("keyed", ["request", "jobs"])
def test_a_named_batch_that_is_sent_again_is_the_same_batch(api: httpx2.Client, keyed: str) -> None:
    own = keyed == "jobs"
    jobs = [{"type": "add", "payload": {"a": n}} | ({"key": f"k{n}"} if own else {}) for n in range(3)]
    headers = {} if own else {"Idempotency-Key": "night"}
    first, again = (
        api.post("/jobs/batch", json={"jobs": jobs, "batch": "b"}, headers=headers) for _ in range(2)
    )
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["batch"] == first.json()["batch"]
    assert api.get(f"/batches/{again.json()['batch']}").json()["total"] == 3
    # Without any key it is another one.
    plain = {"jobs": [{"type": "add", "payload": {"a": 1}}], "batch": "b"}
    assert len({api.post("/jobs/batch", json=plain).json()["batch"] for _ in range(2)}) == 2
    # A job's key that reads as the request's did is another matter.
    other = {"jobs": [{"type": "add", "payload": {"a": 1}, "key": "night"}], "batch": "c"}
    assert api.post("/jobs/batch", json=other).status_code == 201


def test_the_progress_of_a_named_batch_can_be_asked(house: House, api: httpx2.Client) -> None:
    jobs = [{"type": "add", "payload": {"a": n}} for n in range(4)]
    jobs.append({"type": "poison", "payload": {"n": 1}})
    batch = api.post("/jobs/batch", json={"jobs": jobs, "batch": "night"}).json()["batch"]
    before = api.get(f"/batches/{batch}").json()
    assert (before["name"], before["total"], before["ended"], before["states"]) == (
        "night",
        5,
        0,
        {"pending": 5},
    )
    with house.queue.worker():
        for job in api.get("/jobs").json()["jobs"]:
            assert api.get(f"/jobs/{job['id']}", params={"wait": "60s"}).json()["finished_at"]
    assert api.get(f"/batches/{batch}").json()["states"] == {"completed": 4, "dead": 1}
    assert api.get("/batches/nix").status_code == 404


def test_one_waits_for_the_end_of_a_job(house: House, api: httpx2.Client) -> None:
    job_id = add(api)
    assert api.get(f"/jobs/{job_id}", params={"wait": "100ms"}).json()["state"] == "pending"
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(api.get, f"/jobs/{job_id}", params={"wait": "60s"}) for _ in range(8)]
        with house.queue.worker():
            assert {each.result().json()["state"] for each in waiting} == {"completed"}
    assert api.get(f"/jobs/{job_id}").json()["result"] == 1
    assert api.get(f"/jobs/{job_id}", params={"wait": "2m"}).status_code == 400


def test_lists_are_filtered_and_paged(api: httpx2.Client) -> None:
    ids = [add(api, tenant="acme" if n % 2 else "bell") for n in range(5)]
    assert [job["id"] for job in api.get("/jobs").json()["jobs"]] == ids[::-1]
    page = api.get("/jobs", params={"limit": 2, "tenant": "bell"}).json()
    assert [job["id"] for job in page["jobs"]] == [ids[4], ids[2]]
    rest = api.get("/jobs", params={"limit": 2, "tenant": "bell", "cursor": page["next"]}).json()
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == ([ids[0]], None)
    assert len(api.get("/jobs", params={"where": "payload.a=1", "state": "due"}).json()["jobs"]) == 5
    for wrong in (
        {"state": "odd"},
        {"limit": 0},
        {"cursor": "!"},
        {"page": 1},
        {"where": "a=1"},
        {"older_than": "x"},
    ):
        answer = api.get("/jobs", params=wrong)
        assert answer.status_code == 400, wrong
        assert answer.json()["errors"][0]["allowed"]


def test_a_waiting_job_is_changed_and_cancelled_and_an_ended_one_is_not(api: httpx2.Client) -> None:
    job_id = add(api, delay="1h")
    changed = api.patch(f"/jobs/{job_id}", json={"priority": 1, "delay": 5, "payload": {"a": 7}})
    assert (changed.status_code, changed.json()) == (200, {"id": job_id, "state": "pending", "done": True})
    job = api.get(f"/jobs/{job_id}").json()
    assert (job["priority"], job["payload"]) == (1, {"a": 7})
    for wrong in ({}, {"priority": 11}, {"payload": {"a": "x"}}, {"state": "dead"}):
        assert api.patch(f"/jobs/{job_id}", json=wrong).status_code == 400
    assert api.post(f"/jobs/{job_id}/cancel").json() == {"id": job_id, "state": "cancelled", "done": True}
    for refused in (api.post(f"/jobs/{job_id}/cancel"), api.patch(f"/jobs/{job_id}", json={"priority": 1})):
        assert (refused.status_code, refused.json()["job"]) == (409, job_id)
    for name in ("nix", "%00", "../x", "a" * 3000):
        assert api.post(f"/jobs/{name}/cancel").status_code == 404


def test_a_full_queue_takes_no_more_and_says_when_to_come_again(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue) as house:
        queue.store.set_setting("*.soft_depth", "10")
        api = house.caller()
        nine = [{"type": "add", "payload": {"a": n}} for n in range(9)]
        assert api.post("/jobs/batch", json={"jobs": nine}).status_code == 201
        whole = api.post("/jobs/batch", json={"jobs": nine})
        assert (whole.status_code, int(whole.headers["retry-after"]) > 0) == (429, True)
        assert [post(api, type="add", payload={"a": 1}).status_code for _ in range(2)] == [201, 429]
        assert stored(api) == 10


def test_the_depth_that_operators_set_is_the_servers_too(house: House, api: httpx2.Client) -> None:
    house.queue.store.set_setting("add.hard_depth", "5")
    four = [{"type": "add", "payload": {"a": n}} for n in range(4)]
    assert api.post("/jobs/batch", json={"jobs": four}).status_code == 201
    named = api.post("/jobs/batch", json={"jobs": four, "batch": "night"})
    for refused in (named, api.post("/jobs/batch", json={"jobs": four})):
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert refused.json()["type"].endswith(":queue-full")
        assert "hard_depth" in refused.json()["detail"]
    assert [post(api, type="add", payload={"a": 1}).status_code for _ in range(2)] == [201, 429]
    assert post(api, type="mail.send", payload={"to": "a"}).status_code == 201
    assert stored(api) == 6


def test_there_is_one_job_of_a_unique_name(api: httpx2.Client) -> None:
    job = {"type": "add", "payload": {"a": 1}, "unique": "sync:1"}
    first = post(api, **job)
    again = post(api, **job)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"created": False}
    refused = post(api, **job, on_unique="error")
    assert (refused.status_code, refused.json()["job"]) == (409, first.json()["id"])
    assert refused.json()["type"].endswith(":unique-conflict")
    changed = post(api, **job | {"payload": {"a": 2}}, on_unique="replace", until="start")
    assert changed.json()["id"] == first.json()["id"]
    assert api.get(f"/jobs/{first.json()['id']}").json()["payload"] == {"a": 2}
    other = post(api, **job | {"type": "mail.send", "payload": {"to": "a"}})
    assert other.status_code == 409
    batch = api.post("/jobs/batch", json={"jobs": [job, job | {"unique": "sync:2"}]}).json()
    assert [each["created"] for each in batch["jobs"]] == [False, True]
    for wrong in ({"unique": ""}, {"unique": None, "until": "start"}, {"on_unique": "wait"}):
        assert post(api, **job | wrong).status_code == 400, wrong


def test_a_job_waits_for_those_that_it_depends_on(house: House, api: httpx2.Client) -> None:
    pair = [
        {"type": "add", "payload": {"a": 1}, "key": "first"},
        {"type": "add", "payload": {"a": 2}, "key": "then", "depends_on": ["first"]},
    ]
    first, then = api.post("/jobs/batch", json={"jobs": pair}).json()["jobs"]
    assert api.get("/jobs/then").json()["waits_for"] == [first["id"]]
    last = post(api, type="add", payload={"a": 3}, depends_on=["then"], on_dead="cancel").json()["id"]
    house.ops.bury(then["id"])
    assert api.get(f"/jobs/{last}").json()["state"] == "cancelled"
    assert post(api, type="add", payload={"a": 1}, depends_on=["nix"]).status_code == 404
    wrong = api.post("/jobs/batch", json={"jobs": [pair[0] | {"key": "x"}, pair[1] | {"on_dead": "cry"}]})
    assert (wrong.status_code, "jobs[1].on_dead" in wrong.json()["detail"]) == (400, True)


def test_what_is_not_there_is_a_problem_too(api: httpx2.Client) -> None:
    assert api.get("/nothing").json()["status"] == 404
    wrong = api.put("/jobs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    assert api.post("/jobs", json={"type": "shell", "payload": {"command": "true"}}).status_code == 403


def test_a_key_may_have_any_letter_in_it(api: httpx2.Client) -> None:
    for key in ("order/42", "a%2Fb", "ü/?#/cancel", "../x"):
        job_id = add(api, key=key)
        path = f"/jobs/{quote(key, safe='')}"
        assert api.get(path).json()["id"] == job_id
        assert api.post(f"{path}/cancel").json()["id"] == job_id
    assert api.get("/jobs/order%2F43").status_code == 404


def test_a_known_batch_takes_no_other_jobs(api: httpx2.Client) -> None:
    batch = {"batch": "b", "batch_id": "0190a5a0-0000-7000-8000-000000000001"}
    job = {"type": "add", "payload": {"a": 1}, "key": "k"}
    assert api.post("/jobs/batch", json=batch | {"jobs": [job]}).status_code == 201
    again = api.post("/jobs/batch", json=batch | {"jobs": [job]})
    assert (again.status_code, again.json()["jobs"][0]["created"]) == (200, False)
    other = api.post("/jobs/batch", json=batch | {"jobs": [job, {"type": "add", "payload": {"a": 2}}]})
    assert (other.status_code, other.json()["type"]) == (409, "urn:windlass:problem:id-conflict")
    assert stored(api) == 1
    nameless = api.post("/jobs/batch", json={"jobs": [job], "batch_id": batch["batch_id"]})
    assert (nameless.status_code, nameless.json()["errors"][0]["field"]) == (400, "batch_id")


def test_one_batch_that_is_sent_twice_at_once_is_stored_once(house: House) -> None:
    body = {
        "batch": "b",
        "batch_id": "0190a5a0-0000-7000-8000-000000000002",
        "jobs": [{"type": "add", "payload": {"a": n}, "key": f"k{n}"} for n in range(20)],
    }
    start = threading.Barrier(8)

    def send(api: httpx2.Client) -> int:
        start.wait()
        return api.post("/jobs/batch", json=body).status_code

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, [house.caller() for _ in range(8)]))
    assert set(answers) <= {200, 201}
    assert stored(house.caller()) == 20
    assert house.caller().get(f"/batches/{body['batch_id']}").json()["total"] == 20


def test_a_time_beyond_the_calendar_is_refused(api: httpx2.Client) -> None:
    name = add(api)
    for moment in (
        "0001-01-01T00:00:00+12:00",
        "9999-12-31T23:59:59-12:00",
        "9999-12-31T23:59:59.999999+00:00",
    ):
        answer = api.patch(f"/jobs/{name}", json={"run_at": moment})
        sent = post(api, type="add", payload={"a": 1}, run_at=moment)
        for refused in (answer, sent):
            [wrong] = refused.json()["errors"]
            assert (refused.status_code, wrong["field"], wrong["value"]) == (400, "run_at", moment)


def test_a_key_in_a_header_is_the_same_key_as_in_a_field(api: httpx2.Client) -> None:
    body = json.dumps({"type": "add", "payload": {"a": 1}}).encode()
    headers = {b"Idempotency-Key": "für-1".encode(), b"Content-Type": b"application/json"}
    sent = api.post("/jobs", content=body, headers=headers)
    assert (sent.status_code, sent.json()["key"]) == (201, "für-1")
    assert add(api, key="für-1") == sent.json()["id"]


def test_a_page_of_large_jobs_is_shorter_and_nothing_is_left_out(house: House, api: httpx2.Client) -> None:
    body = "x" * 60_000
    drafts = [house.queue.draft("mail.send", {"to": str(n), "body": body}) for n in range(230)]
    ids = [handle.id for handle in house.queue.enqueue_many(drafts)]
    first = api.get("/jobs", params={"limit": 1000}).json()
    assert 0 < len(first["jobs"]) < 230
    rest = api.get("/jobs", params={"limit": 1000, "cursor": first["next"]}).json()
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == ids[::-1]
    assert rest["next"] is None


def spoken(house: House, *pieces: bytes) -> tuple[int, dict[str, Any]]:
    """The answer to a request as it stands on the wire, sent in these pieces."""
    host, _, port = house.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            line.sendall(piece)
            if piece is not pieces[-1]:
                # So that it is read alone; the answer is the same if it is not.
                threading.Event().wait(0.02)
        with line.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            lines = iter(answer.readline, b"\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
            }
            return status, json.loads(answer.read(int(headers[b"content-length"])))


@pytest.mark.parametrize(
    ("status", "path", "more", "body"),
    [
        (201, "", "", '{"type": "add", "payload": {"a": 1}, "priority": 7, "tenant": "acme"}'),
        (200, "", "Idempotency-Key: known\r\n", '{"type": "add", "payload": {"a": 1}}'),
        (409, "", "Idempotency-Key: known\r\n", '{"type": "add", "payload": {"a": 2}}'),
        (400, "", "", '{"type": "add", "payload": {"a": "x"}}'),
        (400, "", "", '{"type": "add", "payload": {"a": 1}, "priority": 99}'),
        (400, "", "", '{"type": "add"'),
        (400, "", "", ""),
        (400, "?x=1", "", '{"type": "add", "payload": {"a": 1}}'),
        (401, "", "Authorization: Bearer wl_00000000_nobody\r\n", '{"type": "add", "payload": {"a": 1}}'),
        (403, "", "Origin: http://elsewhere\r\n", '{"type": "add", "payload": {"a": 1}}'),
    ],
)
def test_a_post_that_comes_whole_is_answered_as_one_in_pieces(
    house: House, api: httpx2.Client, status: int, path: str, more: str, body: str
) -> None:
    add(api, key="known")
    head = f"POST /api/v1/jobs{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body.encode()
    told = [spoken(house, whole), spoken(house, whole[:-5], whole[-5:])]
    assert [answer[0] for answer in told] == [status, status]
    first, second = (answer[1] for answer in told)
    if status == 201:
        assert first.pop("id") != second.pop("id")
    assert first == second


def test_a_slash_that_is_part_of_a_name_does_not_part_the_path_of_a_post(house: House) -> None:
    body = '{"type": "add", "payload": {"a": 1}}'
    head = "POST /api/v1%2Fjobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    assert [spoken(house, *pieces)[0] for pieces in ([whole], [whole[:-5], whole[-5:]])] == [404, 404]


def test_posts_that_come_in_one_piece_are_answered_in_their_order(house: House, api: httpx2.Client) -> None:
    one = '{"type": "add", "payload": {"a": %d}, "key": "k%d"}'
    bodies = [one % (n, n) for n in range(3)]
    head = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    pieces = "".join(f"{head}Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies)
    host, _, port = house.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as line:
        line.sendall(pieces.encode())
        read = b"".join(one_message(line) for _ in bodies)
    assert [read.index(f'"key":"k{n}"'.encode()) for n in range(3)] == sorted(
        read.index(f'"key":"k{n}"'.encode()) for n in range(3)
    )
    assert stored(api) == 3
