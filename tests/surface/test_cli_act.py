"""How does an operator change jobs from a terminal?"""

from __future__ import annotations

import io
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.surface.conftest import Terminal
from windlass import connect
from windlass.ops import Ops
from windlass.store.jobs import Filter


def _wait(windlass: Terminal, *keys: str) -> None:
    for key in keys:
        windlass.ok("run", "--key", key, "--", "echo", key)


def _states(windlass: Terminal) -> dict[str, str]:
    return {job["key"]: job["state"] for job in windlass.jobs()}


def _answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_the_verbs_move_jobs_as_the_table_of_transitions_says(windlass: Terminal) -> None:
    _wait(windlass, "a", "b", "c")
    assert windlass.ok("cancel", "a").out.endswith(": cancelled\n")
    assert windlass.ok("bury", "b", "c", "--why", "no good").out.count(": moved to the dead letters\n") == 2
    assert windlass.ok("discard", "b").out.endswith(": discarded\n")
    assert windlass.ok("replay", "c").out.endswith(": sent back to be run\n")
    assert _states(windlass) == {"a": "cancelled", "b": "discarded", "c": "pending"}
    assert [change["verb"] for change in windlass.ok("show", "c", "--json").json["changes"]] == [
        "bury",
        "replay",
    ]


def test_a_waiting_job_is_given_another_payload(windlass: Terminal) -> None:
    _wait(windlass, "a")
    payload = '{"command": ["echo", "b"]}'
    assert windlass.ok("edit", "a", "--payload", payload, "--why", "typo").out.endswith(
        ": has its new payload\n"
    )
    job = windlass.ok("show", "a", "--json").json
    assert (job["payload"], job["changes"][-1]["why"]) == ({"command": ["echo", "b"]}, "typo")
    assert job["changes"][-1]["before"] == {"command": ["echo", "a"]}
    for wrong in ('{"command": 1}', "[]", "{"):
        assert windlass("edit", "a", "--payload", wrong).code in (1, 2)
    windlass.ok("bury", "a")
    assert "edit is for pending jobs" in windlass("edit", "a", "--payload", payload).err


@pytest.mark.parametrize(("verb", "states"), [("replay", "dead"), ("discard", "dead")])
def test_a_verb_against_the_rules_is_refused_and_the_others_are_done(
    windlass: Terminal, verb: str, states: str
) -> None:
    _wait(windlass, "a", "b")
    windlass.ok("cancel", "a")
    windlass.ok("bury", "b")
    answer = windlass(verb, "a", "nix", "b")
    assert answer.code == 1
    refused, unknown = answer.err.splitlines()
    assert f"it is cancelled; {verb} is for {states} jobs" in refused
    assert unknown == "windlass: no job has the id or key 'nix'"
    assert _states(windlass)["b"] != "dead"


@pytest.mark.parametrize(
    "command",
    [
        "show order",
        "explain order",
        "cancel order",
        "bury order",
        "bury order; discard order",
        "bury order; replay order",
        """bury order; replay order --payload {"command":"true"}""",
        "bury order; dlq edit order --yes --file payload.json",
        "cancel order; rerun order",
        "priority order 9",
        "reschedule order --now",
        "audit order",
    ],
)
def test_every_command_that_names_a_job_takes_its_tenant(windlass: Terminal, command: str) -> None:
    for tenant in ("acme", "globex"):
        windlass.ok("run", "--key", "order", "--tenant", tenant, "--delay", "1h", "--", "true")
    (windlass.folder / "payload.json").write_text('{"command": "true"}')
    for step in command.split("; "):
        unclear = windlass(*step.split())
        assert unclear.code == 1
        assert "key 'order' belongs to 2 jobs: " in unclear.err
        assert windlass.ok(*step.split(), "--tenant", "acme").out
    [other] = windlass.jobs("--tenant", "globex")
    assert (other["state"], other["priority"], other["changes"]) == ("pending", 5, [])


def test_an_ended_job_is_run_again_as_a_new_one(windlass: Terminal) -> None:
    _wait(windlass, "a")
    windlass.ok("cancel", "a")
    old = windlass.ok("show", "a", "--json").json["id"]
    refused = windlass("replay", "a")
    assert refused.code == 1
    assert refused.err.endswith("; to run it once more as a new job, use rerun\n")
    new, _, told = windlass.ok("rerun", "a", "--why", "too soon").out.strip().partition(": ")
    assert told == f"a new run of {old}"
    made = windlass.ok("show", new, "--json").json
    assert (made["state"], made["key"], made["rerun_of"]) == ("pending", None, old)
    assert f"rerun of    {old}" in windlass.ok("show", new).out
    assert "rerun is for completed, cancelled and discarded jobs" in windlass("rerun", new).err


def test_a_long_error_is_cut_in_a_table_and_whole_in_json(windlass: Terminal) -> None:
    _wait(windlass, "a")
    why = "x" * 1_500
    windlass.ok("bury", "a", "--why", why)
    assert max(map(len, windlass.ok("list").out.splitlines())) < 400
    assert why in windlass.ok("list", "--json").out


def test_sensitive_jobs_are_replayed_by_who_confirms_it(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    windlass.write(
        "bank.py",
        "from windlass import Queue\n"
        "queue = Queue()\n"
        "@queue.job(sensitive=True)\n"
        "def pay(cents: int) -> None: ...\n",
    )
    for key in ("a", "b", "c"):
        windlass.ok("enqueue", "pay", '{"cents": 5}', "--key", key, "--app", "bank:queue")
    windlass.ok("bury", "a", "b", "c")
    by_name, by_filter = windlass("replay", "a"), windlass("replay", "--type", "pay", "--yes")
    with_payload = windlass("dlq", "replay", "a", "--payload", '{"cents": 6}')
    for answer in (by_name, by_filter, with_payload):
        assert answer.code == 1
        assert "type 'pay' is sensitive" in answer.err
        assert "--confirm" in answer.err
    assert set(_states(windlass).values()) == {"dead"}
    windlass.ok("dlq", "replay", "a", "--payload", '{"cents": 6}', "--confirm")
    # Whoever is asked in the editor's wake has looked at it.
    monkeypatch.setenv("EDITOR", "sed -i s/5/7/")
    assert windlass("dlq", "edit", "b", "--yes").code == 1
    _answer(monkeypatch, "y\n")
    windlass.ok("dlq", "edit", "b")
    windlass.ok("replay", "--type", "pay", "--yes", "--confirm")
    assert set(_states(windlass).values()) == {"pending"}


def test_a_filter_chooses_jobs_after_a_dry_run_and_a_yes(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wait(windlass, "a", "b", "c")
    assert windlass.ok("cancel", "--type", "shell", "--dry-run").out == "3 jobs would be cancelled\n"
    _answer(monkeypatch, "n\n")
    declined = windlass("cancel", "--type", "shell")
    assert (declined.code, "3 jobs will be cancelled. Continue? [y/N]" in declined.err) == (1, True)
    assert set(_states(windlass).values()) == {"pending"}
    _answer(monkeypatch, "y\n")
    done = windlass.ok("cancel", "--type", "shell")
    assert done.out == "3 jobs cancelled\n"
    # Without a terminal there is no bar: the operation is named at its start.
    [operation] = windlass.ok("operation", "list", "--json").json["operations"]
    assert done.err.endswith(f"windlass: operation {operation['id']} started\n")
    assert set(_states(windlass).values()) == {"cancelled"}
    assert windlass.ok("cancel", "--type", "shell", "--yes").out == "no jobs match\n"


def test_a_paused_operation_says_why_and_that_no_process_carries_it(windlass: Terminal) -> None:
    _wait(windlass, "a")
    opened = connect.open("windlass.db")
    try:
        name = Ops(opened.store).operations.start("cancel", Filter(types=("shell",)), why="wrong text").id
        opened.store.take_operation("web1-4711", timedelta(seconds=10))
    finally:
        opened.close()
    assert "carried by  web1-4711\n" in windlass.ok("operation", "show", name).out
    windlass.ok("operation", "pause", name, "--why", "too fast")
    shown = windlass.ok("operation", "show", name).out
    assert re.search(r"^paused      .* by .* \(too fast\)$", shown, re.MULTILINE)
    assert "carried by  no process; the last was web1-4711\n" in shown
    assert "why         wrong text\n" in shown


def test_without_anybody_to_ask_nothing_is_done(windlass: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    _wait(windlass, "a")
    _answer(monkeypatch, "")
    answer = windlass("cancel", "--all")
    assert (answer.code, _states(windlass)) == (1, {"a": "pending"})
    assert answer.err.splitlines()[-1].endswith("not done: it was not confirmed; --yes confirms beforehand")


def test_a_limit_takes_the_oldest(windlass: Terminal) -> None:
    _wait(windlass, "a", "b", "c")
    windlass.ok("bury", "--all", "--yes")
    answer = windlass.ok("dlq", "replay", "--type", "shell", "--limit", "2", "--yes", "--json")
    assert (answer.json["matched"], answer.json["done"], answer.json["refused"]) == (2, 2, 0)
    assert _states(windlass) == {"a": "pending", "b": "pending", "c": "dead"}


def test_more_than_a_page_of_jobs_is_reached_at_a_rate(windlass: Terminal) -> None:
    windlass.write("jobs.ndjson", '{"command": "x"}\n' * 1100)
    windlass.ok("enqueue", "--file", "jobs.ndjson")
    answer = windlass.ok("bury", "--where", "payload.command=x", "--rate", "100000/s", "--yes", "--json").json
    assert (answer["matched"], answer["done"]) == (1100, 1100)
    assert windlass.ok("status", "--json").json["counts"]["dead"] == 1100


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["cancel"], "say which jobs: an ID, a filter such as --type, or --all"),
        (["cancel", "a", "--type", "shell"], "name jobs by ID or choose them by a filter, not both"),
        (["cancel", "a", "--all"], "not both"),
        (["discard", "--state", "pending", "--yes"], "state must be dead: others cannot be discarded"),
        (["cancel", "--all", "--limit", "0", "--yes"], "limit must be at least 1, got 0"),
        (["replay", "--payload", "{}", "--all"], "--payload is for one ID"),
        (["replay", "a", "--payload", "{"], "payload must be valid JSON"),
        (["priority", "a", "11"], "priority must be a whole number between 0 and 10, got 11"),
        (["priority", "a", "high"], "'high' is not a valid integer"),
        (["priority", "a"], "N is missing: 'a' is not a whole number"),
        (["reschedule", "a"], "use exactly one of --now"),
        (["reschedule", "a", "--now", "--delay", "1s"], "use exactly one of --now"),
        (["reschedule", "a", "--dry-run"], "use exactly one of --now"),
        (["reschedule", "--all", "--yes"], "use exactly one of --now"),
        (["reschedule", "--type", "none_has_it", "--dry-run"], "use exactly one of --now"),
        (["reschedule", "--all", "--delay", "40000d", "--yes"], "delay must be"),
        (["priority", "a", "99", "--dry-run"], "priority must be a whole number between 0 and 10, got 99"),
        (["priority", "--all", "99", "--yes"], "priority must be a whole number between 0 and 10, got 99"),
        (
            ["priority", "--type", "none_has_it", "99", "--dry-run"],
            "priority must be a whole number between 0 and 10",
        ),
    ],
)
def test_a_command_line_that_makes_no_sense_changes_nothing(
    windlass: Terminal, args: list[str], words: str
) -> None:
    _wait(windlass, "a")
    answer = windlass(*args)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert words in answer.err
    assert _states(windlass) == {"a": "pending"}
    assert windlass.ok("operation", "list", "--json").json == {"operations": []}


@pytest.mark.parametrize("option", ["--tenant", "--key", "--error", "--type"])
def test_an_empty_filter_is_refused(windlass: Terminal, option: str) -> None:
    _wait(windlass, "a")
    for words in (("list",), ("cancel", "--dry-run"), ("cancel", "--yes")):
        answer = windlass(*words, option, "")
        assert (answer.code, answer.out) == (2, "")
        assert f"{option} must be a text that is not empty, got ''" in answer.err
    assert _states(windlass) == {"a": "pending"}


def test_priority_and_time_of_a_waiting_job_can_be_changed(windlass: Terminal) -> None:
    _wait(windlass, "a")
    windlass.ok("priority", "a", "9")
    windlass.ok("reschedule", "a", "--at", "2090-01-01T00:00:00")
    [job] = windlass.jobs()
    assert (job["priority"], job["run_at"], job["view"]) == (9, "2090-01-01T00:00:00Z", "scheduled")
    assert [change["why"] for change in job["changes"]] == ["priority 9", "run at 2090-01-01 00:00:00 UTC"]
    windlass.ok("reschedule", "a", "--now")
    assert windlass.jobs()[0]["view"] == "due"
    windlass.ok("cancel", "a")
    refused = windlass("priority", "a", "3")
    assert (refused.code, "it is cancelled" in refused.err) == (1, True)
    assert "cannot change the priority of job" in refused.err
    for more in ((), ("--dry-run",)):
        refused = windlass("reschedule", "a", "--now", *more)
        assert "cannot reschedule job" in refused.err
        assert "reschedule is for pending jobs" in refused.err
        assert refused.code == 1


def test_replay_refuses_a_payload_that_no_longer_fits(windlass: Terminal) -> None:
    _wait(windlass, "a")
    windlass.ok("bury", "a")
    refused = windlass("replay", "a", "--payload", '{"command": 3}')
    assert (refused.code, refused.err) == (
        1,
        "windlass: shell: payload.command must be a string or an array, got 3\n",
    )
    several = windlass("replay", "a", "--payload", '{"comand": "x", "cwd": 5}')
    assert [several.code, len(several.err.splitlines())] == [1, 3]
    for line, field in zip(several.err.splitlines(), ("command", "comand", "cwd"), strict=True):
        assert f"payload.{field}" in line
    assert _states(windlass) == {"a": "dead"}


def _editor(windlass: Terminal, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    path = windlass.write("editor.sh", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(path))
    return path


def test_editing_a_dead_job_checks_it_and_sends_it_back(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wait(windlass, "a")
    windlass.ok("bury", "a")
    _editor(windlass, monkeypatch, """sed -i 's/"a"/"b"/' "$1" """)
    windlass.ok("dlq", "edit", "a", "--yes", "--why", "typo")
    job = windlass.ok("show", "a", "--json").json
    assert (job["state"], job["payload"], job["replay_count"]) == ("pending", {"command": ["echo", "b"]}, 1)
    assert job["changes"][-1]["before"] == {"command": ["echo", "a"]}
    again = windlass("dlq", "edit", "a")
    assert (again.code, "it is pending; edit is for dead jobs" in again.err) == (1, True)


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("exit 0", 0, "Nothing was changed."),
        ("""printf '{"command":\\n ["echo", "a"]}' > "$1" """, 0, "Nothing was changed."),
        ("""echo '{"command": 3}' > "$1" """, 1, "payload.command must be a string or an array, got 3"),
        ("""echo '{"command"' > "$1" """, 2, "payload must be valid JSON"),
    ],
)
def test_an_edit_that_is_empty_or_wrong_leaves_the_job_dead(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch, script: str, code: int, words: str
) -> None:
    _wait(windlass, "a")
    windlass.ok("bury", "a")
    # Editors look at when a file was last changed.
    _editor(windlass, monkeypatch, f"""{script}; touch -d '+2 seconds' "$1" """)
    _answer(monkeypatch, "")
    answer = windlass("dlq", "edit", "a", "--yes")
    assert (answer.code, words in answer.err) == (code, True)
    job = windlass.ok("show", "a", "--json").json
    assert (job["state"], job["payload"]) == ("dead", {"command": ["echo", "a"]})
