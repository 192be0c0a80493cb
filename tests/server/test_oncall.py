"""What does the person on call see over HTTP?"""

from __future__ import annotations

import httpx2

from tests.server.conftest import House
from windlass import connect
from windlass.ops import Ops
from windlass.ops.tail import Tail, listed_now
from windlass.store.protocol import Filter


def test_the_person_on_call_is_answered(house: House, api: httpx2.Client) -> None:
    made = [api.post("/jobs", json={"type": "add", "payload": {"a": n}, "key": f"k{n}"}) for n in range(3)]
    assert {answer.status_code for answer in made} == {201}
    told = api.get("/jobs/k1/explain").json()
    assert (told["cause"], told["link"]) == ("no_worker", {"kind": "type", "name": "add"})
    assert set(told) == {"sentence", "cause", "link", "since", "until", "blockers", "mend", "also"}
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
    assert [job["key"] for job in api.get("/failures").json()["jobs"]] == ["k2"]
    now = house.ops.now().isoformat()
    assert api.get("/failures", params={"since": now}).json()["jobs"] == []
    assert api.get("/failures", params={"since": "soon"}).status_code == 400
    assert api.get("/database").json()["size_bytes"] > 0


def test_a_tail_follows_a_server_as_it_follows_a_store(house: House) -> None:
    opened = connect.open(house.url)
    try:
        tail = Tail(Ops(opened.store), Filter(), running=listed_now)
        house.queue.enqueue("add", {"a": 1}, key="one")
        house.queue.enqueue("poison", {"n": 1}, key="two")
        assert [event.what for event in tail.look()] == ["enqueued", "enqueued"]
        house.ops.bury("two")
        assert [event.what for event in tail.look()] == ["bury", "dead"]
        house.ops.cancel("one")
        assert [event.what for event in tail.look()] == ["cancel", "cancelled"]
    finally:
        opened.close()
