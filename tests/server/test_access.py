"""Who is let in, what may they do, and who wrote down what they did?"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, cast

import httpx2
import pytest

from tests.server.conftest import House, serving, shop
from windlass.clock import uuid7
from windlass.config import ServerConfig
from windlass.errors import InvalidValue, Refused
from windlass.job import NewJob
from windlass.ops import Ops
from windlass.ops.access import KeyWish, Role
from windlass.ops.actions import Need
from windlass.registry import shell_handler
from windlass.server.app import ROUTES
from windlass.server.identity import Identity, Keyring
from windlass.server.limits import Rates
from windlass.server.problems import Problem
from windlass.server.run import Server
from windlass.store.jobs import Filter
from windlass.store.store import Store

ROLES = {
    "producer": {Need.PRODUCE, Need.LOOK, Need.ACT},
    "worker": {Need.WORK},
    "viewer": {Need.SEE, Need.LOOK},
    "operator": {Need.SEE, Need.LOOK, Need.ACT, Need.OPERATE},
    "admin": set(Need),
}


def ask(api: httpx2.Client, method: str, path: str) -> httpx2.Response:
    path = (
        path.removeprefix("/api/v1").replace("{id}", "nix").replace("{type}", "add").replace("{name}", "nix")
    )
    path = path.replace("{lease}", "0190a5a0-0000-7000-8000-000000000000." + "0" * 32)
    return api.request(method, path, **({} if method in ("GET", "DELETE") else {"json": {}}))  # type: ignore[arg-type]


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_use_its_routes_and_no_others(locked: House, role: str) -> None:
    api = locked.caller(locked.key(f"a-{role}", role))
    stranger = locked.caller()
    for route in ROUTES:
        if route.need is Need.NOTHING or route.path.endswith("/stream"):
            continue
        assert ask(stranger, route.method, route.path).status_code == 401
        answer = ask(api, route.method, route.path)
        allowed = route.need in ROLES[role]
        assert (answer.status_code not in (401, 403)) == allowed, (route.method, route.path, answer.text)
        assert answer.status_code < 500


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer x",
        "Bearer wl_",
        "Bearer wl_abc_def",
        "Basic YTpi",
        "Bearer wl_\xff_\xff",
        "x" * 9000,
    ],
)
def test_whoever_has_no_key_is_sent_away(locked: House, header: str) -> None:
    api = locked.caller()
    answer = api.get("/jobs", headers={b"Authorization": header.encode("latin-1")})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_a_secret_that_differs_in_one_letter_opens_nothing(locked: House) -> None:
    key = locked.key("a", "admin")
    last = "A" if key[-1] != "A" else "B"
    assert locked.caller(key).get("/keys").status_code == 200
    assert locked.caller(key[:-1] + last).get("/keys").status_code == 401


def test_a_key_is_shown_once_and_stored_as_a_digest(locked: House) -> None:
    root = locked.caller(locked.key("root", "admin"))
    made = root.post("/keys", json={"name": "billing", "roles": ["producer"], "types": ["add"], "rate": 5})
    assert made.status_code == 201
    secret = made.json()["key"]
    assert locked.caller(secret).get("/jobs").status_code == 200
    listed = root.get("/keys")
    assert secret.split("_", 2)[2] not in listed.text
    assert "digest" not in listed.text
    [shown] = [key for key in listed.json()["keys"] if key["name"] == "billing"]
    assert (shown["roles"], shown["types"], shown["rate"]) == (["producer"], ["add"], 5)
    # Without a wish a service may enqueue a thousand jobs a second.
    assert {key["rate"] for key in listed.json()["keys"] if key["name"] == "root"} == {1_000}
    for key in locked.queue.store.api_keys():
        assert secret.split("_", 2)[2] not in key.digest
    wrongs: list[dict[str, Any]] = [
        {"name": ""},
        {"roles": []},
        {"roles": ["king"]},
        {"rate": 0},
        {"rate": 1e-320},
        {"expires": "0s"},
        {"types": ["É"]},
    ]
    for wrong in wrongs:
        assert root.post("/keys", json={"name": "b", "roles": ["viewer"]} | wrong).status_code == 400


def test_one_request_for_a_key_that_is_sent_several_times_at_once_makes_one_key(locked: House) -> None:
    root = locked.caller(locked.key("root", "admin"))

    def ask(_: int) -> httpx2.Response:
        wish = {"name": "billing", "roles": ["producer"]}
        return root.post("/keys", json=wish, headers={"Idempotency-Key": "once"})

    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(ask, range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len([answer for answer in answers if answer.json()["key"]]) == 1
    made = [entry for entry in root.get("/audit?verb=create").json()["entries"] if "billing" in str(entry)]
    assert len(made) == 1


def test_a_service_sees_its_own_jobs_and_keys_are_its_own(locked: House) -> None:
    billing = locked.caller(locked.key("billing", "producer"))
    mail = locked.caller(locked.key("mail", "producer"))
    viewer = locked.caller(locked.key("eye", "viewer"))
    job = {"type": "add", "payload": {"a": 1}, "key": "same"}
    mine, theirs = (api.post("/jobs", json=job).json()["id"] for api in (billing, mail))
    assert mine != theirs
    assert [each["id"] for each in billing.get("/jobs").json()["jobs"]] == [mine]
    assert billing.get("/jobs/same").json()["id"] == mine
    assert billing.get(f"/jobs/{theirs}").status_code == 404
    assert billing.post(f"/jobs/{theirs}/cancel").status_code == 404
    assert billing.patch(f"/jobs/{theirs}", json={"priority": 1}).status_code == 404
    assert {each["caller"] for each in viewer.get("/jobs").json()["jobs"]} == {"billing", "mail"}
    batch = mail.post(
        "/jobs/batch", json={"jobs": [{"type": "add", "payload": {"a": 2}}], "batch": "b"}
    ).json()
    assert billing.get(f"/batches/{batch['batch']}").status_code == 404
    assert mail.get(f"/batches/{batch['batch']}").json()["total"] == 1


def test_a_service_neither_takes_nor_waits_for_jobs_of_others(locked: House) -> None:
    billing = locked.caller(locked.key("billing", "producer"))
    mail = locked.caller(locked.key("mail", "producer"))
    job = {"type": "add", "payload": {"a": 1}, "unique": "sync:1"}
    first = billing.post("/jobs", json=job).json()["id"]
    assert billing.post("/jobs", json=job).json()["id"] == first
    own = mail.post("/jobs", json=job | {"payload": {"a": 2}}).json()["id"]
    for policy in ("skip", "replace"):
        again = mail.post("/jobs", json=job | {"payload": {"a": 3}, "on_unique": policy})
        assert (again.status_code, again.json()["id"]) == (200, own)
    assert bytes(locked.queue.get(first).payload) == b'{"a":1}'
    after = {"type": "add", "payload": {"a": 1}, "depends_on": [first]}
    assert [api.post("/jobs", json=after).status_code for api in (billing, mail)] == [201, 404]


def test_types_and_tenant_of_a_key_are_its_bounds(locked: House) -> None:
    api = locked.caller(locked.key("mailer", "producer", "viewer", types=("mail.*",), tenant="acme"))
    assert api.post("/jobs", json={"type": "add", "payload": {"a": 1}}).status_code == 403
    mail = {"type": "mail.send", "payload": {"to": "a"}}
    sent = api.post("/jobs", json=mail)
    assert api.get(f"/jobs/{sent.json()['id']}").json()["tenant"] == "acme"
    assert api.post("/jobs", json=mail | {"tenant": "bell"}).status_code == 403
    bad = api.post("/jobs/batch", json={"jobs": [mail, {"type": "add", "payload": {"a": 1}}]})
    assert (bad.status_code, bad.json()["index"]) == (403, 1)
    other = locked.queue.enqueue("add", {"a": 1}, tenant="bell")
    assert api.get(f"/jobs/{other.id}").status_code == 404
    assert len(api.get("/jobs").json()["jobs"]) == 1
    for path in ("/stats", "/types", "/workers", "/settings", "/stream"):
        assert api.get(path).status_code == 403


def test_a_key_with_a_tenant_neither_claims_for_all_nor_makes_keys(locked: House) -> None:
    api = locked.caller(locked.key("acme", "admin", tenant="acme"))
    locked.queue.enqueue("add", {"a": 1}, tenant="bell")
    assert api.post("/leases", json={"worker": "w", "types": ["add"]}).status_code == 403
    assert api.post("/keys", json={"name": "free", "roles": ["admin"]}).status_code == 403
    assert api.get("/keys").status_code == 403


def test_a_key_enqueues_no_faster_than_its_rate_and_others_do_not_notice(locked: House) -> None:
    slow = locked.caller(locked.key("slow", "producer", rate=1.0))
    fast = locked.caller(locked.key("fast", "producer"))
    job = {"type": "add", "payload": {"a": 1}}
    answers = [slow.post("/jobs", json=job) for _ in range(12)]
    refused = [each for each in answers if each.status_code == 429]
    assert refused
    assert {each.status_code for each in answers} == {201, 429}
    assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
    assert {fast.post("/jobs", json=job).status_code for _ in range(20)} == {201}


def test_a_key_that_sends_too_fast_is_still_answered_what_it_has_sent_before(locked: House) -> None:
    key = locked.key("slow", "producer", rate=0.01)
    slow = locked.caller(key)
    job = {"type": "add", "payload": {"a": 1}}
    own = uuid7()
    keyed, named = job | {"key": "k"}, job | {"id": own}
    [first] = slow.post("/jobs/batch", json={"jobs": [keyed]}).json()["jobs"]
    locked.queue.store.enqueue([NewJob(id=own, type="add", payload=b'{"a":1}', caller="slow")])
    again = slow.post("/jobs", json=keyed)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    by_header = slow.post("/jobs", json=job, headers={"Idempotency-Key": "k"})
    assert (by_header.status_code, by_header.json()["id"]) == (200, first["id"])
    by_id = slow.post("/jobs", json=named)
    assert (by_id.status_code, by_id.json()["id"]) == (200, own)
    both = slow.post("/jobs/batch", json={"jobs": [keyed, named]})
    assert (both.status_code, [each["created"] for each in both.json()["jobs"]]) == (200, [False, False])
    lines = "\n".join(json.dumps(each) for each in (keyed, named))
    bulk = slow.post("/jobs/bulk", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert (bulk.status_code, [each["id"] for each in bulk.json()["jobs"]]) == (
        200,
        [first["id"], own],
    )
    # What is new, or other work under the same key, is not.
    assert slow.post("/jobs", json=job).status_code == 429
    assert slow.post("/jobs", json=job | {"key": "new"}).status_code == 429
    assert slow.post("/jobs/batch", json={"jobs": [keyed, job | {"key": "new"}]}).status_code == 429
    assert slow.post("/jobs", json=keyed | {"payload": {"a": 2}}).status_code == 409
    assert locked.queue.store.count(Filter(), limit=10) == 2


def test_every_route_that_names_a_job_takes_its_tenant(locked: House) -> None:
    api = locked.caller(locked.key("root", "admin"))
    for tenant in ("acme", "globex"):
        job = {"type": "add", "payload": {"a": 1}, "key": "order", "tenant": tenant, "delay": 60}
        assert api.post("/jobs", json=job).status_code == 201
    named = [route for route in ROUTES if route.path.startswith("/api/v1/jobs/{id}")]
    assert len(named) >= 9
    for route in named:
        path = route.path.removeprefix("/api/v1").replace("{id}", "order")
        body = None if route.method == "GET" else {"priority": 3} if route.method == "PATCH" else {}
        unclear = api.request(route.method, path, json=body)
        assert (unclear.status_code, unclear.json()["type"]) == (409, "urn:windlass:problem:ambiguous-key")
        clear = api.request(route.method, path, json=body, params={"tenant": "acme"})
        # Whatever the verb says to the job's state, it has found that job.
        assert clear.status_code == 200 or clear.json()["job"]


def test_a_key_that_is_the_id_of_another_tenants_job_is_found(locked: House) -> None:
    acme, globex = (locked.caller(locked.key("shop", "producer", tenant=name)) for name in ("acme", "globex"))
    job = {"type": "add", "payload": {"a": 1}}
    theirs = acme.post("/jobs", json=job).json()["id"]
    ours = globex.post("/jobs", json=job | {"key": theirs}).json()["id"]
    assert globex.get(f"/jobs/{theirs}").json()["id"] == ours
    assert acme.get(f"/jobs/{theirs}").json()["id"] == theirs
    assert globex.post(f"/jobs/{theirs}/cancel").json()["id"] == ours
    assert globex.post("/jobs", json=job | {"depends_on": [theirs], "on_dead": "run"}).status_code == 201


def test_a_tenant_does_not_wait_for_a_key_of_another_one(locked: House) -> None:
    api = locked.caller(locked.key("shop", "producer"))
    job = {"type": "add", "payload": {"a": 1}}
    assert api.post("/jobs", json=job | {"key": "order", "tenant": "acme"}).status_code == 201
    refused = api.post("/jobs", json=job | {"depends_on": ["order"], "tenant": "globex"})
    assert (refused.status_code, refused.json()["detail"]) == (404, "no job has the id or key 'order'")
    assert api.post("/jobs", json=job | {"depends_on": ["order"], "tenant": "acme"}).status_code == 201


def test_keys_end_and_overlap(locked: House) -> None:
    root = locked.caller(locked.key("root", "admin"))
    old = root.post("/keys", json={"name": "billing", "roles": ["producer"]}).json()
    new = root.post("/keys", json={"name": "billing", "roles": ["producer"], "expires": "90d"}).json()
    old_api, new_api = locked.caller(old["key"]), locked.caller(new["key"])
    job_id = old_api.post("/jobs", json={"type": "add", "payload": {"a": 1}}).json()["id"]
    assert root.delete(f"/keys/{old['id']}", params={"after": "1d"}).json()["revoked_at"]
    assert [api.get(f"/jobs/{job_id}").status_code for api in (old_api, new_api)] == [200, 200]
    assert root.delete(f"/keys/{old['id']}").status_code == 200
    assert [api.get(f"/jobs/{job_id}").status_code for api in (old_api, new_api)] == [401, 200]
    assert root.delete("/keys/nix").status_code == 404
    gone = locked.key("brief", "viewer", lasts=timedelta(microseconds=1))
    assert locked.caller(gone).get("/jobs").status_code == 401


def test_every_action_stands_in_the_audit_log(locked: House) -> None:
    ann = locked.caller(locked.key("ann", "operator"))
    ids = [locked.queue.enqueue("add", {"a": n}).id for n in range(3)]
    ann.post(f"/jobs/{ids[0]}/cancel", json={"why": "not wanted"})
    ann.post(f"/jobs/{ids[1]}/bury")
    ann.post(f"/jobs/{ids[1]}/replay")
    ann.patch(f"/jobs/{ids[1]}", json={"priority": 9})
    operation = ann.post("/jobs/actions", json={"action": "bury", "filter": {"ids": [ids[2]]}}).json()[
        "operation"
    ]
    ann.post(f"/jobs/{ids[2]}/discard")
    ann.put("/settings", json={"settings": {"timeout": "10m"}, "why": "slow disks"})
    ann.put("/types/add", json={"settings": {"max_attempts": "7"}})
    ann.put("/settings", json={"settings": {"timeout": None}})
    told = ann.get("/audit", params={"who": "ann"}).json()["entries"]
    assert [(each["verb"], each["target"]) for each in reversed(told)] == [
        ("cancel", ids[0]),
        ("bury", ids[1]),
        ("replay", ids[1]),
        ("edit", ids[1]),
        ("start", operation),
        ("bury", ids[2]),
        ("end", operation),
        ("discard", ids[2]),
        ("set", "timeout"),
        ("set", "add.max_attempts"),
        ("reset", "timeout"),
    ]
    first = told[-1]
    assert (first["before"], first["after"], first["why"]) == (
        {"state": "pending"},
        {"state": "cancelled"},
        "not wanted",
    )
    assert (told[0]["before"], told[0]["after"]) == ({"value": "10m"}, None)
    assert [each["verb"] for each in ann.get("/audit", params={"target": ids[1]}).json()["entries"]] == [
        "edit",
        "replay",
        "bury",
    ]
    page = ann.get("/audit", params={"limit": 2}).json()
    rest = ann.get("/audit", params={"limit": 2, "cursor": page["next"]}).json()
    assert page["entries"][-1]["seq"] > rest["entries"][0]["seq"]
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert ann.request(method, "/audit").status_code == 405


def test_what_holds_jobs_back_stands_in_the_audit_log(locked: House) -> None:
    ann = locked.caller(locked.key("ann", "operator"))
    ann.post("/types/add/pause", json={"why": "too fast"})
    # It is paused already, so this does nothing.
    ann.post("/types/add/pause")
    ann.post("/types/add/resume")
    ann.post("/types/add/breaker", json={"state": "open"})
    ann.put("/types/add", json={"settings": {"concurrency": 2}})
    told = ann.get("/audit", params={"who": "ann"}).json()["entries"][::-1]
    assert [(each["verb"], each["kind"], each["target"]) for each in told] == [
        ("pause", "type", "add"),
        ("resume", "type", "add"),
        ("breaker", "breaker", "add"),
        ("set", "setting", "add.concurrency"),
    ]
    paused, _, opened, _ = told
    assert (paused["before"], paused["after"], paused["why"]) == (
        {"paused": False},
        {"paused": True},
        "too fast",
    )
    assert opened["before"] == {"open": False, "by_hand": False}
    assert opened["after"] == {"open": True, "by_hand": True}


def test_what_is_done_to_schedules_stands_in_the_audit_log(locked: House) -> None:
    key = locked.key("ann", "operator")
    ann = locked.caller(key)
    tick = {"name": "tick", "type": "add", "payload": {"a": 1}, "every": "1h", "why": "as agreed"}
    ann.post("/schedules", json=tick)
    ann.post("/schedules/tick/pause")
    ann.post("/schedules/tick/resume")
    made = ann.post("/schedules/tick/run").json()["job"]
    ann.delete("/schedules/tick", params={"why": "no more"})
    told = ann.get("/audit", params={"target": "tick"}).json()["entries"][::-1]
    assert [(each["who"], each["kind"], each["verb"]) for each in told] == [
        (f"ann (key {key.split('_')[1]})", "schedule", verb)
        for verb in ("add", "pause", "resume", "run", "remove")
    ]
    added, paused, _, ran, removed = told
    assert (added["before"], added["after"]["every"], added["why"]) == (None, "3600s", "as agreed")
    assert (paused["before"], paused["after"]) == ({"paused": False}, {"paused": True})
    assert ran["after"] == {"job": made}
    assert (removed["before"]["type"], removed["after"], removed["why"]) == ("add", None, "no more")


def test_a_web_page_can_not_post_to_a_server_without_keys(house: House) -> None:
    job: dict[str, Any] = {"json": {"type": "add", "payload": {"a": 1}}}
    assert house.caller(Host="evil.example").post("/jobs", **job).status_code == 421
    assert house.caller(Host="127.0.0.1.evil.example:8080").get("/jobs").status_code == 421
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        assert house.caller(Origin=origin).post("/jobs", **job).status_code == 403
    own = house.url.removeprefix("http://")
    assert house.caller(Origin=f"http://{own}").post("/jobs", **job).status_code == 201
    assert house.caller(Host="localhost").get("/jobs").status_code == 200
    answer = house.caller().get("/jobs")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_an_address_that_others_reach_needs_keys_or_an_explicit_word(store_url: str) -> None:
    with shop(store_url) as queue:
        with pytest.raises(Refused, match=r"windlass keys create NAME --role admin.*--insecure"):
            Server(queue, ServerConfig(host="0.0.0.0", port=0)).run()  # noqa: S104 - that is what is tested
        with serving(queue, host="0.0.0.0", insecure=True) as open_house:  # noqa: S104
            assert open_house.caller(Host="10.1.2.3:8080").get("/jobs").status_code == 200


def test_shell_commands_need_the_server_and_the_key_to_allow_them(store_url: str) -> None:
    job = {"json": {"type": "shell", "payload": {"command": "true"}}}
    with shop(store_url) as queue, serving(queue, shell=True) as house:  # noqa: S604 - an option of ours
        queue.registry.add(shell_handler())
        assert house.caller().post("/jobs", **job).status_code == 201  # type: ignore[arg-type]
        plain = house.caller(house.key("plain", "producer"))
        allowed = house.caller(house.key("ops", "producer", types=("shell",)))
        assert [api.post("/jobs", **job).status_code for api in (plain, allowed)] == [403, 201]  # type: ignore[arg-type]
        operator = house.caller(house.key("ann", "operator"))
        waiting = allowed.post("/jobs", json={"type": "shell", "payload": {"command": "true"}, "delay": 60})
        path = f"/jobs/{waiting.json()['id']}"
        other = {"payload": {"command": "rm -rf /"}}
        # Nor into a job that is there already.
        assert operator.patch(path, json=other).status_code == 403
        assert operator.post(f"{path}/bury").status_code == 200
        assert operator.post(f"{path}/replay", json=other).status_code == 403
        assert operator.post(f"{path}/replay").status_code == 200


def test_any_address_of_the_loopback_may_be_served_and_named(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue, host="127.0.0.2") as house:
        assert house.caller().get("/jobs").status_code == 200
        assert house.caller(Host="127.0.0.3:80").get("/jobs").status_code == 200
        for host in ("128.0.0.1", "[::2]", "127.0.0.1.example", "[127.0.0.1"):
            assert house.caller(Host=host).get("/jobs").status_code == 421, host


@pytest.mark.parametrize(
    ("roles", "bounds", "field"),
    [
        (("operator",), {"types": ("add",)}, "types"),
        (("producer", "admin"), {"types": ("add",)}, "types"),
        (("viewer",), {"types": ("add",)}, "types"),
        (("worker",), {"tenant": "acme"}, "tenant"),
    ],
)
def test_a_bound_that_would_hold_nobody_back_is_refused(
    house: House, roles: tuple[str, ...], bounds: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        house.ops.create_key(KeyWish(name="a", roles=roles, **bounds))
    assert refused.value.field == field


def test_keys_end_by_the_clock_of_the_store(store_url: str) -> None:
    with shop(store_url) as queue:
        ops = Ops(queue.store, by="test")
        key = ops.create_key(KeyWish(name="a", roles=("admin",)))
        ahead = _Ahead(queue.store)
        ring = Keyring(lambda: cast("Any", ahead))
        ring.look()
        assert ring.known(key.key) is not None
        ops.revoke_key(key.id, after=timedelta(minutes=1))
        ring.look()
        assert ring.known(key.key) is not None
        ahead.by = timedelta(minutes=2)
        ring.look()
        assert ring.known(key.key) is None


class _Ahead:
    """A store whose clock is not that of the server's machine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.by = timedelta(0)

    def now(self) -> datetime:
        return self._store.now() + self.by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_the_api_keys_of_a_service_share_its_rate() -> None:
    rates = Rates(clock=lambda: 0.0)
    old, new = (
        Identity(name="billing", roles=frozenset({Role.PRODUCER}), rate=2.0, key_id=name) for name in "ab"
    )
    rates.spend(old, 1)
    rates.spend(new, 1)
    with pytest.raises(Problem, match="billing may enqueue 2 jobs a second"):
        rates.spend(new, 1)


def test_a_token_that_nobody_could_have_read_is_refused_whatever_is_in_it(locked: House) -> None:
    key = locked.key("ann", "operator")
    origin = locked.url
    port = origin.rpartition(":")[2]
    by_cookie = {b"Cookie": f"windlass-{port}={key}".encode(), b"Origin": origin.encode()}
    for token in (b"", b"0" * 64, b"\xff\xe4"):
        answer = locked.caller().post(
            "/types/add/pause", json={}, headers={**by_cookie, b"X-Windlass-Token": token}
        )
        assert (answer.status_code, answer.json()["title"]) == (403, "Not our page")


def test_the_address_of_alerts_is_shown_to_those_alone_who_may_set_it(locked: House) -> None:
    secret = "https://hooks.example/T0/secret"
    ann = locked.caller(locked.key("ann", "operator"))
    assert ann.put("/settings", json={"settings": {"alerts.webhook": secret}}).status_code == 200
    assert secret in ann.get("/settings").text
    eve = locked.caller(locked.key("eve", "viewer"))
    assert "(hidden)" in eve.get("/settings").text
    bob = locked.caller(locked.key("bob", "producer", tenant="acme"))
    for answer in (eve.get("/settings"), eve.get("/catalogue"), bob.get("/catalogue")):
        assert (answer.status_code, secret in answer.text) == (200, False)
