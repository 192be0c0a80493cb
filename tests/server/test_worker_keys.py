"""What does a worker's key get? Jobs of the types that it may use, whatever it sends along."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.server.conftest import House


def claim(api: httpx2.Client, job_type: str, **more: Any) -> list[dict[str, Any]]:
    answer = api.post("/leases", json={"worker": "w1", "types": [job_type]} | more)
    assert answer.status_code == 200, answer.text
    leases: list[dict[str, Any]] = answer.json()["leases"]
    return leases


def two_keys(house: House) -> tuple[httpx2.Client, httpx2.Client]:
    """Two keys of one service, each for a type of its own."""
    mail = house.caller(house.key("fleet", "worker", types=("mail.send",)))
    add = house.caller(house.key("fleet", "worker", types=("add",)))
    return mail, add


def state(house: House, job_id: str) -> str:
    return house.queue.get(job_id).state.value


def test_a_lost_answer_is_repeated_only_for_types_that_the_key_may_use(locked: House) -> None:
    mail, add = two_keys(locked)
    job = locked.queue.enqueue("mail.send", {"to": "canary@example.org"})
    [lease] = claim(mail, "mail.send", request="r1")
    asked: list[dict[str, Any]] = [{"holding": []}, {"request": "r1"}, {"request": "r1", "holding": []}]
    for more in asked:
        assert claim(add, "add", **more) == []
    # Being asked by the wrong key does not count as a repeat, which would end the lease in the end.
    for _ in range(5):
        assert claim(add, "add", holding=[]) == []
    assert state(locked, job.id) == "processing"
    [again] = claim(mail, "mail.send", request="r1")
    assert again["lease"] == lease["lease"]


def test_the_name_of_another_services_worker_is_of_no_use(locked: House) -> None:
    mail, _ = two_keys(locked)
    other = locked.caller(locked.key("other", "worker"))
    locked.queue.enqueue("mail.send", {"to": "a"})
    [lease] = claim(mail, "mail.send")
    assert claim(other, "mail.send", holding=[]) == []
    assert claim(other, "mail.send", holding=[lease["lease"]]) == []


def test_a_beat_keeps_and_ends_nothing_of_types_that_the_key_may_not_use(locked: House) -> None:
    mail, add = two_keys(locked)
    job = locked.queue.enqueue("mail.send", {"to": "a"})
    [lease] = claim(mail, "mail.send")
    beat = add.post("/workers/w1/beat", json={"leases": [lease["lease"]], "lease": "3600s"}).json()
    assert (beat["kept"], beat["lost"]) == ([], [lease["lease"]])
    refused = add.post("/workers/w1/beat", json={"stopping": True})
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:windlass:problem:not-allowed")
    assert "mail.send" not in refused.text, "the key learns no type that it may not use"
    [row] = [each for each in locked.queue.store.workers() if each.id.startswith("fleet~w1~")]
    assert row.state == "running"
    assert state(locked, job.id) == "processing"
    assert mail.post("/workers/w1/beat", json={"leases": [lease["lease"]]}).json()["lost"] == []


def test_a_lease_of_another_type_is_not_there(locked: House) -> None:
    mail, add = two_keys(locked)
    job = locked.queue.enqueue("mail.send", {"to": "canary@example.org"})
    [lease] = claim(mail, "mail.send")
    for path, body in SETTLING:
        answer = add.post(f"/leases/{lease['lease']}/{path}", json=body)
        assert answer.status_code == 404, answer.text
        assert "canary" not in answer.text
    assert state(locked, job.id) == "processing"


def test_a_lease_of_another_service_is_lost_to_who_found_its_token(locked: House) -> None:
    mail, _ = two_keys(locked)
    other = locked.caller(locked.key("other", "worker"))
    job = locked.queue.enqueue("mail.send", {"to": "canary@example.org"})
    [lease] = claim(mail, "mail.send")
    for path, body in SETTLING:
        answer = other.post(f"/leases/{lease['lease']}/{path}", json=body)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:windlass:problem:lease-lost")
        assert "canary" not in answer.text
    assert other.post("/workers/w1/beat", json={"leases": [lease["lease"]]}).status_code == 409
    assert state(locked, job.id) == "processing"
    assert mail.post(f"/leases/{lease['lease']}/complete", json={}).json()["outcome"] == "done"


def test_a_token_of_another_job_writes_nothing(locked: House) -> None:
    mail, _ = two_keys(locked)
    jobs = [locked.queue.enqueue("mail.send", {"to": to}) for to in "ab"]
    first, second = claim(mail, "mail.send", limit=2)
    crossed = f"{first['job']['id']}.{second['lease'].partition('.')[2]}"
    for path, body in SETTLING:
        assert mail.post(f"/leases/{crossed}/{path}", json=body).status_code == 409
    assert {state(locked, job.id) for job in jobs} == {"processing"}


def test_types_outside_of_the_grant_are_refused_together_with_those_inside(locked: House) -> None:
    _, add = two_keys(locked)
    locked.queue.enqueue("add", {"a": 1})
    answer = add.post("/leases", json={"worker": "w1", "types": ["add", "mail.send"]})
    assert answer.status_code == 403
    assert claim(add, "add") != [], "nothing was taken before"


SETTLING: list[tuple[str, dict[str, Any]]] = [
    ("complete", {"result": 1}),
    ("fail", {"message": "x"}),
    ("extend", {"lease": "60s"}),
    ("release", {}),
]
