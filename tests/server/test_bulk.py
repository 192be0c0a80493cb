"""Are up to 10,000 jobs taken by one request, all or none, and once however often they are sent?"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.server.conftest import House
from windlass import Client, KeyConflict, Queue, Refused
from windlass.clock import uuid7
from windlass.errors import QueueFull
from windlass.job import JobState
from windlass.store.jobs import Filter

LINES = {"Content-Type": "application/x-ndjson"}
JOB = {"type": "add", "payload": {"a": 1}}


def bulk(
    api: httpx2.Client, jobs: list[Any], *, headers: dict[str, str] | None = None, **query: str
) -> httpx2.Response:
    """Send jobs, one a line."""
    body = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in jobs)
    return api.post("/jobs/bulk", content=body, params=query, headers=LINES | (headers or {}))


def stored(house: House) -> int:
    return house.queue.store.count(Filter(), limit=100_000)


def many(count: int, **fields: Any) -> list[Any]:
    return [JOB | {"payload": {"a": number}} | fields for number in range(count)]


def test_a_thousand_jobs_are_stored_in_their_order(house: House) -> None:
    answer = bulk(house.caller(), many(1_000))
    assert answer.status_code == 201
    jobs = answer.json()["jobs"]
    assert len({job["id"] for job in jobs}) == stored(house) == 1_000
    assert bytes(house.queue.get(jobs[-1]["id"]).payload) == b'{"a":999}'


def test_one_job_that_is_refused_leaves_none_and_names_its_line(house: House) -> None:
    api = house.caller()
    house.queue.enqueue("add", {"a": 1}, key="taken")
    conflict = bulk(api, [*many(150), JOB | {"key": "taken", "payload": {"a": 2}}])
    assert (conflict.status_code, conflict.json()["index"]) == (409, 150)
    assert conflict.json()["detail"].startswith("line 151: key 'taken' belongs to job ")
    for wrong in ('{"type": "add", "payload": {"a": "x"}}', '{"type": "nobody"}', "{", '{"payload": {}}', ""):
        refused = bulk(api, [*many(2), wrong, *many(1)])
        assert (refused.status_code, refused.json()["index"]) == (400, 2)
        assert refused.json()["detail"].startswith("line 3: ")
    assert stored(house) == 1


def test_a_conflict_within_the_request_names_no_job_that_is_not_there(house: House) -> None:
    twice = [JOB | {"key": "k"}, JOB, JOB | {"key": "k", "payload": {"a": 2}}]
    for path in ("bulk", "batch"):
        api = house.caller()
        answer = bulk(api, twice) if path == "bulk" else api.post("/jobs/batch", json={"jobs": twice})
        problem = answer.json()
        assert (answer.status_code, problem["index"], problem.get("job")) == (409, 2, None)
        assert "is also the key of job 0" in problem["detail"]
    assert stored(house) == 0


@pytest.mark.parametrize(
    ("headers", "fields"), [({"Idempotency-Key": "r1"}, {}), ({}, {"key": "k"}), ({}, {"id": ""})]
)
def test_a_request_that_is_sent_again_makes_no_second_job(
    house: House, headers: dict[str, str], fields: dict[str, str]
) -> None:
    jobs = many(120)
    for number, job in enumerate(jobs):
        job |= {name: f"{value}{number}" if value else uuid7() for name, value in fields.items()}
    first = bulk(house.caller(), jobs, headers=headers)
    again = bulk(house.caller(), jobs, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert [job["id"] for job in again.json()["jobs"]] == [job["id"] for job in first.json()["jobs"]]
    assert stored(house) == 120


def test_a_request_of_many_requests_has_one_batch(house: House) -> None:
    api, name = house.caller(), uuid7()
    for part in range(3):
        answer = bulk(api, many(150), headers={"Idempotency-Key": f"p{part}"}, batch="fan-out", batch_id=name)
        assert (answer.status_code, answer.json()["batch"]) == (201, name)
    again = bulk(api, many(150), headers={"Idempotency-Key": "p2"}, batch_id=name)
    assert again.status_code == 200
    found = api.get(f"/batches/{name}").json()
    assert (found["name"], found["total"], found["states"]["pending"]) == ("fan-out", 450, 450)


def test_a_batch_that_has_ended_takes_no_more_jobs(house: House) -> None:
    api, name = house.caller(), uuid7()
    for job in bulk(api, many(2), batch="b", batch_id=name).json()["jobs"]:
        api.post(f"/jobs/{job['id']}/cancel")
    refused = bulk(api, many(1), batch_id=name)
    assert (refused.status_code, stored(house)) == (409, 2)
    assert "has ended" in refused.json()["detail"]
    assert bulk(api, many(1), batch_id=uuid7()).status_code == 404


def test_a_batch_takes_jobs_of_its_own_service_alone(locked: House) -> None:
    billing = locked.caller(locked.key("billing", "producer"))
    mail = locked.caller(locked.key("mail", "producer"))
    name = uuid7()
    assert bulk(billing, many(2), batch="b", batch_id=name).status_code == 201
    assert bulk(mail, many(2), batch_id=name).status_code == 404
    assert bulk(mail, many(2), batch="b", batch_id=name).status_code == 404
    assert stored(locked) == 2


def test_the_request_is_bounded(house: House) -> None:
    api = house.caller()
    assert bulk(api, many(10_001)).status_code == 413
    assert bulk(api, [JOB, '{"type": "add", "payload": {"a": "' + "x" * 140_000 + '"}}']).status_code == 413
    assert bulk(api, []).status_code == 400
    plain = api.post("/jobs/bulk", json={"jobs": [JOB]})
    assert (plain.status_code, "x-ndjson" in plain.json()["detail"]) == (415, True)
    assert stored(house) == 0


def test_a_bulk_request_counts_as_its_jobs(locked: House) -> None:
    slow = locked.caller(locked.key("slow", "producer", rate=10.0))
    assert bulk(slow, many(200)).status_code == 201
    assert bulk(slow, many(1)).status_code == 429
    assert bulk(locked.caller(locked.key("viewer", "viewer")), many(1)).status_code == 403


def test_a_full_queue_takes_all_or_none(house: House) -> None:
    house.queue.store.set_setting("hard_depth", "100")
    assert bulk(house.caller(), many(150)).status_code == 429
    with Queue(house.url, patience=0.1) as queue:
        drafts = [queue.draft("add", {"a": number}) for number in range(150)]
        with pytest.raises(QueueFull):
            queue.enqueue_many(drafts)
    assert stored(house) == 0


# --- from Python --------------------------------------------------------------------------------


def test_a_refusal_over_http_names_the_draft_by_its_place_in_the_callers_list(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.queue.producer.CHUNK", 3)
    house.queue.enqueue("add", {"a": 1}, key="taken")
    with Client(house.url) as client:
        drafts = [client.draft("add", {"a": number}) for number in range(4)]
        taken = client.draft("add", {"a": 2}, key="taken")
        twins = [client.draft("add", {"a": number}, key="twin") for number in range(2)]
        orphan = client.draft("add", {"a": 2}, depends_on=["nobody"])
        for wrong, index, told in (
            ([taken], 4, "key 'taken' belongs to"),
            (twins, 5, "key 'twin' is also the key of job 4,"),
            ([orphan], 4, "no job has the id or key 'nobody'"),
        ):
            with pytest.raises(Refused, match=f"job {index} of the batch: {told}") as refused:
                client.enqueue_many([*drafts, *wrong])
            assert (refused.value.index, refused.value.stored) == (index, 3)


def test_enqueue_many_over_http_is_all_or_none(house: House) -> None:
    house.queue.enqueue("add", {"a": 1}, key="taken")
    with Client(house.url) as client:
        drafts = [client.draft("add", {"a": number}) for number in range(250)]
        last = client.draft("add", {"a": 2}, key="taken")
        with pytest.raises(KeyConflict, match="job 250 of the batch: key 'taken' belongs to") as refused:
            client.enqueue_many([*drafts, last])
        assert refused.value.index == 250
        assert stored(house) == 1
        done = client.enqueue_many(drafts)
        assert [job.id for job in client.enqueue_many(drafts)] == [job.id for job in done]
    assert stored(house) == 251


def test_a_batch_over_http_holds_a_thousand_jobs(house: House) -> None:
    with Client(house.url) as client:
        with client.batch("fan-out") as batch:
            batch.add(*(client.draft("add", {"a": number}) for number in range(1_000)))
        assert batch.status().total == 1_000
        assert batch.status().counts[JobState.PENDING] == 1_000
        other = client.batch()
        other.then(client.draft("add", {"a": 1}))
        with pytest.raises(Refused, match="takes no `then`"):
            other.__exit__(None, None, None)


def test_the_same_request_of_two_tenants_is_a_batch_of_each(locked: House) -> None:
    callers = [locked.caller(locked.key("shop", "producer", tenant=name)) for name in ("acme", "beta")]
    for path, query in (("/jobs/bulk", {"batch": "n"}), ("/jobs/batch", {})):
        batches = set()
        for api in callers:
            headers = {"Idempotency-Key": f"d{path}"}
            if query:
                answer = bulk(api, [JOB], headers=headers, **query)
            else:
                answer = api.post(path, json={"jobs": [JOB], "batch": "n"}, headers=headers)
            assert answer.status_code == 201, answer.text
            batches.add(answer.json()["batch"])
        assert len(batches) == 2


def test_an_empty_idempotency_key_is_refused(house: House) -> None:
    api, empty = house.caller(), {"Idempotency-Key": ""}
    assert bulk(api, [JOB], headers=empty).status_code == 400
    assert api.post("/jobs/batch", json={"jobs": [JOB]}, headers=empty).status_code == 400
    assert api.post("/jobs", json=JOB, headers=empty).status_code == 400
    assert stored(house) == 0


def test_two_idempotency_keys_are_refused_unless_they_are_the_same(house: House) -> None:
    api = house.caller()
    for path, sent in (("/jobs/batch", {"jobs": [JOB]}), ("/jobs", JOB)):
        two = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        refused = api.post(path, json=sent, headers=two)
        assert refused.status_code == 400
        assert "Idempotency-Key must be one value" in refused.json()["detail"]
    assert stored(house) == 0
    assert api.post("/jobs", json=JOB, headers=[("Idempotency-Key", "a")] * 2).status_code == 201
