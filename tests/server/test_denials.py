"""What trace does somebody leave who is turned away, and how much of it?"""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

from tests.server.conftest import House, shop, visitor
from tests.waiting import until
from windlass.errors import StoreUnavailable
from windlass.ops import Ops
from windlass.server.limits import OTHERS, Denials, Source
from windlass.store.access import Entry


def denied(house: House) -> list[Entry]:
    return house.ops.audit(verb="denied", limit=100).entries


def test_a_wrong_key_is_counted_logged_and_audited(locked: House, caplog: pytest.LogCaptureFixture) -> None:
    key = locked.key("billing", "producer")
    wrong = key[:-4] + "AAAA"
    with caplog.at_level(logging.WARNING, "windlass.server"):
        for _ in range(3):
            assert locked.caller(wrong).get("/jobs").status_code == 401
        until(lambda: sum((each.after or {})["count"] for each in denied(locked)) == 3, "all are audited")
    entry = denied(locked)[-1]
    assert (entry.who, entry.kind, entry.target, entry.why) == (
        "unknown",
        "request",
        "127.0.0.1",
        "not-authenticated",
    )
    assert (entry.after or {})["key"] == key.split("_")[1]
    assert (entry.after or {})["status"] == 401
    told = [record for record in caplog.records if record.message == "server.denied"]
    assert told
    assert wrong not in caplog.text
    counted = 'windlass_http_refusals_total{route="/api/v1/jobs",status="401"} 3'
    eye = {"Authorization": f"Bearer {locked.key('eye', 'viewer')}"}
    with visitor(locked.url, headers=eye) as viewer:
        until(lambda: counted in viewer.get("/metrics").text, "it is counted")


def test_a_key_that_may_not_is_named(locked: House) -> None:
    key = locked.key("billing", "producer")
    assert locked.caller(key).get("/keys").status_code == 403
    until(lambda: denied(locked), "it is audited")
    [entry] = denied(locked)
    assert entry.who == f"billing (key {key.split('_')[1]})"
    assert entry.after == {"status": 403, "count": 1, "route": "GET /api/v1/keys"}
    assert entry.why == "not-allowed"


def test_a_refused_log_in_is_audited_with_the_key_that_was_tried(locked: House) -> None:
    key = locked.key("ann", "admin")
    origin = {"Origin": locked.url}
    with visitor(locked.url) as browser:
        answer = browser.post("/login", json={"key": key[:-4] + "AAAA"}, headers=origin)
    assert answer.status_code == 401
    until(lambda: denied(locked), "it is audited")
    [entry] = denied(locked)
    assert entry.after == {"status": 401, "count": 1, "route": "POST /login", "key": key.split("_")[1]}


def test_the_audit_log_names_the_key_that_acted(locked: House) -> None:
    keys = [locked.key("ann", "operator") for _ in range(2)]
    for key in keys:
        assert locked.caller(key).post("/types/add/pause").status_code == 200
        assert locked.caller(key).post("/types/add/resume").status_code == 200
    told = {each.who for each in locked.ops.audit(who="ann").entries}
    assert told == {f"ann (key {key.split('_')[1]})" for key in keys}
    [first] = {each.who for each in locked.ops.audit(who=f"ann (key {keys[0].split('_')[1]})").entries}
    assert first.endswith(f"{keys[0].split('_')[1]})")
    assert locked.ops.audit(who="an").entries == []


def test_on_this_machine_the_user_id_is_recorded(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "alice")
    with shop(store_url) as queue:
        queue.publish()
        Ops(queue.store).pause("add")
        [entry] = Ops(queue.store).audit().entries
    assert entry.who.endswith(f"(uid {os.getuid()})")
    assert "alice" not in entry.who


class Notes:
    """A store that keeps what is noted."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def note_action(self, *what: str, after: dict[str, Any], **_: Any) -> None:
        self.lines.append((what[2], after))


def test_an_attack_does_not_fill_the_audit_log() -> None:
    time = 0.0
    notes = Notes()
    store: Any = notes
    denials = Denials(lambda: store, lambda: time)
    for _ in range(24 * 60):
        for number in range(1_500):
            denials.note(Source(401, f"10.0.{number // 250}.{number % 250}"), "GET /api/v1/jobs", "x")
        denials.flush()
        time += 60.0
    assert len(notes.lines) <= 20 + 24 * 60
    denials.flush(last=True)
    addresses = {address for address, _ in notes.lines}
    assert OTHERS in addresses, "what is beyond the bound is counted together"


def test_one_source_has_a_line_a_minute_with_its_count() -> None:
    time = 0.0
    notes = Notes()
    store: Any = notes
    denials = Denials(lambda: store, lambda: time)
    source = Source(401, "10.0.0.1")
    for _ in range(90):
        denials.note(source, "GET /api/v1/jobs", "not-authenticated")
        denials.flush()
        time += 2.0
    assert [after["count"] for _, after in notes.lines] == [1, 30, 30]


def test_a_line_about_several_routes_says_so() -> None:
    time = 0.0
    notes = Notes()
    store: Any = notes
    denials = Denials(lambda: store, lambda: time)
    for routes in (("GET /jobs", "GET /types", "GET /types"), ("GET /types",), ("GET /types", "GET /types")):
        for route in routes:
            denials.note(Source(401, "10.0.0.1"), route, "not-authenticated")
        denials.flush()
        time += 60.0
    assert [after["route"] for _, after in notes.lines] == [
        "GET /types and others",
        "GET /types",
        "GET /types",
    ]


def test_a_line_that_could_not_be_written_is_written_later() -> None:
    class Away(Notes):
        away = True

        def note_action(self, *what: str, after: dict[str, Any], **more: Any) -> None:
            if self.away:
                raise StoreUnavailable("away")
            super().note_action(*what, after=after, **more)

    notes = Away()
    store: Any = notes
    denials = Denials(lambda: store)
    denials.note(Source(401, "10.0.0.1"), "GET /api/v1/jobs", "x")
    with pytest.raises(StoreUnavailable):
        denials.flush()
    notes.away = False
    denials.note(Source(401, "10.0.0.1"), "GET /api/v1/jobs", "x")
    denials.flush()
    assert [after["count"] for _, after in notes.lines] == [2]


def test_a_key_is_revoked_with_a_reason(locked: House) -> None:
    root = locked.caller(locked.key("root", "admin"))
    key = locked.key("old", "viewer").split("_")[1]
    assert root.delete(f"/keys/{key}", params={"why": "left the team"}).status_code == 200
    [entry] = locked.ops.audit(target=key, verb="revoke").entries
    assert entry.why == "left the team"
