"""Does the command line do and say the same on every store? One walk through it, from nothing to nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def _named(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_DATABASE_URL", store_url)


def states(windlass: Terminal) -> dict[str, str]:
    return {job["key"] or job["type"]: job["state"] for job in windlass.jobs()}


def test_a_walk_from_the_first_job_to_the_last_record(windlass: Terminal, shop: str) -> None:
    refused = windlass("status")
    assert (refused.code, refused.out, refused.err.count("\n")) == (3, "", 1)

    # Jobs come in: twice under one key, for later, some that cannot succeed, and one that does not fit.
    add = ("enqueue", "add", '{"a": 1}', "--app", shop, "--key")
    windlass.ok(*add, "one")
    assert "exists already" in windlass.ok(*add, "one").out
    windlass.ok(*add, "later", "--delay", "1h")
    windlass.ok("enqueue", "poison", '{"n": 1}', "--key", "bad")
    windlass.ok("enqueue", "poison", '{"n": 2}', "--key", "worse")
    unfit = windlass("enqueue", "add", '{"b": 1}')
    assert (unfit.code, "payload.a" in unfit.err) == (1, True)
    changed = windlass("enqueue", "add", '{"a": 2}', "--key", "one")
    assert (changed.code, changed.err.count("\n")) == (1, 1)
    windlass.ok("run", "--", "echo", "hello")
    assert "no worker is running" in windlass.ok("status").out

    # A worker runs what is due.
    worked = windlass.apart("worker", "start", shop, "--until-empty")
    assert (worked.code, worked.out) == (0, "nothing left to run; 1 scheduled, 0 retrying\n"), worked.err
    assert states(windlass) == {
        "one": "completed",
        "later": "pending",
        "bad": "dead",
        "worse": "dead",
        "shell": "completed",
    }
    assert windlass.ok("show", "one", "--json").json["result"] == 1
    assert "never 1" in windlass.ok("show", "bad").out
    assert "2 dead letters of poison" in windlass.ok("status").out
    assert [row["name"] for row in windlass.ok("types", "--json").json["types"]] == ["add", "poison", "shell"]

    # An operator clears up.
    windlass.ok("cancel", "later")
    assert windlass("cancel", "one").code == 1
    windlass.ok("replay", "bad")
    windlass.ok("priority", "bad", "9")
    windlass.ok("bury", "bad")
    assert len(windlass.ok("dlq", "list", "--json").json["jobs"]) == 2
    windlass.ok("dlq", "discard", "worse")
    windlass.ok("dlq", "replay", "bad")
    assert windlass.ok("cancel", "--type", "poison", "--dry-run").out == "1 job would be cancelled\n"
    windlass.ok("cancel", "--type", "poison", "--yes")
    assert Counter(states(windlass).values()) == {"completed": 2, "cancelled": 2, "discarded": 1}

    # And the store is looked after.
    windlass.ok("db", "backup", "copy")
    assert (windlass.folder / "copy").stat().st_size > 0
    assert windlass.ok("db", "check").out == "No problems found.\n"
    found = windlass.ok("db", "status", "--json").json
    assert (found["live"], found["archived"]) == (0, 5)
    windlass.ok("config", "set", "keep_ended", "0s")
    assert windlass.ok("db", "prune").out == "5 jobs deleted\n"
    assert windlass.jobs() == []


def test_a_command_is_followed_to_its_end(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    with windlass.start("worker", "start") as worker:
        try:
            followed = windlass.apart("run", "--wait", "--", "echo", "out")
            health = windlass.ok("worker", "health", "--json").json["workers"]
            assert [each["pid"] for each in health] == [worker.pid]
            assert "1 worker is running" in windlass.ok("status").out
            assert windlass.ok("worker", "stop").out.endswith(": stopped\n")
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
    assert (followed.code, followed.out) == (0, "out\n")
