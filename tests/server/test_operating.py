"""What can operators do and see over HTTP?"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import msgspec
import pytest

from tests.server.conftest import House, serving, shop
from tests.waiting import PATIENCE, until
from windlass import JobState
from windlass.ops.schedules import ScheduleHistory
from windlass.registry import shell_handler
from windlass.server import waiting


def dead(house: House, count: int = 1) -> list[str]:
    ids = [house.queue.enqueue("add", {"a": n}).id for n in range(count)]
    for job_id in ids:
        house.ops.bury(job_id)
    return ids


def test_the_verbs_move_jobs_as_the_table_of_transitions_says(house: House, api: httpx2.Client) -> None:
    [job_id] = dead(house)
    assert api.post(f"/jobs/{job_id}/cancel").status_code == 409
    replayed = api.post(f"/jobs/{job_id}/replay", json={"payload": {"a": 5}, "why": "typed wrong"})
    assert replayed.json() == {"id": job_id, "state": "pending", "done": True}
    job = api.get(f"/jobs/{job_id}").json()
    assert (job["payload"], job["replay_count"], job["changes"][-1]["why"]) == ({"a": 5}, 1, "typed wrong")
    assert api.post(f"/jobs/{job_id}/discard").status_code == 409
    assert api.post(f"/jobs/{job_id}/bury").json()["state"] == "dead"
    assert api.post(f"/jobs/{job_id}/replay", json={"payload": {"a": "x"}}).status_code == 400
    assert api.post(f"/jobs/{job_id}/discard").json()["state"] == "discarded"


def test_one_verb_reaches_all_that_a_filter_chooses(house: House, api: httpx2.Client) -> None:
    dead(house, 5)
    action: dict[str, Any] = {"action": "replay", "filter": {"type": ["add"], "where": {"a": 3}}}
    assert api.post("/jobs/actions", json=action | {"dry_run": True}).json()["matched"] == 1
    assert len(api.get("/jobs", params={"state": "dead"}).json()["jobs"]) == 5
    done = api.post("/jobs/actions", json=action | {"rate": 100}).json()
    assert (done["matched"], done["done"], done["refused"]) == (1, 1, 0)
    some = api.post(
        "/jobs/actions", json={"action": "discard", "filter": {"state": ["dead"]}, "limit": 2}
    ).json()
    assert some["done"] == 2
    wrongs: tuple[dict[str, Any], ...] = (
        {"action": "erase"},
        {"filter": {}},
        {"filter": {"state": ["completed"]}},
        {"filter": {"where": {"a": [1]}}},
        {"rate": 0},
        {"limit": 0},
    )
    for wrong in wrongs:
        assert api.post("/jobs/actions", json=action | wrong).status_code == 400, wrong


def test_a_request_that_has_a_key_is_carried_out_once(house: House, api: httpx2.Client) -> None:
    [job_id, other] = dead(house, 2)
    sent: dict[str, Any] = {"json": {"why": "again"}, "headers": {"Idempotency-Key": "r1"}}
    first = api.post(f"/jobs/{job_id}/replay", **sent).json()
    assert api.post(f"/jobs/{job_id}/replay", **sent).json() == first
    assert house.queue.get(job_id).replay_count == 1
    # The key is one of the request: another job, verb or body is another request.
    assert api.post(f"/jobs/{other}/replay", **sent).json()["state"] == "pending"
    assert api.post(f"/jobs/{job_id}/bury", **sent).json()["state"] == "dead"
    assert api.post(f"/jobs/{job_id}/replay", **sent).json()["state"] == "dead"
    otherwise = api.post(f"/jobs/{job_id}/replay", json={"why": "anew"}, headers=sent["headers"])
    assert otherwise.json()["state"] == "pending"
    edit: dict[str, Any] = {"json": {"priority": 8}, "headers": {"Idempotency-Key": "r2"}}
    assert [api.patch(f"/jobs/{job_id}", **edit).status_code for _ in range(2)] == [200, 200]
    assert [change.verb for change in house.queue.get(job_id).changes][-2:] == ["replay", "edit"]
    empty = api.post(f"/jobs/{job_id}/bury", headers={"Idempotency-Key": ""})
    assert (empty.status_code, "Idempotency-Key" in empty.json()["detail"]) == (400, True)


def test_a_request_for_an_api_key_that_is_sent_twice_makes_one(house: House) -> None:
    api = house.caller(house.key("root", "admin"))
    before = len(house.ops.keys())
    sent: dict[str, Any] = {
        "json": {"name": "billing", "roles": ["producer"]},
        "headers": {"Idempotency-Key": "k1"},
    }
    first, again = api.post("/keys", **sent), api.post("/keys", **sent)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["key"].startswith(f"wl_{first.json()['id']}_")
    assert again.json() == first.json() | {"key": None}
    assert len(house.ops.keys()) == before + 1


def test_what_is_asked_of_many_jobs_reaches_each_once(house: House, api: httpx2.Client) -> None:
    [one, two] = dead(house, 2)
    sent: dict[str, Any] = {
        "json": {"action": "replay", "filter": {"type": ["add"]}},
        "headers": {"Idempotency-Key": "all"},
    }
    assert api.post("/jobs/actions", **sent).json()["done"] == 2
    house.ops.bury(one)
    # The answer was lost, and the request is sent again: of those that it reached none runs twice for it.
    assert api.post("/jobs/actions", **sent).status_code == 200
    assert [house.queue.get(each).replay_count for each in (one, two)] == [1, 1]
    assert house.queue.get(one).state is JobState.DEAD


def test_types_settings_workers_and_stats_are_told(house: House, api: httpx2.Client) -> None:
    house.queue.enqueue("add", {"a": 1})
    [kind] = [each for each in api.get("/types").json()["types"] if each["name"] == "add"]
    assert (kind["counts"]["due"], kind["effective"]["max_attempts"], kind["known"]) == (1, 2, True)
    assert api.put("/types/add", json={"settings": {"max_attempts": "9", "timeout": "1m"}}).status_code == 200
    [kind] = [each for each in api.get("/types").json()["types"] if each["name"] == "add"]
    assert (kind["effective"]["max_attempts"], kind["effective"]["timeout"]) == (9, 60)
    for wrong in ({"max_attempts": "99"}, {"colour": "red"}):
        assert api.put("/types/add", json={"settings": wrong}).status_code == 400
    assert api.put("/settings", json={"settings": {"keep_ended": "1d"}}).status_code == 200
    values = {each["name"]: each for each in api.get("/settings").json()["settings"]}
    assert (values["keep_ended"]["value"], values["keep_ended"]["stored"]) == (86_400, True)
    stats = api.get("/stats").json()
    assert stats["counts"]["due"] == 1
    assert stats["warnings"][0].startswith("No worker is running")
    with house.queue.worker() as worker:
        [row] = api.get("/workers").json()["workers"]
        assert row["alive"]
        assert api.post(f"/workers/{row['id']}/drain").json() == {"worker": row["id"]}
        assert worker is not None
    assert api.post("/workers/nix/drain").status_code == 404


def the_type(api: httpx2.Client, name: str) -> dict[str, Any]:
    [found] = [each for each in api.get("/types").json()["types"] if each["name"] == name]
    return dict(found)


def test_a_type_is_paused_and_resumed(house: House, api: httpx2.Client) -> None:
    paused = api.post("/types/add/pause", json={"why": "the disk\0 is full"}).json()
    assert (paused["type"], paused["by"], paused["why"]) == ("add", "local", "the disk is full")
    assert the_type(api, "add")["paused"] == paused
    job = api.post("/jobs", json={"type": "add", "payload": {"a": 1}}).json()
    with house.queue.worker():
        house.queue.enqueue("mail.send", {"to": "a"}).wait(PATIENCE)
        assert api.get(f"/jobs/{job['id']}").json()["state"] == "pending"
        assert api.post("/types/add/resume").json() == {"type": "add", "resumed": True}
        assert api.get(f"/jobs/{job['id']}?wait=60s").json()["state"] == "completed"
    assert the_type(api, "add")["paused"] is None
    assert api.post("/types/add/resume").json() == {"type": "add", "resumed": False}
    for verb in ("pause", "resume", "breaker"):
        unknown = api.post(f"/types/nix/{verb}", json={"state": "open"} if verb == "breaker" else {})
        assert (unknown.status_code, unknown.json()["title"]) == (404, "Unknown type")
    assert api.put("/types/nix", json={"settings": {"concurrency": 1}}).status_code == 404


def test_a_breaker_is_opened_and_closed_by_hand(api: httpx2.Client) -> None:
    opened = api.post("/types/add/breaker", json={"state": "open", "why": "it is down"}).json()
    assert (opened["name"], opened["open"], opened["by_hand"], opened["why"]) == (
        "add",
        True,
        True,
        "it is down",
    )
    assert the_type(api, "add")["breaker"] == opened
    assert any("circuit breaker of add" in each for each in api.get("/stats").json()["warnings"])
    closed = api.post("/types/add/breaker", json={"state": "auto"}).json()
    assert (closed["open"], closed["by_hand"]) == (False, False)
    unknown = api.post("/types/key:crm/breaker", json={"state": "open"})
    assert (unknown.status_code, unknown.json()["detail"]) == (
        409,
        "no type has the limit_key 'crm'; known keys: none",
    )
    for wrong in ({}, {"state": "ajar"}):
        assert api.post("/types/add/breaker", json=wrong).status_code == 400


def test_limits_are_set_all_or_none(api: httpx2.Client) -> None:
    assert api.put("/types/add", json={"settings": {"concurrency": 2, "rate": "100/m"}}).status_code == 200
    limit = the_type(api, "add")["limit"]
    assert (limit["concurrency"], limit["rate"]) == (2, {"count": 100, "seconds": 60, "burst": 0})
    assert api.put("/types/add", json={"settings": {"concurrency": 9, "rate": "often"}}).status_code == 400
    assert the_type(api, "add")["limit"] == limit
    api.put("/types/add", json={"settings": {"concurrency": None, "rate": None}})
    assert the_type(api, "add")["limit"]["concurrency"] is None
    for name in ("key:crm", "*"):
        told = api.put(f"/types/{name}", json={"settings": {"concurrency": "5"}}).json()["settings"]
        assert {"name": f"{name}.concurrency", "value": 5, "stored": True} in told
    assert api.put("/types/key:", json={"settings": {"concurrency": "5"}}).status_code == 400


def test_schedules_are_made_held_run_and_removed(house: House, api: httpx2.Client) -> None:
    nightly = {"name": "nightly", "type": "add", "payload": {"a": 1}, "cron": "0 3 * * *", "tz": "Asia/Tokyo"}
    made = api.post("/schedules", json=nightly)
    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/schedules/nightly")
    shown = made.json()
    assert (shown["state"], shown["origin"], shown["payload"]) == ("active", "operator", {"a": 1})
    assert shown["next_at"].endswith("T18:00:00Z")
    assert api.get("/schedules").json()["schedules"] == [shown]
    assert api.post("/schedules", json=nightly).status_code == 409
    changed = api.post("/schedules", json={"name": "nightly", "type": "mail.send", "every": "15m"} | REPLACE)
    assert (changed.json()["type"], changed.json()["every"]) == ("mail.send", 900)
    assert api.post("/schedules/nightly/pause").json()["paused_by"] == "local"
    assert api.get("/stats").json()["schedules"]["paused"] == 1
    assert api.post("/schedules/nightly/resume").json()["state"] == "active"
    job = api.post("/schedules/nightly/run", json={"why": "at once"}).json()["job"]
    assert house.ops.show(job).type == "mail.send"
    told = api.get("/schedules/nightly", params={"fires": 5}).json()
    assert [(fire["job"], fire["by"]) for fire in told["history"]] == [(job, "local")]
    assert api.delete("/schedules/nightly", params={"why": "moved"}).json()["removed"]
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/pause")):
        assert api.request(method, f"/schedules/nightly{path}").status_code == 404


REPLACE = {"payload": {"to": "a"}, "replace": True}


def test_what_makes_no_schedule_is_said(house: House, api: httpx2.Client) -> None:
    right: dict[str, Any] = {"name": "tick", "type": "add", "payload": {"a": 1}, "every": "1h"}
    wrongs: tuple[tuple[dict[str, Any], int, str], ...] = (
        ({"name": "É"}, 400, "name"),
        ({"type": "nix"}, 400, "nix"),
        ({"payload": {"a": "x"}}, 400, "payload.a"),
        ({"every": "1ms"}, 400, "every"),
        ({"cron": "@daily"}, 400, "cron"),
        ({"every": None, "cron": "61 * * * *"}, 400, "cron"),
        ({"every": None, "cron": "@daily", "tz": "Mars/Base"}, 400, "tz"),
        ({"catch_up": "some"}, 400, "catch_up"),
        ({"priority": 11}, 400, "priority"),
        ({"type": "shell", "payload": {"command": "true"}}, 403, "--shell"),
    )
    for wrong, status, word in wrongs:
        answer = api.post("/schedules", json=right | wrong)
        assert (answer.status_code, word in answer.json()["detail"]) == (status, True), answer.text
    assert api.get("/schedules").json() == {"schedules": []}


def test_nobody_slips_a_shell_command_into_a_job_that_is_there(house: House, api: httpx2.Client) -> None:
    house.queue.registry.add(shell_handler())
    house.queue.publish()
    job = house.queue.enqueue("shell", {"command": "true"})
    other = {"payload": {"command": "false"}}
    assert api.patch(f"/jobs/{job.id}", json=other).status_code == 403
    house.ops.bury(job.id)
    assert api.post(f"/jobs/{job.id}/replay", json=other).status_code == 403
    assert api.post(f"/jobs/{job.id}/replay").status_code == 200


def test_documents_are_what_the_contract_says(house: House, api: httpx2.Client) -> None:
    api.post("/schedules", json={"name": "tick", "type": "add", "payload": {"a": 1}, "every": "1h"})
    told = api.get("/schedules/tick").json()
    assert set(told) == {field.encode_name for field in msgspec.structs.fields(ScheduleHistory)}


def events(answer: httpx2.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_onlookers_are_sent_everything_once_and_then_what_changes(house: House) -> None:
    one, two = house.caller(), house.caller()
    with one.stream("GET", "/stream") as first, two.stream("GET", "/stream") as second:
        assert first.headers["content-type"] == "text/event-stream"
        told, also = events(first), events(second)
        name, stats = next(told)
        assert (name, stats["counts"]["due"]) == ("stats", 0)
        next(also)
        job = house.queue.enqueue("poison", {"n": 1})
        changed = next(change for _, change in told if change.get("counts", {}).get("due"))
        assert "fleet" not in changed
        with house.queue.worker():
            failure = next(change for name, change in told if name == "failure")
        assert (failure["id"], failure["error"]["message"]) == (job.id, "never 1")
        assert "payload" not in failure
        assert next(change for name, change in also if name == "failure")["id"] == job.id


def test_many_onlookers_cost_one_look(house: House, monkeypatch: Any) -> None:
    looks: list[str] = []
    read = waiting.Stream._read  # noqa: SLF001 - counted, not changed

    def counted(self: waiting.Stream) -> Any:
        looks.append(threading.current_thread().name)
        return read(self)

    monkeypatch.setattr(waiting.Stream, "_read", counted)
    begun = time.monotonic()
    clients = [house.caller() for _ in range(30)]
    answers = [client.stream("GET", "/stream") for client in clients]
    told = [events(answer.__enter__()) for answer in answers]
    assert {next(each)[0] for each in told} == {"stats"}
    house.queue.enqueue("add", {"a": 1})
    for each in told:
        assert next(change for _, change in each if change.get("counts", {}).get("due"))
    # One a second for all of them together, however long all of that took.
    assert len(looks) < 10 + 2 * (time.monotonic() - begun)
    for answer in answers:
        answer.__exit__(None, None, None)


def test_a_burst_of_failures_sends_no_onlooker_away(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    read = waiting.Stream._read  # noqa: SLF001 - what it says is multiplied, not changed

    def crowded(self: waiting.Stream) -> Any:
        now, stats, failures = read(self)
        return now, stats, failures * 100

    monkeypatch.setattr(waiting.Stream, "_read", crowded)
    with house.caller().stream("GET", "/stream") as answer:
        told = events(answer)
        assert next(told)[0] == "stats"
        house.ops.bury(house.queue.enqueue("add", {"a": 1}).id)
        seen = [
            change for _, change in itertools.islice((each for each in told if each[0] == "failure"), 100)
        ]
        assert len(seen) == 100
        later = house.queue.enqueue("add", {"a": 2})
        assert next(change for _, change in told if change.get("counts", {}).get("due"))
        house.ops.cancel(later.id)


# As many signs of life as no stream gives that ends within seconds.
_MANY = 600


def test_who_follows_with_a_key_is_told_no_more_when_it_is_revoked(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_SIGN_OF_LIFE_SECONDS", 0.05)
    with house.caller().stream("GET", "/stream") as without:
        root = house.caller(house.key("root", "admin"))
        assert root.get("/keys").status_code == 200
        # Whoever came in before there was a key needs one now: the stream ends.
        assert len(list(itertools.islice(events(without), _MANY))) < _MANY
    eve = root.post("/keys", json={"name": "eve", "roles": ["viewer"]}).json()
    with house.caller(eve["key"]).stream("GET", "/stream") as answer:
        told = events(answer)
        next(told)
        assert root.delete(f"/keys/{eve['id']}").status_code == 200
        assert len(list(itertools.islice(told, _MANY))) < _MANY


def test_whoever_follows_and_hangs_up_is_forgotten(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    listening: list[waiting.Stream] = []
    listen = waiting.Stream.listen

    def noted(self: waiting.Stream, call: Any) -> Any:
        listening.append(self)
        return listen(self, call)

    monkeypatch.setattr(waiting.Stream, "listen", noted)
    for _ in range(3):
        with house.caller().stream("GET", "/stream") as answer:
            lines = answer.iter_lines()
            next(lines)
            assert listening[0]._listeners  # noqa: SLF001 - nobody else can see it
    until(lambda: not listening[0]._listeners, "all are forgotten")  # noqa: SLF001
    assert len(listening) == 3


def test_a_slow_action_holds_up_nobody_and_its_request_ends_with_the_server(store_url: str) -> None:
    with shop(store_url) as queue:
        # More than there are callers, each of whom cancels one before it rests.
        jobs = [queue.enqueue("add", {"a": n}) for n in range(40)]
        with serving(queue) as house, ThreadPoolExecutor(20) as threads:
            slow = {"action": "cancel", "filter": {"type": ["add"]}, "rate": 0.01}
            asked = [threads.submit(house.caller().post, "/jobs/actions", json=slow) for _ in range(20)]
            until(lambda: any(job.state is JobState.CANCELLED for job in jobs), "it begins")
            assert house.caller().get("/jobs").status_code == 200
            house.stop()
            assert {answer.result(PATIENCE).status_code for answer in asked} == {503}
        assert sum(job.state is JobState.CANCELLED for job in jobs) < 40
