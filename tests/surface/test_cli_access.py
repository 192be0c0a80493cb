"""How are API keys made on the command line, and who did what?"""

from __future__ import annotations

import re

from tests.surface.conftest import Terminal


def test_a_key_is_shown_once_and_listed_without_its_secret(windlass: Terminal) -> None:
    made = windlass.ok(
        "keys", "create", "billing", "--role", "producer", "--type", "mail.*", "--rate", "50/s"
    )
    secret = made.out.strip()
    found = re.fullmatch(r"wl_([0-9a-f]{12})_[\w-]{43}", secret)
    assert found is not None
    assert "not shown again" in made.err
    assert "restart workers that should not run shell jobs" in made.err
    listed = windlass.ok("keys", "list").out
    assert "billing" in listed
    assert "50/s" in listed
    assert secret.split("_", 2)[2] not in listed + windlass.ok("keys", "list", "--json").out
    assert "restart workers" not in windlass.ok("keys", "create", "eye", "--role", "viewer").err
    assert windlass.ok("keys", "revoke", found[1]).out == f"{found[1]}: revoked\n"
    assert "revoked" in windlass.ok("keys", "list").out


def test_what_makes_no_key_is_one_line(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    assert windlass("keys", "revoke", "nix").err == "windlass: no API key has the id 'nix'\n"
    assert windlass("keys", "create", "a b", "--role", "viewer").code == 2
    assert windlass("keys", "create", "x").code == 2
    assert windlass.ok("keys", "list").out == "there are no API keys\n"


def test_what_is_done_on_the_command_line_stands_in_the_audit_log(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "a", "--", "true")
    assert windlass.ok("audit").out == "no entries\n"
    windlass.ok("bury", "a", "--why", "no good")
    windlass.ok("config", "set", "timeout", "10m")
    windlass.ok("keys", "create", "eye", "--role", "viewer")
    told = windlass.ok("audit", "--json").json["entries"]
    assert [each["verb"] for each in told] == ["create", "set", "bury"]
    assert (told[2]["why"], told[2]["before"], told[2]["after"]) == (
        "no good",
        {"state": "pending"},
        {"state": "dead"},
    )
    assert "state: pending -> dead; no good" in windlass.ok("audit", "a").out
    assert len(windlass.ok("audit", "--verb", "set", "--json").json["entries"]) == 1


def test_what_is_held_back_on_the_command_line_stands_in_the_audit_log(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    for words in (
        ("pause", "shell"),
        ("resume", "shell"),
        ("limit", "shell", "--concurrency", "2", "--rate", "9/m"),
        ("limit", "shell", "--reset"),
        ("breaker", "shell", "open"),
        ("schedule", "add", "tick", "--command", "true", "--every", "1h"),
        ("schedule", "add", "tick", "--command", "true", "--every", "2h", "--replace"),
        ("schedule", "pause", "tick"),
        ("schedule", "resume", "tick"),
        ("schedule", "run", "tick"),
        ("schedule", "remove", "tick"),
    ):
        windlass.ok(*words, "--why", " ".join(words[:2]))
    told = windlass.ok("audit", "--json").json["entries"][::-1]
    assert [(each["verb"], each["target"], each["why"]) for each in told] == [
        ("pause", "shell", "pause shell"),
        ("resume", "shell", "resume shell"),
        ("set", "shell.concurrency", "limit shell"),
        ("set", "shell.rate", "limit shell"),
        ("reset", "shell.concurrency", "limit shell"),
        ("reset", "shell.rate", "limit shell"),
        ("breaker", "shell", "breaker shell"),
        ("add", "tick", "schedule add"),
        ("add", "tick", "schedule add"),
        ("pause", "tick", "schedule pause"),
        ("resume", "tick", "schedule resume"),
        ("run", "tick", "schedule run"),
        ("remove", "tick", "schedule remove"),
    ]
    changed = told[8]
    assert (changed["before"]["every"], changed["after"]["every"]) == ("3600s", "7200s")
    assert "every: 3600s -> 7200s" in windlass.ok("audit", "tick", "--verb", "add").out


def test_a_server_that_others_could_reach_refuses_to_start_without_keys(windlass: Terminal) -> None:
    answer = windlass.apart("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - that is what is tested
    assert answer.code == 1
    assert re.fullmatch(r"windlass: 0\.0\.0\.0 can be reached .*--insecure\n", answer.err)
    taken = windlass.apart("serve", "--port", "99999")
    assert (taken.code, "between 0 and 65535" in taken.err) == (2, True)
