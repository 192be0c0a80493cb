"""Whom does a server without keys answer, and whose word does it take for where a request comes from?"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.conformance.conftest import NEW
from tests.server.conftest import House, serving, shop, visitor
from tests.waiting import until
from windlass.server.authentication import FORWARDED, Proxies

JOB: dict[str, Any] = {"json": {"type": "add", "payload": {"a": 1}}}


@pytest.mark.parametrize(
    "header", [*sorted(name.decode() for name in FORWARDED), "x-forwarded-for", "x-forwarded-port"]
)
def test_without_keys_a_forwarded_request_is_refused(house: House, header: str) -> None:
    answer = house.caller().post("/jobs", headers={header: "203.0.113.9"}, **JOB)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:windlass:problem:forwarded")
    assert header in answer.json()["detail"]
    assert "--trusted-proxy" in answer.json()["detail"]
    assert house.ops.status().counts["due"] == 0


def test_a_proxy_that_is_trusted_may_forward(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue, trusted_proxies=("127.0.0.0/8",)) as house:
        assert (
            house.caller().post("/jobs", headers={"X-Forwarded-For": "203.0.113.9"}, **JOB).status_code == 201
        )
    with shop(store_url) as queue, serving(queue, trusted_proxies=("10.0.0.1",)) as house:
        assert (
            house.caller().post("/jobs", headers={"X-Forwarded-For": "203.0.113.9"}, **JOB).status_code == 403
        )


@pytest.mark.parametrize(("trusted", "secure"), [("127.0.0.1", True), ("10.0.0.1", False)])
def test_only_a_trusted_proxy_says_that_the_browser_speaks_https(trusted: str, *, secure: bool) -> None:
    with NEW["sqlite"]() as url, shop(url) as queue, serving(queue, trusted_proxies=(trusted,)) as house:
        key = house.key("root", "admin")
        assert house.caller(key).get("/keys").status_code == 200
        headers = {"Origin": house.url, "X-Forwarded-Proto": "https"}
        with visitor(house.url) as browser:
            cookie = browser.post("/login", json={"key": key}, headers=headers).headers["set-cookie"]
    assert cookie.startswith("__Host-windlass" if secure else "windlass")
    assert cookie.endswith("; Secure") is secure


def test_with_keys_a_forwarded_request_is_as_good_as_its_key(locked: House) -> None:
    api = locked.caller(locked.key("billing", "producer"))
    assert api.post("/jobs", headers={"X-Forwarded-For": "203.0.113.9"}, **JOB).status_code == 201


def test_behind_a_trusted_proxy_the_clients_address_is_audited(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue, trusted_proxies=("127.0.0.1",)) as house:
        root = house.caller(house.key("root", "admin"))
        assert root.get("/keys").status_code == 200
        hops = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}
        assert house.caller().get("/jobs", headers=hops).status_code == 401
        until(lambda: house.ops.audit(verb="denied").entries, "it is audited")
        [entry] = house.ops.audit(verb="denied").entries
    assert entry.target == "203.0.113.9", "what stands before it may be the client's own invention"


def test_nobody_elses_word_is_taken_for_an_address(locked: House) -> None:
    assert locked.caller().get("/jobs", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 401
    until(lambda: locked.ops.audit(verb="denied").entries, "it is audited")
    [entry] = locked.ops.audit(verb="denied").entries
    assert entry.target == "127.0.0.1"


@pytest.mark.parametrize(
    ("hops", "address"),
    [
        ([], "10.0.0.1"),
        (["203.0.113.9"], "203.0.113.9"),
        (["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        (["198.51.100.1", "203.0.113.9:4711, 10.0.0.2"], "203.0.113.9"),
        (["[2001:db8::1]:4711"], "2001:db8::1"),
        (["2001:db8::1"], "2001:db8::1"),
        (["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (["203.0.113.9, nonsense"], "10.0.0.1"),
        (["nonsense, 10.0.0.2"], "10.0.0.2"),
        ([""], "10.0.0.1"),
    ],
)
def test_the_last_address_that_no_trusted_proxy_has_is_the_clients(hops: list[str], address: str) -> None:
    headers = [(b"x-forwarded-for", hop.encode()) for hop in hops]
    scope = {"client": ("10.0.0.1", 1), "headers": headers}
    assert Proxies(["10.0.0.0/24"]).address(scope) == address
    assert Proxies(["192.168.0.0/16"]).address(scope) == "10.0.0.1"
    assert Proxies().address(scope) == "10.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""])
def test_insecure_does_not_answer_to_a_name_that_anybody_may_have(store_url: str, host: str) -> None:
    """A page whose name is resolved to this machine would make itself a key (DNS rebinding)."""
    with shop(store_url) as queue, serving(queue, insecure=True) as house:
        made = house.caller().post(
            "/keys",
            json={"name": "x", "roles": ["admin"]},
            headers={"Host": host, "Origin": f"http://{host}"},
        )
        assert (made.status_code, made.json()["type"]) == (421, "urn:windlass:problem:foreign-host")
        assert house.ops.keys() == []


def test_insecure_answers_to_addresses_and_to_names_that_are_allowed(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue, insecure=True, allowed_hosts=("Queue.internal",)) as house:
        names = ("10.1.2.3:8080", "[::1]:8080", "[2001:db8::1]", socket.gethostname(), "queue.internal:8080")
        for host in names:
            assert house.caller().post("/jobs", headers={"Host": host}, **JOB).status_code == 201, host
        # Nobody needs a key here, so a proxy may forward as well.
        assert house.caller().post("/jobs", headers={"X-Forwarded-For": "1.2.3.4"}, **JOB).status_code == 201


def test_on_the_loopback_a_name_may_be_allowed(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue, allowed_hosts=("jobs.test",)) as house:
        assert house.caller().post("/jobs", headers={"Host": "jobs.test"}, **JOB).status_code == 201
        assert house.caller().post("/jobs", headers={"Host": "10.1.2.3"}, **JOB).status_code == 421
