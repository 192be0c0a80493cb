"""What does the person on call see over HTTP?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.server.conftest import House, serving, shop
from tests.waiting import PATIENCE
from windlass import connect
from windlass.cli.main import run
from windlass.ops import Ops
from windlass.ops.remote import verbs_on
from windlass.ops.tail import Tail
from windlass.store.flow import BreakerState
from windlass.store.jobs import Filter


def test_the_person_on_call_is_answered(house: House, api: httpx2.Client) -> None:
    made = [api.post("/jobs", json={"type": "add", "payload": {"a": n}, "key": f"k{n}"}) for n in range(3)]
    assert {answer.status_code for answer in made} == {201}
    told = api.get("/jobs/k1/explain").json()
    assert (told["cause"], told["link"]) == ("no_worker", {"kind": "type", "name": "add"})
    assert set(told) == {"sentence", "cause", "link", "since", "until", "blockers", "fix", "also"}
    assert api.get("/jobs/nobody/explain").status_code == 404

    house.ops.bury("k2")
    found = api.get("/jobs", params={"q": "type:add state:dead payload.a:2"}).json()
    assert [job["key"] for job in found["jobs"]] == ["k2"]
    wrong = api.get("/jobs", params={"q": "typ:x"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (400, "q")
    both = api.get("/jobs", params={"q": "a", "state": "dead"})
    assert (both.status_code, both.json()["errors"][0]["field"]) == (400, "state")

    [group] = api.get("/dlq/groups").json()["groups"]
    assert (group["type"], group["error"], group["count"], len(group["spark"])) == ("add", "cancelled", 1, 24)
    matching = api.post(
        "/jobs/actions",
        json={"action": "replay", "filter": {"error": group["match"]}, "dry_run": True},
    )
    assert matching.json()["matched"] == 1
    assert api.get("/dlq/groups", params={"type": "mail.send"}).json()["groups"] == []
    assert api.get("/dlq/groups", params={"type": ""}).status_code == 400
    assert [job["key"] for job in api.get("/failures").json()["jobs"]] == ["k2"]
    now = house.ops.now().isoformat()
    assert api.get("/failures", params={"since": now}).json()["jobs"] == []
    assert api.get("/failures", params={"since": "soon"}).status_code == 400
    assert api.get("/database").json()["size_bytes"] > 0


def test_a_tail_follows_a_server_as_it_follows_a_store(house: House) -> None:
    opened = connect.open(house.url)
    try:
        tail = Tail(verbs_on(opened.front), Filter())
        house.queue.enqueue("add", {"a": 1}, key="one")
        house.queue.enqueue("poison", {"n": 1}, key="two")
        assert [event.what for event in tail.look()] == ["enqueued", "enqueued"]
        house.ops.bury("two")
        assert [event.what for event in tail.look()] == ["bury", "dead"]
        house.ops.cancel("one")
        assert [event.what for event in tail.look()] == ["cancel", "cancelled"]
    finally:
        opened.close()


@pytest.fixture
def typed(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Command lines of somebody who has the server's address and nothing else."""
    monkeypatch.setenv("WINDLASS_DATABASE_URL", house.url)

    def type_(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        answered = run(words)
        out, err = capsys.readouterr()
        assert (answered, err if code else "") == (code, err if code else ""), err
        return out + err

    return type_


def test_who_has_only_an_address_sees_what_is_wrong(house: House, typed: Callable[..., str]) -> None:
    house.queue.enqueue("add", {"a": 1}, key="one")
    house.queue.enqueue("add", {"a": 2}, key="two")
    house.ops.bury("two")
    assert "No worker is running: 1 job waits" in typed("status")
    assert json.loads(typed("status", "--json"))["counts"] == house.ops.status().counts
    assert typed("explain", "one").startswith("no running worker serves add")
    assert "no running worker serves add" in typed("show", "one")
    assert "add" in typed("types")
    assert "cancelled" in typed("dlq", "list", "--group")
    assert "no worker is running" in typed("worker", "health", code=1)
    assert "Waiting, by priority" in typed("signals")
    assert "add" in typed("metrics")
    assert "desired: " in typed("autoscale")
    assert "WindlassNoWorkers" in typed("alerts", "--json", code=1)
    with house.queue.worker():
        house.queue.enqueue("add", {"a": 3}).wait(PATIENCE)
        frame = typed("top", "--once")
    assert "1 worker alive" in frame
    assert "dead 1" in frame
    assert json.loads(typed("top", "--json"))["failures"][0]["key"] == "two"


def test_who_has_only_an_address_can_mend_it(house: House, typed: Callable[..., str]) -> None:
    for name in ("one", "two", "three"):
        house.queue.enqueue("add", {"a": 1}, key=name)
    assert "paused" in typed("pause", "add", "--why", "it is down")
    [pause] = house.ops.store.switches().pauses.values()
    assert (pause.by, pause.why) == ("local", "it is down")
    assert "runs again" in typed("resume", "add")
    typed("bury", "one")
    typed("replay", "one", "--payload", '{"a": 7}')
    assert bytes(house.ops.show("one").payload) == b'{"a":7}'
    assert typed("bury", "--type", "add", "--dry-run") == "3 jobs would be moved to the dead letters\n"
    assert "3 jobs moved" in typed("bury", "--type", "add", "--yes")
    assert typed("replay", "--where", "payload.a=7", "--dry-run") == "1 job would be sent back to be run\n"
    assert "discarded" in typed("discard", "two")
    assert "added" in typed("schedule", "add", "nightly", "add", '{"a": 1}', "--cron", "0 3 * * *")
    assert [each.name for each in house.ops.schedules.list()] == ["nightly"]
    house.queue.enqueue("add", {"a": 1}, key="later", delay=3600)
    house.queue.enqueue("add", {"a": 1}, key="now")
    assert "1 job cancelled" in typed("cancel", "--state", "scheduled", "--yes")
    assert [house.ops.show(name).state for name in ("later", "now")] == ["cancelled", "pending"]
    with house.queue.worker(types=("mail.send",)) as worker:
        [row] = house.ops.workers()
        assert row.info.id in typed("worker", "drain", row.info.id[:-2])
        assert worker is not None


@pytest.mark.parametrize("option", ["--tenant", "--key", "--error", "--type"])
def test_an_empty_filter_is_refused(
    house: House, api: httpx2.Client, typed: Callable[..., str], option: str
) -> None:
    house.queue.enqueue("add", {"a": 1}, key="one")
    for words in (("cancel", "--dry-run"), ("cancel", "--yes"), ("list",)):
        assert f"{option} must be a text that is not empty" in typed(*words, option, "", code=2)
    field = option.removeprefix("--")
    value = [""] if field == "type" else ""
    bulk = api.post("/jobs/actions", json={"action": "cancel", "filter": {field: value}})
    for answer in (bulk, api.get("/jobs", params={field: ""})):
        [wrong] = answer.json()["errors"]
        assert (answer.status_code, wrong["field"], wrong["value"]) == (400, field, "")
    assert house.ops.show("one").state == "pending"


def test_what_only_the_store_can_do_says_so_in_a_line(typed: Callable[..., str]) -> None:
    for words in (("doctor",), ("worker", "stop"), ("db", "prune")):
        told = typed(*words, code=1)
        assert "needs the store itself" in told
        assert told.count("\n") == 1


def test_a_limit_is_set_where_only_a_server_can_be_reached(house: House, typed: Callable[..., str]) -> None:
    assert typed("limit", "add", "--concurrency", "2") == "add: 2 at once\n"
    assert house.ops.limit("add").concurrency == 2


def test_who_may_only_look_sees_limits_and_breakers(
    house: House, typed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    house.ops.set_limit("add", {"concurrency": "2"})
    monkeypatch.setenv("WINDLASS_API_KEY", house.key("screen", "viewer"))
    assert typed("limit", "add") == "add: 2 at once\n"
    assert typed("breaker", "add") == "add: closed\n"
    house.ops.set_breaker("add", BreakerState.OPEN, why="the database is down")
    assert typed("breaker", "add").startswith("add: open since ")
    assert "unknown job type" in typed("limit", "nope", code=1)
    assert "needs the role operator or admin" in typed("limit", "add", "--concurrency", "3", code=1)


def test_a_type_that_the_server_does_not_know_comes_from_a_worker_and_not_from_a_flag(
    house: House, typed: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text('{"type": "nope", "payload": {}}')
    for words in (("enqueue", "nope", "{}"), ("enqueue", "--file", str(file))):
        told = typed(*words, code=1)
        assert told.endswith(
            "a worker of the application, on the store of the server, makes its types known\n"
        )
        assert "--app" not in told
    assert house.ops.find(Filter()).jobs == []


def test_who_may_only_produce_is_told_why_their_own_job_waits(
    house: House, typed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_API_KEY", house.key("shop", "producer"))
    typed("enqueue", "add", '{"a": 1}', "--key", "mine")
    assert "pending" in typed("show", "mine")
    assert "why" in typed("show", "mine")
    assert "no running worker serves add" in typed("explain", "mine")
    house.queue.enqueue("add", {"a": 1}, key="theirs")
    assert "no job has the id or key" in typed("explain", "theirs", code=1)


def test_an_explanation_names_jobs_of_others_to_nobody_who_may_not_see_them(store_url: str) -> None:
    with shop(store_url) as queue:
        queue.publish()
        Ops(queue.store, by="test").set_limit("add", {"concurrency": "1"})
        with serving(queue) as house:
            other = queue.enqueue("add", {"a": 1})
            keys = {role: house.key(role, role) for role in ("worker", "producer", "operator")}
            worker, producer, operator = (house.caller(key) for key in keys.values())
            assert worker.post("/leases", json={"worker": "w", "types": ["add"]}).json()["leases"]
            sent = {"type": "add", "payload": {"a": 2}, "key": "mine"}
            job = producer.post("/jobs", json=sent).json()["id"]
            told = producer.get(f"/jobs/{job}/explain").text
            assert "may have 1 job running at once" in told
            assert other.id not in told
            assert other.id in operator.get(f"/jobs/{job}/explain").text
