"""Is a request that is wrong told what is wrong with it, and what is allowed?"""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import House
from tests.server.messages import everything
from windlass.job import JobState

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"type": "add", "payload": {"a": 1}, "run_at": "soon"}', "run_at must be a time in ISO 8601"),
        (
            '{"type": "add", "payload": {"a": 1}, "delay": "soon"}',
            "a duration: seconds, or words",
        ),
        ('{"type": "add", "payload": {"a": 1}, "key": "\\ud800"}', "half a character"),
        (
            '{"type": "add", "type": "mail.send", "payload": {"a": 1}}',
            "type is given twice; it must be given once",
        ),
        ('{"type": "add", "payload": {"a": 1, "a": 2}}', "duplicate key 'a'"),
    ],
)
def test_a_refusal_names_the_field_and_what_is_allowed(house: House, body: str, told: str) -> None:
    for path, sent in (("/jobs", body), ("/jobs/batch", f'{{"jobs": [{body}]}}')):
        answer = house.caller().post(path, content=body if path == "/jobs" else sent, headers=JSON)
        assert answer.status_code == 400
        assert told in answer.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ('"unique": "u", "on_unique": "x"', "on_unique must be one of error, replace, skip, got 'x'"),
        ('"unique": "u", "until": "x"', "until must be one of done, start, got 'x'"),
        ('"on_dead": "x"', "on_dead must be one of cancel, run, wait, got 'x'"),
        ('"on_conflict": 5', "on_conflict must be one of error, existing, got 5"),
        ('"priority": 11', "priority must be a whole number between 0 and 10, got 11"),
        ('"priority": 1e400', "priority must be a whole number between 0 and 10, got 1e400"),
        ('"delay": 1e400', 'delay must be a duration: seconds, or words such as "30s", .*, got 1e400'),
        ('"delay": []', r"delay must be a duration: .*, got \[\]"),
        ('"delay": -1', "delay must be between 0s and 3650d, got -1.0"),
        ('"delay": "-1s"', "delay must be between 0s and 3650d, got '-1s'"),
        ('"delay": "1000000d"', "delay must be between 0s and 3650d, got '1000000d'"),
        (
            '"run_at": 5',
            "run_at must be a time in ISO 8601, such as 2030-01-31T09:00:00Z; without a zone .*, got 5",
        ),
        ('"key": ""', "key must be a string of 1 to 256 characters, got ''"),
        ('"depends_on": "x"', "depends_on must be a list of 0 to 1000 values, got 'x'"),
    ],
)
def test_a_value_of_a_form_is_told_with_its_field_and_what_is_allowed(
    house: House, fields: str, told: str
) -> None:
    job = f'{{"type": "add", "payload": {{"a": 1}}, {fields}}}'
    one = house.caller().post("/jobs", content=job, headers=JSON)
    assert (one.status_code, bool(re.fullmatch(told, one.json()["detail"]))) == (400, True), one.text
    many = house.caller().post("/jobs/batch", content=f'{{"jobs": [{job}]}}', headers=JSON)
    assert (many.status_code, bool(re.fullmatch(rf"jobs\[0\](\.|: ){told}", many.json()["detail"]))) == (
        400,
        True,
    ), many.text


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("POST", "/jobs/batch", '{"jobs": [], "jobs": []}', "jobs must be a list of 1 to 100 values, got []"),
        (
            "POST",
            "/jobs/actions",
            '{"action": "x"}',
            "action must be one of bury, cancel, discard, priority, replay, reschedule, got",
        ),
        (
            "POST",
            "/jobs/actions",
            '{"action": "cancel", "filter": {"ids": [], "ids": []}}',
            "filter.ids is given twice; it must be given once",
        ),
        (
            "POST",
            "/keys",
            '{"name": "x", "roles": ["x"]}',
            "roles must be one or more of producer, worker, viewer",
        ),
        ("PUT", "/settings", '{"settings": {"a": []}}', "settings.a must be a string or a whole number"),
    ],
)
def test_a_value_within_a_form_is_told_by_its_path(
    house: House, method: str, path: str, body: str, told: str
) -> None:
    answer = house.caller().request(method, path, content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(told)


def test_the_name_of_a_batch_has_the_same_bound_on_every_route(house: House) -> None:
    job, name = '{"type": "add", "payload": {"a": 1}}', "x" * 129
    batch = house.caller().post(
        "/jobs/batch", content=f'{{"jobs": [{job}], "batch": "{name}"}}', headers=JSON
    )
    lines = {"Content-Type": "application/x-ndjson"}
    bulk = house.caller().post("/jobs/bulk", content=job, params={"batch": name}, headers=lines)
    for answer in (batch, bulk):
        assert answer.status_code == 400
        assert re.match("batch must be a (string|text) of 0 to 128 characters", answer.json()["detail"])


def test_a_date_alone_is_a_time(house: House) -> None:
    job = {"type": "add", "payload": {"a": 1}, "run_at": "2030-01-31"}
    made = house.caller().post("/jobs", json=job).json()["id"]
    assert house.queue.get(made).run_at.isoformat() == "2030-01-31T00:00:00+00:00"


def test_a_member_may_stand_in_the_payload_as_well(house: House) -> None:
    jobs = [{"type": "mail.send", "payload": {"to": '"type": "key":'}, "key": f"k{n}"} for n in range(3)]
    assert house.caller().post("/jobs/batch", json={"jobs": jobs}).status_code == 201


def test_headers_that_come_in_one_piece_are_bounded(house: House) -> None:
    address = urlsplit(house.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 30) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n")
        said = everything(line)
    assert said.startswith(b"HTTP/1.1 431 ")


def test_a_job_that_was_completed_cannot_fail_any_more(house: House) -> None:
    api = house.caller()
    house.queue.enqueue("add", {"a": 1})
    claimed = api.post("/leases", json={"worker": "w", "types": ["add"]}).json()
    [lease] = [each["lease"] for each in claimed["leases"]]
    for _ in range(2):
        assert api.post(f"/leases/{lease}/complete", json={"result": 1}).status_code == 200
    failed = api.post(f"/leases/{lease}/fail", json={"message": "no"})
    assert (failed.status_code, "was completed" in failed.json()["detail"]) == (409, True)


@pytest.mark.parametrize("first", ["fail", "release"])
def test_a_job_that_was_failed_or_given_back_cannot_be_completed_any_more(house: House, first: str) -> None:
    api = house.caller()
    job = house.queue.enqueue("add", {"a": 1})
    claimed = api.post("/leases", json={"worker": "w", "types": ["add"]}).json()
    [lease] = [each["lease"] for each in claimed["leases"]]
    sent = {"message": "no", "delay": "1h"} if first == "fail" else {}
    for _ in range(2):
        assert api.post(f"/leases/{lease}/{first}", json=sent).status_code == 200
    completed = api.post(f"/leases/{lease}/complete", json={"result": 1})
    assert (completed.status_code, "was failed or given back" in completed.json()["detail"]) == (409, True)
    assert job.get().state is JobState.PENDING


# --- every problem at once ------------------------------------------------------------------------


def listed(house: House, path: str, body: str, status: int = 400) -> dict[str, str | None]:
    """The fields in `errors`, with the values that were sent there."""
    answer = house.caller().post(path, content=body, headers=JSON)
    assert answer.status_code == status, answer.text
    errors = answer.json()["errors"]
    assert all(each["allowed"] for each in errors)
    assert len({each["field"] for each in errors}) == len(errors)
    return {each["field"]: each.get("value") for each in errors}


def test_every_problem_of_a_form_is_listed(house: House) -> None:
    body = (
        '{"priority": 11, "max_attempts": null, "delay": [], "run_at": "soon", "on_dead": true, '
        '"color": "red", "key": 1e400}'
    )
    assert listed(house, "/jobs", body) == {
        "type": None,
        "priority": "11",
        "delay": "[]",
        "run_at": "soon",
        "key": "1e400",
        "on_dead": "true",
        "color": "red",
    }
    detail = house.caller().post("/jobs", content=body, headers=JSON).json()["detail"]
    assert detail == "type is missing; and 6 more: `errors` lists all"


def test_every_problem_of_every_job_of_a_batch_is_listed(house: House) -> None:
    body = '{"jobs": [{"type": "add"}, {"type": "A", "priority": -1}, {"type": "add", "id": 5}], "batch": 1}'
    assert listed(house, "/jobs/batch", body) == {
        "jobs[0].payload.a": None,
        "jobs[1].type": "A",
        "jobs[1].priority": "-1",
        "jobs[2].payload.a": None,
        "jobs[2].id": "5",
        "batch": "1",
    }


def test_every_problem_of_the_options_and_the_payload_is_listed(house: House) -> None:
    job = '{"type": "add", "payload": {"a": "x", "c": 1}, "delay": "soon", "id": "me"}'
    assert listed(house, "/jobs", job) == {
        "payload.a": '"x"',
        "payload.c": "1",
        "delay": "soon",
        "id": "me",
    }
    batch = f'{{"jobs": [{{"type": "add", "payload": {{"a": 1}}}}, {job}, {{"type": "none"}}]}}'
    assert listed(house, "/jobs/batch", batch) == {
        "jobs[1].payload.a": '"x"',
        "jobs[1].payload.c": "1",
        "jobs[1].delay": "soon",
        "jobs[1].id": "me",
        "jobs[2].type": "none",
    }
    lines = f'{{"type": "add", "payload": {{"a": 1}}}}\n{job}\n{{"type": "none"}}'
    answer = house.caller().post(
        "/jobs/bulk", content=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.json()["index"] == 1
    assert [each["field"] for each in answer.json()["errors"]][-1] == "jobs[2].type"
    wrong = answer.request.content.decode().replace('"type": "add", "payload": {"a": 1}', '"type": 5')
    answer = house.caller().post(
        "/jobs/bulk", content=wrong + '\n{"jobs": []}', headers={"Content-Type": "application/x-ndjson"}
    )
    assert [each["field"] for each in answer.json()["errors"]] == [
        *("jobs[0].type", "jobs[1].delay", "jobs[1].id", "jobs[1].payload.a", "jobs[1].payload.c"),
        *("jobs[2].type", "jobs[3].type", "jobs[3].jobs"),
    ]
    assert not any(house.ops.status().counts.values())


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/jobs?limit=0&state=ready&where=size>1&older_than=soon&colour=red", None),
        ("/failures?since=soon&limit=many", ["since", "limit"]),
        ("/stats/history?step=week&from=soon&to=later", ["step", "from", "to"]),
        ("/operations?limit=1001&limit=2&x=1", ["query", "limit"]),
        ("/jobs?limit=abc&cursor=zz&q=typ:x", ["limit", "cursor", "q"]),
        ("/jobs?state=foo&state=bar&where=a&where=b", ["state", "state", "where", "where"]),
        ("/jobs?q=state:foo typ:boom bar:x", ["q", "q", "state"]),
        ("/jobs?q=state:dead&tenant=a&key=b", ["tenant", "key"]),
        ("/audit?cursor=zz&limit=0&x=1", ["query", "cursor", "limit"]),
    ],
)
def test_every_problem_of_a_query_is_listed(house: House, path: str, fields: list[str] | None) -> None:
    answer = house.caller().get(path)
    found = [each["field"] for each in answer.json()["errors"]]
    assert answer.status_code == 400
    assert found == (fields or ["query", "limit", "state", "where", "older_than"])


def test_every_problem_of_an_edit_is_listed(house: House) -> None:
    job = house.queue.enqueue("add", {"a": 1}, delay="1h")
    for said in (
        {"run_at": "soon", "delay": "later", "payload": {"a": "x", "c": 1}},
        {"run_at": "2030-01-31", "delay": "1h", "payload": {"a": "x", "c": 1}},
    ):
        answer = house.caller().patch(f"/jobs/{job.id}", json=said)
        found = {each["field"] for each in answer.json()["errors"]}
        assert answer.status_code == 400
        assert found >= {"run_at", "payload.a", "payload.c"}
        assert "delay" in found or said["delay"] == "1h"
    assert bytes(job.get().payload) == b'{"a":1}'


def test_a_wrong_field_of_an_edit_or_a_replay_does_not_hide_its_payload(house: House) -> None:
    job = house.queue.enqueue("add", {"a": 1}, delay="1h")
    said: dict[str, object] = {"payload": {"a": "x"}, "why": 5}
    for method, path, more in (("PATCH", "", {"priority": 99}), ("POST", "/replay", {"confirm": "yes"})):
        answer = house.caller().request(method, f"/jobs/{job.id}{path}", json=said | more)
        assert answer.status_code == 400
        assert {each["field"] for each in answer.json()["errors"]} == {"why", "payload.a", *more}


@pytest.mark.parametrize(
    ("wish", "fields"),
    [
        ({"cron": "never"}, ["payload.a", "cron"]),
        ({"cron": "never", "tz": "Mars/X", "overlap": "x"}, ["payload.a", "cron", "tz", "overlap"]),
        ({"type": "none", "cron": "x", "every": "1h", "tz": "Mars/X"}, ["type", "cron, every", "cron", "tz"]),
        ({"cron": 5, "priority": 99, "every": "0s"}, ["cron", "priority", "payload.a", "every"]),
        ({"name": 5, "type": 5, "cron": "never"}, ["name", "type", "cron"]),
    ],
)
def test_every_problem_of_a_schedule_is_listed(
    house: House, wish: dict[str, object], fields: list[str]
) -> None:
    sent = {"name": "nightly", "type": "add", "payload": {"a": "x"}} | wish
    answer = house.caller().post("/schedules", json=sent)
    assert answer.status_code == 400
    found = [each["field"] for each in answer.json()["errors"]]
    assert sorted(found) == sorted(fields)


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"),
    [
        (
            "POST",
            "/keys",
            {"name": "!", "roles": ["king"], "types": ["É"], "rate": 1e-9, "expires": "0s"},
            ["name", "roles", "types", "rate", "expires"],
        ),
        ("POST", "/keys", {"roles": ["king"], "rate": -1, "x": 1}, ["name", "rate", "x", "roles"]),
        (
            "PUT",
            "/settings",
            {"settings": {"low_share": -1, "keep_dead": "soon", "retry.kind": "list"}},
            ["settings.low_share", "keep_dead", "retry.kind"],
        ),
        (
            "PUT",
            "/types/add",
            {"settings": {"concurrency": -1, "rate": "x", "nothing": 1}},
            ["settings.concurrency", "add.rate", "setting"],
        ),
        (
            "PUT",
            "/types/none",
            {"settings": {"rate": -1, "burst": "x"}},
            ["settings.rate", "type", "none.burst"],
        ),
        (
            "POST",
            "/leases",
            {"worker": "!", "types": ["add"], "wait": "soon", "lease": "1s"},
            ["worker", "wait", "lease"],
        ),
        ("PUT", "/settings", {"settings": {"keep_dead": "soon", "nothing": "1"}}, ["keep_dead", "setting"]),
        (
            "POST",
            "/leases",
            {"worker": "w", "types": ["add"], "wait": "soon", "lease": "1s"},
            ["wait", "lease"],
        ),
    ],
)
def test_every_problem_of_other_forms_is_listed(
    house: House, method: str, path: str, body: dict[str, object], fields: list[str]
) -> None:
    answer = house.caller().request(method, path, json=body)
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json()["errors"]] == fields


def test_every_problem_of_an_action_on_many_jobs_is_listed(house: House) -> None:
    body = (
        '{"action": "reschedule", "filter": {"ids": ["x"], "older_than": "soon"}, "delay": "later", '
        '"confirm": true}'
    )
    assert set(listed(house, "/jobs/actions", body)) == {"confirm", "delay", "filter.ids", "older_than"}
    body = '{"action": "x", "limit": 0, "filter": {"state": ["foo"], "ids": 5}}'
    assert set(listed(house, "/jobs/actions", body)) == {"action", "limit", "filter.ids", "state"}
    answer = house.caller().post("/jobs/actions", json={"action": "priority", "filter": {"state": ["DEAD"]}})
    assert answer.json()["detail"] == "priority is missing: priority needs it"


def test_states_of_a_filter_are_read_in_any_case(house: House) -> None:
    body = {"action": "discard", "filter": {"state": ["DEAD"]}, "dry_run": True}
    assert house.caller().post("/jobs/actions", json=body).status_code == 200


def test_a_reason_has_the_same_bound_in_a_body_and_in_a_query(house: House) -> None:
    why = "x" * 1001
    body = house.caller().post("/schedules/s/pause", json={"why": why})
    query = house.caller().delete("/schedules/s", params={"why": why})
    start = "why must be a string of 0 to 1000 characters, got"
    for answer in (body, query):
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith(start)
    assert house.caller().delete("/schedules/s", params={"why": why[1:]}).status_code == 404


def test_a_refusal_of_a_batch_names_the_first_job_that_is_wrong(house: House) -> None:
    right = {"type": "add", "payload": {"a": 1}}
    bad = [right | {"payload": {"a": "x"}}, right | {"type": "none"}, right | {"priority": 77}]
    answer = house.caller().post("/jobs/batch", json={"jobs": [right, *bad]}).json()
    assert answer["index"] == 1
    assert [each["field"] for each in answer["errors"]] == [
        *("jobs[1].payload.a", "jobs[2].type", "jobs[3].priority"),
    ]
    assert house.caller().post("/jobs/batch", json={"jobs": [right, bad[2]]}).json()["index"] == 1


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        ({"type": "add", "payload": {"a": "x", "z": 1}}, {"payload.a", "payload.z"}),
        ({"type": "none", "delay": "soon"}, {"type", "delay"}),
        ({"type": "add", "payload": 5}, {"payload"}),
        ({"type": "none", "run_at": "soon"}, {"type", "run_at"}),
        ({"payload": {"a": "x"}}, {"type"}),
    ],
)
def test_a_wrong_field_does_not_hide_the_type_and_the_payload(
    house: House, job: dict[str, object], fields: set[str]
) -> None:
    answer = house.caller().post("/jobs", json=job | {"priority": 99})
    assert answer.status_code == 400
    assert {each["field"] for each in answer.json()["errors"]} == {"priority", *fields}
    assert not any(house.ops.status().counts.values())


def test_what_is_no_json_is_refused_in_plain_words(house: House) -> None:
    answer = house.caller().post("/jobs", content="[" * 100_000, headers=JSON).json()
    assert answer["detail"].startswith("body must be nested at most ")
    answer = house.caller().post("/jobs", content='{"type": x}', headers=JSON).json()
    assert answer["detail"].startswith("body is not valid JSON: ")
    assert [each["allowed"] for each in answer["errors"]] == ["valid JSON"]
    answer = house.caller().post("/jobs", content="{}", headers={"Content-Type": "text/plain"}).json()
    assert answer["title"] == "Not JSON"


def test_the_number_of_problems_that_are_listed_has_a_bound(house: House) -> None:
    jobs = ", ".join(['{"type": "add", "priority": 11, "delay": []}'] * 100)
    answer = house.caller().post("/jobs/batch", content=f'{{"jobs": [{jobs}]}}', headers=JSON)
    assert len(answer.json()["errors"]) == 100
