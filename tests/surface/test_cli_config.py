"""How are configuration and store seen and changed from a terminal?"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.surface.conftest import Terminal
from windlass.store import migration

MIGRATIONS = migration.load("sqlite")
NEWEST = MIGRATIONS[-1].number
ALL = ", ".join(each.label for each in MIGRATIONS)


def _value(windlass: Terminal, name: str, *flags: str) -> tuple[Any, str, str]:
    [found] = windlass.ok("config", "get", name, "--json", *flags).json["values"]
    return found["value"], found["source"], found["where"]


def test_every_effective_value_is_shown_with_its_source(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    windlass.write(
        "windlass.toml", 'database_url = "sqlite:///jobs.db"\n[worker]\nlease = "2m"\npoll = "5s"\n'
    )
    monkeypatch.setenv("WINDLASS_WORKER_POLL", "500ms")
    windlass.ok("config", "set", "retry.base", "10s")
    assert _value(windlass, "database_url") == ("sqlite:///jobs.db", "file", "windlass.toml")
    assert _value(windlass, "database_url", "--db", "x.db") == ("x.db", "flag", "--db")
    assert _value(windlass, "worker.lease") == ("2m", "file", "windlass.toml")
    assert _value(windlass, "worker.poll") == ("0.5s", "env", "WINDLASS_WORKER_POLL")
    assert _value(windlass, "worker.threads") == (10, "default", "")
    assert _value(windlass, "retry.base") == (10.0, "stored", "the store")
    assert _value(windlass, "max_attempts") == (5, "default", "")
    table = windlass.ok("config", "get").out
    assert table.splitlines()[0].split() == ["NAME", "VALUE", "SOURCE", "WHERE"]
    assert "worker.poll" in table


def test_values_are_shown_with_what_they_count(windlass: Terminal) -> None:
    windlass.ok("config", "set", "mail.breaker.share", "0.5")
    lines = [" ".join(line.split()) for line in windlass.ok("config", "get").out.splitlines()]
    assert "mail.breaker.share 0.5 stored the store" in lines
    assert "low_share 0 default" in lines
    assert "retry.base 30s default" in lines
    assert "worker.child_growth 256 MB default" in lines


def test_a_setting_holds_until_it_is_set_again_or_reset(windlass: Terminal) -> None:
    windlass.ok("config", "set", "mail.timeout", "10m")
    assert _value(windlass, "mail.timeout") == ("10m", "stored", "the store")
    windlass.ok("config", "set", "mail.timeout", "20m")
    assert _value(windlass, "mail.timeout")[0] == "20m"
    windlass.ok("config", "set", "mail.timeout", "--reset")
    assert _value(windlass, "mail.timeout") == (None, "default", "not set: the code of the type holds")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["set", "foo", "3"], "setting must be one of max_attempts, timeout"),
        (["set", "foo", "--reset"], "setting must be one of max_attempts, timeout"),
        (["set", "max_attempts", "21"], "max_attempts must be a whole number between 1 and 20, got '21'"),
        (["set", "mail.retry.kind", "maybe"], "mail.retry.kind must be one of exponential"),
        (["set", "mail.retry.kind", "list"], "mail.retry.kind must be set after mail.retry.delays"),
        (["set", "worker.threads", "3"], "worker.threads is no run-time setting"),
        (["set", "timeout"], "say either a VALUE or --reset"),
        (["set", "timeout", "5m", "--reset"], "say either a VALUE or --reset"),
        (["get", "nope"], "name must be one of database_url, app, app_version, worker.threads"),
    ],
)
def test_what_cannot_be_set_or_got_is_refused(windlass: Terminal, args: list[str], words: str) -> None:
    windlass.ok("run", "--", "true")
    answer = windlass("config", *args)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert words in answer.err


def test_validate_names_what_is_wrong(windlass: Terminal, monkeypatch: pytest.MonkeyPatch, shop: str) -> None:
    windlass.ok("run", "--", "true")
    assert windlass.ok("config", "validate").out == "The configuration is valid.\n"
    monkeypatch.setenv("WINDLASS_WORKER_THREDS", "3")
    notes = windlass.ok("config", "validate", "--app", shop).out
    assert "WINDLASS_WORKER_THREDS means nothing to Windlass" in notes
    assert "app shop:queue has the types add, poison, shell" in notes
    windlass.write("windlass.toml", "[worker]\nlease = 30\n")
    refused = windlass("config", "validate")
    assert refused.code == 2
    assert refused.err == "windlass: worker.lease (windlass.toml) must be between 60s and 3600s, got '30s'\n"
    assert windlass("status").code == 2


def test_a_password_is_not_shown(windlass: Terminal) -> None:
    windlass.write("windlass.toml", 'database_url = "postgresql://ann:s3cret@db/jobs"\n')
    answer = windlass("config", "get", "database_url")
    assert "s3cret" not in answer.out + answer.err


def test_a_wrong_url_is_a_wrong_command_line(windlass: Terminal) -> None:
    refused = windlass("status", "--db", "postgresql://ann:s3cret@localhost:notaport/jobs")
    assert refused.code == 2
    assert refused.err == (
        "windlass: port of the database URL must be a number from 1 to 65535, got 'notaport'\n"
    )


def test_the_store_can_be_looked_at_copied_checked_and_pruned(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "a", "--", "true")
    windlass.ok("run", "--key", "b", "--", "true")
    windlass.ok("cancel", "a")
    status = windlass.ok("db", "status", "--json").json
    assert (status["kind"], status["live"], status["archived"]) == ("sqlite", 1, 1)
    assert "live jobs" in windlass.ok("db", "status").out
    windlass.ok("db", "backup", "copy.db")
    assert {job["key"] for job in windlass.jobs("--db", "copy.db")} == {"a", "b"}
    again = windlass("db", "backup", "copy.db")
    assert (again.code, "a file that does not exist yet" in again.err) == (2, True)
    assert windlass.ok("db", "check").out == "No problems found.\n"
    assert windlass.ok("db", "prune", "--json").json == {"pruned": 0}
    assert windlass.ok("db", "prune", "--ended", "0", "--json").json == {"pruned": 1}
    assert [job["key"] for job in windlass.jobs()] == ["b"]


def test_pruning_follows_the_stored_retention(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "a", "--", "true")
    windlass.ok("cancel", "a")
    windlass.ok("config", "set", "keep_ended", "0")
    assert windlass.ok("db", "prune").out == "1 job deleted\n"


def test_migrating_gives_a_database_our_tables_and_is_harmless_on_our_own(windlass: Terminal) -> None:
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("create table orders (id integer primary key)")
    refused = windlass("status", "--db", "shop.db")
    assert (refused.code, "a database without Windlass tables" in refused.err) == (3, True)
    assert windlass.ok("db", "migrate", "--db", "shop.db").out.endswith(
        f"has schema {NEWEST}, the newest: applied {ALL}\n"
    )
    windlass.ok("status", "--db", "shop.db")
    assert windlass.ok("db", "migrate", "--db", "shop.db", "--json").json == {
        "schema": NEWEST,
        "applied": [],
    }
    with closing(sqlite3.connect("shop.db")) as connection:
        assert connection.execute("select count(*) from orders").fetchone() == (0,)


def test_a_dry_run_says_what_migrating_would_do_and_does_nothing(windlass: Terminal) -> None:
    assert windlass.ok("db", "migrate", "--db", "new.db", "--dry-run").out == "".join(
        f"apply {each.label}\n" for each in MIGRATIONS
    )
    found = windlass.ok("db", "migrate", "--db", "new.db", "--dry-run", "--json").json
    assert (found["number"], found["pending"]) == (None, [each.label for each in MIGRATIONS])
    assert not (windlass.folder / "new.db").exists()
    windlass.ok("db", "migrate", "--db", "new.db")
    assert (
        windlass.ok("db", "migrate", "--db", "new.db", "--dry-run").out == f"nothing to do: schema {NEWEST}\n"
    )


def test_the_status_of_a_store_that_is_too_new_is_still_told(windlass: Terminal) -> None:
    windlass.ok("db", "migrate", "--db", "new.db")
    with closing(sqlite3.connect("new.db")) as connection:
        connection.execute("insert into windlass_schema values (?, 'later', 'contract', 0)", (NEWEST + 1,))
        connection.commit()
    refused = windlass("list", "--db", "new.db")
    assert (refused.code, "install a newer Windlass" in refused.err) == (3, True)
    told = windlass.ok("db", "status", "--db", "new.db").out
    assert f"{NEWEST + 1} (this version of Windlass knows {NEWEST})" in told
    assert "! " in told
    found = windlass.ok("db", "status", "--db", "new.db", "--json").json
    assert (found["number"], found["newest"], found["usable"]) == (NEWEST + 1, NEWEST, False)


def test_a_setting_for_a_type_that_nobody_knows_is_kept_with_a_warning(windlass: Terminal) -> None:
    answer = windlass.ok("config", "set", "nosuch.max_attempts", "4")
    assert answer.out == "nosuch.max_attempts = 4\n"
    assert answer.err.startswith("windlass: no type 'nosuch' is known yet")
    assert windlass.ok("config", "set", "shell.max_attempts", "4").err == ""
