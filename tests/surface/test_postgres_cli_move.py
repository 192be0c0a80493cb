"""Can a person at a terminal take a store to PostgreSQL, and see how it goes?"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.servers import postgres
from tests.surface.conftest import Terminal

HERE = ("--db", "jobs.db")


@pytest.fixture
def target() -> Iterator[str]:
    with postgres.fresh(16) as url:
        yield url


def test_a_store_is_moved_and_tells_where_it_went(windlass: Terminal, target: str) -> None:
    windlass.ok("run", *HERE, "--key", "a", "--", "true")
    moved = windlass.ok("db", "move", *HERE, "--to", target)
    assert moved.out.splitlines()[-1].startswith(f"moved to {target.partition('?')[0]}")
    assert "copying   [##############################] 100%  5 of 5 rows" in moved.err
    refused = windlass("run", *HERE, "--", "true")
    assert (refused.code, "jobs.db has moved to postgresql://" in refused.err) == (3, True)
    assert refused.err.count("\n") == 1
    stopped = windlass("worker", "start", *HERE, "--until-empty")
    assert (stopped.code, "has moved to postgresql://" in stopped.err) == (3, True)
    shown, there = (windlass.ok("show", "a", "--db", url, "--json").json for url in ("jobs.db", target))
    assert shown == there
    assert "! " in windlass.ok("db", "status", *HERE).out
    again = windlass.ok("db", "move", *HERE, "--to", target, "--json")
    assert (again.json["copied"], again.json["tables"]) == (0, {})


def test_machines_get_lines_and_one_document(windlass: Terminal, target: str) -> None:
    windlass.ok("run", *HERE, "--", "true")
    moved = windlass.ok("db", "move", *HERE, "--to", target, "--json")
    steps = [json.loads(line) for line in moved.err.splitlines()]
    assert {step["step"] for step in steps} == {"copying", "checking"}
    assert steps[-1]["rows"] == steps[-1]["total"] == 4
    assert moved.json["tables"]["jobs"]["rows"] == 1


def test_what_is_not_over_can_be_taken_back_and_what_never_began_cannot(
    windlass: Terminal, target: str
) -> None:
    windlass.ok("run", *HERE, "--", "true")
    refused = windlass("db", "move", *HERE, "--to", target, "--abort")
    assert (refused.code, "is not being moved" in refused.err) == (1, True)
    windlass.ok("db", "move", *HERE, "--to", target)
    refused = windlass("db", "move", *HERE, "--to", target, "--abort")
    assert (refused.code, "has moved to" in refused.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--to", "other.db"), 2, "--to must be postgresql://user@host/database, got 'other.db'"),
        (("--to", "postgresql://me:hush@127.0.0.1:1/x"), 3, "cannot be reached"),
        (("--to", "postgresql://x/y", "--drain", "--force"), 2, "cannot be combined"),
        ((), 2, "Missing option '--to'"),
        (("--to", "postgresql://x/y", "--db", "nowhere.db"), 3, "there is no store at"),
        (("--to", "postgresql://x/y", "--db", "postgresql://x/z"), 2, "must be a file of SQLite"),
    ],
)
def test_what_cannot_be_moved_is_said_in_one_line(
    windlass: Terminal, words: tuple[str, ...], code: int, told: str
) -> None:
    windlass.ok("run", *HERE, "--", "true")
    answer = windlass("db", "move", *HERE, *words)
    assert (answer.code, answer.err.count("\n")) == (code, 1)
    assert told in answer.err
    assert "hush" not in answer.err
    windlass.ok("run", *HERE, "--", "true")
