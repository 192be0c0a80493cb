"""What does the person on call type, and what is answered?"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3

import pytest

from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE


def _wait(windlass: Terminal, *keys: str) -> None:
    for key in keys:
        windlass.ok("enqueue", f'{{"id": "{key}", "command": ["echo", "{key}"]}}')


def test_a_job_is_explained_by_id_or_key_and_in_its_story(windlass: Terminal) -> None:
    _wait(windlass, "a")
    told = windlass.ok("explain", "a").out
    said = "no running worker serves shell; none has been seen lately: start a worker with --shell\n"
    assert told.startswith(said)
    assert "to change that: windlass worker start --shell\n" in told
    document = windlass.ok("explain", "a", "--json").json
    assert (document["cause"], document["link"]) == ("no_worker", {"kind": "type", "name": "shell"})
    assert "  why         no running worker serves shell" in windlass.ok("show", "a").out
    windlass.ok("cancel", "a")
    assert "  why  " not in windlass.ok("show", "a").out
    unknown = windlass("explain", "nobody")
    assert (unknown.code, unknown.err.count("\n")) == (1, 1)


def test_a_line_chooses_jobs_as_the_options_do(windlass: Terminal) -> None:
    _wait(windlass, "a", "b")
    windlass.ok("bury", "b")
    assert [job["key"] for job in windlass.jobs("state:dead")] == ["b"]
    assert [job["key"] for job in windlass.jobs("error:=cancelled type:shell")] == ["b"]
    assert windlass.jobs("error:=cancel") == []
    assert [job["key"] for job in windlass.jobs("a")] == ["a"]
    wrong = windlass("list", "typ:x")
    assert (wrong.code, wrong.err.count("\n"), "one of type:, state:" in wrong.err) == (2, 1, True)
    both = windlass("list", "state:dead", "--type", "shell")
    assert (both.code, "cannot be combined" in both.err) == (2, True)


def test_dead_letters_are_grouped(windlass: Terminal) -> None:
    assert windlass("dlq", "list", "--group").code == 3
    _wait(windlass, "a", "b")
    assert windlass.ok("dlq", "list", "--group").err == "There are no dead letters.\n"
    windlass.ok("bury", "a", "b")
    [group] = windlass.ok("dlq", "list", "--group", "--json").json["groups"]
    assert (group["type"], group["error"], group["count"], group["match"]) == (
        *("shell", "cancelled", 2),
        "=cancelled",
    )
    assert len(group["spark"]) == 24
    line = windlass.ok("dlq", "list", "--group").out.splitlines()[1]
    assert line.split()[:3] == ["2", "shell", "cancelled"]
    assert windlass.ok("dlq", "list", "--group", "--type", "other", "--json").json["groups"] == []
    refused = windlass("dlq", "list", "--group", "--tenant", "x")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_doctor_answers_with_its_exit_code(windlass: Terminal) -> None:
    gone = windlass("doctor", "--json")
    assert (gone.code, gone.json["healthy"], gone.json["diagnoses"][-1]["name"]) == (3, False, "store")
    windlass.ok("db", "migrate")
    well = windlass("doctor", "--json")
    assert (well.code, well.json["healthy"]) == (0, True)
    assert {"schema", "clock", "disk", "workers", "leases"} <= {
        each["name"] for each in well.json["diagnoses"]
    }
    _wait(windlass, "a")
    ill = windlass("doctor", "--quiet")
    assert ill.code == 1
    assert "BAD workers" in ill.out
    assert "to fix it: windlass worker start" in ill.out
    assert "ok " not in ill.out
    # A store of an older release.
    with contextlib.closing(sqlite3.connect("windlass.db")) as connection, connection:
        connection.execute("delete from windlass_schema where number > 1")
    old = windlass("doctor", "--json")
    assert (old.code, old.json["diagnoses"][-1]["name"]) == (1, "schema")
    assert old.json["diagnoses"][-1]["fix"] == "windlass db migrate"
    served = windlass("doctor", "--db", "http://127.0.0.1:1")
    assert (served.code, served.err.count("\n")) == (1, 1)


def test_a_frame_and_a_second_of_what_happens(windlass: Terminal) -> None:
    _wait(windlass, "a")
    frame = windlass.ok("top", "--once").out
    assert "due 1" in frame
    assert "no worker is running: windlass worker start" in frame
    assert windlass.ok("top", "--json").json["status"]["counts"]["due"] == 1
    assert windlass.ok("tail", "--for", "10ms").out == ""


def test_a_tail_tells_of_a_job_while_it_happens(windlass: Terminal) -> None:
    windlass.ok("db", "migrate")
    with windlass.start("tail", "--json", bufsize=1) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        try:
            assert "Ctrl-C" in tail.stderr.readline()
            windlass.apart("run", "--", "false")
            assert json.loads(tail.stdout.readline())["what"] == "enqueued"
            windlass.apart("worker", "start", "--until-empty")
            told = json.loads(tail.stdout.readline())
            told = told if told["what"] != "started" else json.loads(tail.stdout.readline())
            assert (told["what"], told["attempt"], told["error"]["reason"]) == ("retrying", 1, "exception")
            tail.send_signal(signal.SIGINT)
            assert (tail.wait(PATIENCE), tail.stderr.read()) == (0, "")
        finally:
            tail.kill()


def test_a_payload_that_does_not_fit_is_kept_for_another_try(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wait(windlass, "a")
    windlass.ok("bury", "a")
    editor = windlass.write(
        "editor.sh", """#!/bin/sh\necho '{"command": 3}' > "$1"; touch -d '+2 seconds' "$1"\n"""
    )
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.setenv("TMPDIR", str(windlass.folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    refused = windlass("dlq", "edit", "a", "--yes")
    assert refused.code == 1
    [kept] = windlass.folder.glob("windlass-*.json")
    assert f"--file {kept}" in refused.err
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text('{"command": "echo fixed"}')
    windlass.ok("dlq", "edit", "a", "--yes", "--file", str(kept))
    job = windlass.ok("show", "a", "--json").json
    assert (job["state"], job["payload"]) == ("pending", {"command": "echo fixed"})
