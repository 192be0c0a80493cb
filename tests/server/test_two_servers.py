"""Does a second server on the same PostgreSQL serve everything that the first does?"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.conformance.conftest import NEW
from tests.server.conftest import House, serving, shop
from tests.waiting import PATIENCE, until
from windlass import JobState

Pair = tuple[House, House]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two servers, each with connections of its own."""
    engine = next(name for name in NEW if name != "sqlite")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(NEW[engine]())
        one, other = (stack.enter_context(serving(stack.enter_context(shop(url)))) for _ in range(2))
        yield one, other


@pytest.fixture
def here(pair: Pair) -> httpx2.Client:
    return pair[0].caller()


@pytest.fixture
def there(pair: Pair) -> httpx2.Client:
    return pair[1].caller()


def claim(api: httpx2.Client, **wish: Any) -> list[dict[str, Any]]:
    answer = api.post("/leases", json={"worker": "w1", "types": ["add"], **wish})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["leases"]
    return found


def test_a_job_that_came_in_here_is_the_same_there(here: httpx2.Client, there: httpx2.Client) -> None:
    job = {"type": "mail.send", "payload": {"to": "a"}, "key": "mail:1"}
    first = here.post("/jobs", json=job)
    again = there.post("/jobs", json=job)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert there.post("/jobs/mail:1/cancel", json={"why": "enough"}).json()["state"] == "cancelled"
    assert here.get("/jobs/mail:1").json()["state"] == "cancelled"
    entry = here.get("/audit", params={"target": first.json()["id"]}).json()["entries"][0]
    assert (entry["verb"], entry["why"]) == ("cancel", "enough")


def test_a_worker_may_change_servers_between_any_two_requests(
    here: httpx2.Client, there: httpx2.Client
) -> None:
    for number in range(3):
        here.post("/jobs", json={"type": "add", "payload": {"a": number}})
    leases = claim(here, limit=2, request="r1")
    # The answer to that was lost, and the other server is asked the same: it gives the same.
    again = claim(there, limit=2, request="r1")
    assert [each["lease"] for each in leases] == [each["lease"] for each in again]
    [third] = claim(there, limit=2, request="r2")
    assert third["lease"] not in {each["lease"] for each in leases}
    one, two = (each["lease"] for each in leases)
    beaten = there.post("/workers/w1/beat", json={"leases": [one, two]}).json()
    assert {each["lease"] for each in beaten["kept"]} == {one, two}
    assert there.post(f"/leases/{one}/complete", json={"result": 1}).json()["outcome"] == "done"
    assert here.post(f"/leases/{one}/complete", json={"result": 1}).json()["outcome"] == "repeated"
    assert there.post(f"/leases/{two}/release").json()["outcome"] == "released"
    assert here.post(f"/leases/{third['lease']}/release").json()["outcome"] == "released"
    # It has one row, whichever server it spoke with.
    assert (
        len([each for each in here.get("/workers").json()["workers"] if each["id"].startswith("~w1~")]) == 1
    )
    for each in there.get("/jobs", params={"type": "add", "state": "pending"}).json()["jobs"]:
        here.post(f"/jobs/{each['id']}/cancel")


def test_a_large_claim_that_finds_few_jobs_is_known_to_the_other_server_too(
    here: httpx2.Client, there: httpx2.Client
) -> None:
    here.post("/jobs", json={"type": "add", "payload": {"a": 1}})
    wish = {"worker": "w2", "limit": 50, "request": "r1"}
    [lease] = claim(here, **wish)
    [again] = claim(there, **wish)
    assert again["lease"] == lease["lease"]
    assert there.post(f"/leases/{lease['lease']}/complete").json()["outcome"] == "done"


def test_a_claim_that_comes_to_both_at_one_moment_is_served_once(pair: Pair) -> None:
    """Also that of a worker which neither of them knows yet."""
    for number in range(5):
        jobs = [pair[0].queue.enqueue("add", {"a": each}) for each in range(4)]
        start = threading.Barrier(2)

        def ask(house: House, start: threading.Barrier = start, worker: str = f"new{number}") -> set[str]:
            start.wait(PATIENCE)
            found = claim(house.caller(), worker=worker, limit=2, request="r1")
            return {each["lease"] for each in found}

        with ThreadPoolExecutor(2) as threads:
            one, other = threads.map(ask, pair)
        assert one == other
        assert len(one) == 2
        rows = [each.id for each in pair[0].queue.store.workers() if each.id.startswith(f"~new{number}~")]
        assert rows == [f"~new{number}~1"]
        for lease in one:
            assert pair[1].caller().post(f"/leases/{lease}/complete").json()["outcome"] == "done"
        for job in jobs:
            if job.state is not JobState.COMPLETED:
                pair[0].ops.cancel(job.id)


def test_one_waits_there_for_what_ends_here(pair: Pair, there: httpx2.Client) -> None:
    here = pair[0]
    job = here.queue.enqueue("mail.send", {"to": "b"})
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(
        target=lambda: found.append(there.get(f"/jobs/{job.id}", params={"wait": "60s"}).json())
    )
    waiting.start()
    here.ops.cancel(job.id)
    waiting.join(PATIENCE)
    assert found[0]["state"] == "cancelled"


def test_what_an_operator_sets_here_holds_there(here: httpx2.Client, there: httpx2.Client) -> None:
    assert here.post("/types/poison/pause", json={"why": "later"}).status_code == 200
    there.post("/jobs", json={"type": "poison", "payload": {"n": 1}})
    # A server that follows the store's word learns of it with its next look, within a second or two.
    [kind] = [each for each in there.get("/types").json()["types"] if each["name"] == "poison"]
    assert kind["paused"]["why"] == "later"
    assert there.post("/types/poison/resume").json()["resumed"] is True
    assert here.post("/types/poison/resume").json()["resumed"] is False
    made = here.post("/schedules", json={"name": "n", "type": "add", "payload": {"a": 1}, "every": "1h"})
    assert made.status_code == 201
    assert there.delete("/schedules/n").json() == {"name": "n", "removed": True}


def test_a_key_that_is_made_here_opens_there_and_one_that_ends_here_is_soon_refused_there() -> None:
    engine = next(name for name in NEW if name != "sqlite")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(NEW[engine]())
        one, other = (stack.enter_context(serving(stack.enter_context(shop(url)))) for _ in range(2))
        made = one.caller().post("/keys", json={"name": "root", "roles": ["admin"]}).json()
        root = other.caller(made["key"])
        billed = root.post("/keys", json={"name": "billing", "roles": ["producer"]}).json()
        billing = one.caller(billed["key"])
        assert billing.get("/jobs").status_code == 200
        assert root.delete(f"/keys/{billed['id']}").status_code == 200
        until(lambda: billing.get("/jobs").status_code != 200, "the key is refused")
        assert billing.get("/jobs").status_code == 401
