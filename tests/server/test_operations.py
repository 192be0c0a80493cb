"""Does an action on many jobs go on without its caller, and without its server?"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.server.conftest import House, serving, shop
from tests.waiting import until
from windlass.job import JobState
from windlass.ops.remote import verbs_on
from windlass.queue import Client
from windlass.store.jobs import Filter

ASYNC = {"Prefer": "wait=5, respond-async"}
CANCEL: dict[str, Any] = {"action": "cancel", "filter": {"type": ["add"]}}


def enqueue(house: House, count: int, **fields: Any) -> list[str]:
    return [house.queue.enqueue("add", {"a": number}, **fields).id for number in range(count)]


def started(api: httpx2.Client, **fields: Any) -> str:
    answer = api.post("/jobs/actions", json=CANCEL | fields, headers=ASYNC)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/api/v1/operations/{answer.json()['id']}"
    assert answer.headers["preference-applied"] == "respond-async"
    return str(answer.json()["id"])


def operation(api: httpx2.Client, operation_id: str) -> dict[str, Any]:
    answer = api.get(f"/operations/{operation_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_who_does_not_wait_is_answered_at_once_and_can_look(house: House) -> None:
    enqueue(house, 250)
    api = house.caller()
    begun = started(api, why="wrong text")
    until(lambda: operation(api, begun)["state"] == "done", "it ends")
    found = operation(api, begun)
    assert (found["expected"], found["reached"]["matched"], found["reached"]["done"]) == (250, 250, 250)
    assert (found["action"], found["filter"]["types"], found["why"]) == ("cancel", ["add"], "wrong text")
    assert [each["id"] for each in api.get("/operations").json()["operations"]] == [begun]
    entries = api.get("/audit", params={"target": begun}).json()["entries"]
    assert [(each["verb"], each["kind"]) for each in entries] == [
        ("end", "operation"),
        ("start", "operation"),
    ]
    assert entries[0]["after"]["done"] == 250
    assert api.get("/operations/nix").status_code == 404


def test_who_waits_gets_the_counts_as_before_and_the_operation(house: House) -> None:
    enqueue(house, 3)
    done = house.caller().post("/jobs/actions", json=CANCEL).json()
    assert (done["verb"], done["matched"], done["done"], done["state"]) == ("cancel", 3, 3, "done")
    assert operation(house.caller(), done["operation"])["reached"]["done"] == 3


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("times", [{}, {"delay": "1h", "run_at": "2030-01-01T00:00:00Z"}])
def test_a_wrong_time_is_refused_before_anything_is_stored(
    house: House, times: dict[str, str], *, dry_run: bool
) -> None:
    enqueue(house, 1, delay=60)
    api = house.caller()
    body = {"action": "reschedule", "filter": {"type": ["add"]}, "dry_run": dry_run, **times}
    refused = api.post("/jobs/actions", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "delay"), refused.text
    assert api.get("/operations").json()["operations"] == []


def test_a_caller_who_hangs_up_does_not_stop_it(house: House) -> None:
    jobs = enqueue(house, 30)
    with pytest.raises(httpx2.TimeoutException):
        house.caller().post("/jobs/actions", json=CANCEL | {"rate": 20}, timeout=0.5)
    until(
        lambda: all(house.queue.get(each).state is JobState.CANCELLED for each in jobs), "all are cancelled"
    )


def test_it_goes_on_when_the_server_is_back(store_url: str) -> None:
    with shop(store_url) as queue:
        with serving(queue) as house:
            jobs = enqueue(house, 60)
            begun = started(house.caller(), rate=20)
            until(lambda: operation(house.caller(), begun)["reached"]["done"] > 0, "it begins")
        before = queue.store.operation(begun)
        assert (before.state, before.reached.done < 60) == ("running", True)
        with serving(queue) as house:
            until(lambda: operation(house.caller(), begun)["state"] == "done", "it ends")
            assert operation(house.caller(), begun)["reached"]["done"] == 60
            assert {house.queue.get(each).state for each in jobs} == {JobState.CANCELLED}
            cancelled = house.ops.audit(verb="cancel", limit=1000).entries
            assert sorted(entry.target for entry in cancelled) == sorted(jobs)


def test_it_can_be_paused_resumed_and_stopped(house: House) -> None:
    jobs, api = enqueue(house, 40), house.caller()
    begun = started(api, rate=10)
    steered = [
        api.post(f"/operations/{begun}/{verb}", json={"why": "look"}).json()["state"]
        for verb in ("pause", "pause", "resume", "stop", "stop")
    ]
    assert steered == ["paused", "paused", "running", "stopped", "stopped"]
    late = api.post(f"/operations/{begun}/resume")
    assert (late.status_code, late.json()["detail"]) == (
        409,
        f"cannot resume operation {begun}: it is stopped",
    )
    assert api.post("/operations/nix/stop").status_code == 404
    assert any(house.queue.get(each).state is JobState.PENDING for each in jobs)


def test_the_same_request_is_the_same_operation(house: House) -> None:
    enqueue(house, 4)
    keyed = house.caller(**{"Idempotency-Key": "all"})
    assert started(keyed) == started(keyed)
    assert started(keyed) != started(keyed, limit=2)


def test_operators_alone_may_look_and_steer_and_a_tenants_key_its_own(locked: House) -> None:
    enqueue(locked, 2, tenant="acme")
    enqueue(locked, 2, tenant="other")
    operator = locked.caller(locked.key("ann", "operator"))
    theirs = locked.caller(locked.key("bob", "operator", tenant="acme"))
    everything = started(operator, rate=0.01)
    own = started(theirs, rate=0.01)
    assert operation(theirs, own)["filter"]["tenant"] == "acme"
    assert [each["id"] for each in theirs.get("/operations").json()["operations"]] == [own]
    assert {each["id"] for each in operator.get("/operations").json()["operations"]} == {own, everything}
    for refused in (theirs.get(f"/operations/{everything}"), theirs.post(f"/operations/{everything}/stop")):
        assert refused.status_code == 404
    assert theirs.post(f"/operations/{own}/stop").json()["state"] == "stopped"
    viewer = locked.caller(locked.key("eve", "viewer"))
    assert operation(viewer, everything)["by"].startswith("ann (key ")
    assert viewer.post(f"/operations/{everything}/stop").status_code == 403
    producer = locked.caller(locked.key("shop", "producer"))
    assert producer.get("/operations").status_code == 403


def test_the_same_verbs_over_http(house: House) -> None:
    enqueue(house, 20)
    with Client(house.url) as client:
        operations = verbs_on(client.front).operations
        counted = operations.count("cancel", Filter(types=("add",)))
        assert (counted.matched, counted.dry_run) == (20, True)
        begun = operations.start("cancel", Filter(types=("add",)), rate=5)
        assert operations.pause(begun.id).state == "paused"
        assert operations.resume(begun.id).state == "running"
        assert operations.stop(begun.id, why="enough").state == "stopped"
        assert operations.follow(begun.id) == operations.show(begun.id)
        assert [each.id for each in operations.list()] == [begun.id]
        rest = operations.start("cancel", Filter(types=("add",)))
        assert operations.follow(rest.id).state == "done"
