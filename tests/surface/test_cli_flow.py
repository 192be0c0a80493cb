"""How does an operator hold jobs back from a terminal?"""

from __future__ import annotations

import pytest

from tests.surface.conftest import Terminal


@pytest.fixture
def crm(windlass: Terminal) -> None:
    """Two types that share a key, known to the store."""
    windlass.write(
        "crm.py",
        """
from windlass import Queue

queue = Queue()

@queue.job(limit_key="crm")
def sync_contact() -> None: ...

@queue.job(limit_key="crm")
def sync_deal() -> None: ...
""",
    )
    windlass.ok("enqueue", "sync_contact", "--app", "crm:queue")


def test_a_paused_type_is_accepted_shown_and_run_only_after_resume(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "first", "--", "true")
    said = windlass.ok("pause", "shell", "--why", "the disk is full").out
    assert said.startswith("shell: paused at ")
    windlass.ok("run", "--key", "second", "--", "true")

    left = windlass.ok("worker", "start", "--until-empty").out
    assert left == "nothing left to run; 0 scheduled, 0 retrying, 2 paused\n"
    status = windlass.ok("status").out
    assert "(the disk is full): 2 jobs wait" in status
    assert status.endswith(": windlass resume shell\n")
    [shell] = [each for each in windlass.ok("types", "--json").json["types"] if each["name"] == "shell"]
    assert shell["paused"]["why"] == "the disk is full"

    assert windlass.ok("resume", "shell").out == "shell: runs again\n"
    assert windlass.ok("resume", "shell").out == "shell: was not paused\n"
    windlass.ok("worker", "start", "--until-empty")
    assert [job["state"] for job in windlass.jobs()] == ["completed", "completed"]


def test_only_a_type_that_there_is_can_be_paused(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    assert windlass("pause", "nix") == (1, "", "windlass: unknown job type 'nix'; registered types: shell\n")
    assert windlass("pause", "No!").code == 2


def test_a_limit_is_set_shown_lifted_and_reset(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    assert windlass.ok("limit", "shell").out == "shell: no limit\n"
    assert (
        windlass.ok("limit", "shell", "--concurrency", "2", "--rate", "100/m").out
        == "shell: 2 at once, 100/m\n"
    )
    assert windlass.ok("limit", "shell", "--burst", "5").out == "shell: 2 at once, 100/m in bursts of 5\n"
    assert "2 at once, 100/m in bursts of 5" in windlass.ok("types").out
    assert windlass.ok("limit", "shell", "--concurrency", "none").out == "shell: 100/m in bursts of 5\n"
    assert windlass.ok("limit", "shell", "--reset").out == "shell: no limit\n"
    answer = windlass.ok("limit", "--all", "--rate", "50/s", "--json").json
    assert (answer["name"], answer["limit"]["rate"]["count"]) == ("*", 50)


def test_a_wrong_limit_is_refused_in_one_line(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    for words, said in (
        (
            ["shell", "--concurrency", "0"],
            "shell.concurrency must be a whole number between 1 and 1000000, or none",
        ),
        (
            ["shell", "--rate", "fast"],
            "shell.rate must be a rate such as 10/s, 100/m, 5000/h or 1/d, or none",
        ),
        (
            ["shell", "--concurrency", "9" * 5_000],
            "shell.concurrency must be a whole number between 1 and 1000000, or none",
        ),
        (["shell", "--burst", "5"], "shell.burst must be given together with a rate"),
        # Tenants are counted for types alone: elsewhere it would limit nothing.
        (["--all", "--tenant-concurrency", "3"], "setting must be one of *.concurrency, *.rate, *.burst"),
        (["shell", "--key", "crm"], "say one of TYPE, --key and --all"),
        (["shell", "--reset", "--rate", "1/s"], "say either limits or --reset"),
    ):
        answer = windlass("limit", *words)
        assert answer.code == 2
        assert answer.err.startswith(f"windlass: {said}")
        assert answer.err.count("\n") == 1
    wrong = windlass("limit", "shell", "--concurrency", "x", "--rate", "5", "--burst", "-1").err
    for named, line in zip(("concurrency", "rate", "burst"), wrong.splitlines(), strict=True):
        assert line.startswith(f"windlass: shell.{named} must be a ")
    assert windlass("limit", "nix", "--rate", "1/s").code == 1
    assert windlass.ok("limit", "shell").out == "shell: no limit\n"


def test_a_breaker_is_opened_shown_and_closed_by_hand(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    assert windlass.ok("breaker", "shell").out == "shell: closed\n"
    assert windlass.ok("breaker", "shell", "open", "--why", "it is down").out.startswith("shell: open since ")
    status = windlass.ok("status").out
    assert "The circuit breaker of shell was opened by" in status
    assert "(it is down): 1 job waits" in status
    assert "breaker open" in windlass.ok("types").out
    left = windlass.ok("worker", "start", "--until-empty").out
    assert left == "nothing left to run; 0 scheduled, 0 retrying, 1 paused\n"

    assert windlass.ok("breaker", "shell", "auto", "--json").json["open"] is False
    windlass.ok("worker", "start", "--until-empty")
    assert [job["state"] for job in windlass.jobs()] == ["completed"]
    assert windlass("breaker", "shell", "ajar").code == 2
    assert windlass("breaker", "open").code == 2
    assert windlass("breaker", "nix", "open").code == 1


def test_the_audit_log_tells_who_held_what_back(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    windlass.ok("pause", "shell", "--why", "the disk is full")
    windlass.ok("resume", "shell")
    windlass.ok("limit", "shell", "--concurrency", "2")
    windlass.ok("limit", "shell", "--reset")
    windlass.ok("breaker", "shell", "open")
    windlass.ok("schedule", "add", "tidy", "--command", "true", "--every", "1h")
    windlass.ok("schedule", "pause", "tidy")
    windlass.ok("schedule", "resume", "tidy")
    windlass.ok("schedule", "run", "tidy")
    windlass.ok("schedule", "remove", "tidy")
    told = [(each["verb"], each["target"]) for each in windlass.ok("audit", "--json").json["entries"]]
    assert told[::-1] == [
        ("pause", "shell"),
        ("resume", "shell"),
        ("set", "shell.concurrency"),
        ("reset", "shell.concurrency"),
        ("breaker", "shell"),
        ("add", "tidy"),
        ("pause", "tidy"),
        ("resume", "tidy"),
        ("run", "tidy"),
        ("remove", "tidy"),
    ]


@pytest.mark.usefixtures("crm")
def test_what_shares_a_key_is_limited_and_broken_together(windlass: Terminal) -> None:
    assert windlass.ok("limit", "--key", "crm", "--concurrency", "5").out == "key:crm: 5 at once\n"
    assert windlass("limit", "--key", "crm", "--tenant-concurrency", "3").code == 2
    assert windlass.ok("breaker", "sync_deal", "open").out.startswith("sync_deal: open since ")
    assert windlass.ok("breaker", "--key", "crm", "close").out.startswith("key:crm: closed since ")


@pytest.mark.usefixtures("crm")
def test_a_key_that_no_type_has_is_refused_with_those_that_there_are(windlass: Terminal) -> None:
    said = "windlass: no type has the limit_key 'crmm'; known keys: crm\n"
    for words in (["limit", "--concurrency", "5"], ["limit"], ["breaker", "open"], ["breaker"]):
        assert windlass(words[0], "--key", "crmm", *words[1:]) == (1, "", said)
    # Before the code is there it can be set all the same; and what is set can be lifted.
    told = windlass.ok("config", "set", "key:crmm.concurrency", "5").err
    assert told == "windlass: no limit_key 'crmm' is known yet; the setting holds once there is one\n"
    assert windlass.ok("limit", "--key", "crmm").out == "key:crmm: 5 at once\n"
    assert windlass.ok("limit", "--key", "crmm", "--reset").out == "key:crmm: no limit\n"


@pytest.mark.usefixtures("crm")
def test_a_breaker_setting_of_a_type_that_shares_one_is_refused(windlass: Terminal) -> None:
    answer = windlass("config", "set", "sync_deal.breaker.share", "0.5")
    assert answer.code == 2
    assert answer.err == (
        "windlass: setting must be key:crm.breaker.share, since sync_deal has the breaker of its limit_key, "
        "got 'sync_deal.breaker.share'\n"
    )
    windlass.ok("config", "set", "key:crm.breaker.share", "0.5")
