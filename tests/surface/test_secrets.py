"""Is a password ever printed, logged, or made into the name of a file? Each with a canary."""

from __future__ import annotations

import json
import logging

import pytest

from tests.surface.conftest import Terminal

CANARY = "Hunter2"
# What a person types who means a server, and is one slip away from it.
SLIPS = (
    "postgres//u:{}@h/db",
    "postgresql:/u:{}@h/db",
    "postgresql:u:{}@h/db",
    "postgresql;//u:{}@h/db",
    "postgresql ://u:{}@h/db",
    "Postgresql://u:{}@h/db",
    " postgresql://u:{}@h/db",
    "'postgresql://u:{}@h/db'",
    "postgre://u:{}@h/db",
    "postgresql+psycopg://u:{}@h/db",
    "mysql://u:{}@h/db",
    "sqlite://u:{}@h/db",
    "sqlite:/u:{}@h/db",
    "sqlite:///postgresql://u:{}@h/db",
    "u:{}@h/db",
    "u:{}@h:5432/db",
    "//u:{}@h/db",
    "jdbc:postgresql://h/db?user=u&password={}",
    "psql postgresql://u:{}@h/db",
    "DATABASE_URL=postgresql://u:{}@h/db",
    "host=h user=u password={}",
    "password={} host=h",
    "password='{}'",
    "user=u Password = {}",
    "dbname=x;password={}",
    "sslpassword={} dbname=x",
    "PGPASSWORD={}",
    "sqlite:///x.db?password={}",
    "file:x.db?key={}",
    "http:/wl_abc_{}@h",
    "http//wl_abc_{}@h",
    "https:wl_abc_{}@h",
    "HTTP://wl_abc_{}@h",
    "http://wl_abc_{}@",
    "wl_abc_{}@127.0.0.1:8080",
    "127.0.0.1:8080?key=wl_abc_{}",
    "wl_abc_{}",
)
RIGHT = ("http://wl_abc_{}@127.0.0.1:1", "postgresql://u:{}@127.0.0.1:1/db?sslpassword={}")
COMMANDS = (
    ("enqueue", "shell", '{"command": "true"}'),
    ("status",),
    ("doctor",),
    ("config", "get"),
    ("config", "validate"),
    ("db", "migrate"),
    ("db", "backup", "copy.db"),
    ("keys", "list"),
)


def check(windlass: Terminal, caplog: pytest.LogCaptureFixture, *words: str) -> int:
    """Type it, and look for the canary in all that it leaves behind; the exit code."""
    with caplog.at_level(logging.DEBUG):
        answer = windlass(*words)
    assert CANARY not in answer.out + answer.err, words
    assert CANARY not in caplog.text
    return answer.code


@pytest.mark.parametrize("url", SLIPS)
def test_a_mistyped_address_is_no_file_name_and_its_password_is_not_printed(
    windlass: Terminal, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    address = url.replace("{}", CANARY)
    for command in COMMANDS:
        assert check(windlass, caplog, *command, "--db", address) == 2, command
    assert check(windlass, caplog, "db", "move", "--to", address) != 0
    assert list(windlass.folder.iterdir()) == []


@pytest.mark.parametrize("url", [*SLIPS[::6], *RIGHT])
def test_an_address_in_a_file_or_variable_is_kept_as_secret(
    windlass: Terminal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    address = url.replace("{}", CANARY)
    windlass.write("windlass.toml", f"database_url = {json.dumps(address)}")
    assert (check(windlass, caplog, "config", "get", "database_url") == 2) == (url not in RIGHT)
    (windlass.folder / "windlass.toml").unlink()
    monkeypatch.setenv("WINDLASS_DATABASE_URL", address)
    assert (check(windlass, caplog, "config", "get", "--json") == 2) == (url not in RIGHT)
    assert list(windlass.folder.iterdir()) == []


def test_doctor_does_not_print_the_key_of_a_server(
    windlass: Terminal, caplog: pytest.LogCaptureFixture
) -> None:
    assert check(windlass, caplog, "doctor", "--db", f"http://wl_abc_{CANARY}@127.0.0.1:1") == 1
    assert "http://127.0.0.1:1 is a server" in windlass("doctor", "--db", f"http://{CANARY}@127.0.0.1:1").err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'database_url = "postgresql://b:{CANARY}@h/x"\noops\n', "line 2, column 5"),
        (f'database_url = "postgresql://b:{CANARY}@h/x\n', "line 1, column 43"),
        (f"[alerts]\nsecret = {CANARY}", "line 2, column 10"),
        (f'"{CANARY}" = 1\n"{CANARY}" = 2\n', "line 2, column"),
        (f'encryption_keys = ["{CANARY}"', "the end of the file"),
    ],
)
def test_a_slip_in_the_file_is_told_by_its_place_and_not_by_its_content(
    windlass: Terminal, caplog: pytest.LogCaptureFixture, text: str, told: str
) -> None:
    windlass.write("windlass.toml", text)
    for command in (("status",), ("config", "validate"), ("run", "--", "true")):
        assert check(windlass, caplog, *command) == 2
        said = windlass(*command).err
        assert said.startswith("windlass: windlass.toml must be valid TOML, got an error at ")
        assert told in said
        assert len(said) < 100


@pytest.mark.parametrize(
    "text",
    [
        f'[alerts.secret]\ntext = "{CANARY}"',
        f'alerts.secret = ["{CANARY}"]',
        f'database_url = ["postgresql://u:{CANARY}@h/db"]',
        f'[database_url]\npassword = "{CANARY}"',
        f'encryption_keys = [["{CANARY}"]]',
        f'encryption_keys = "{CANARY}"',
    ],
)
def test_a_secret_of_the_wrong_form_is_not_repeated(
    windlass: Terminal, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    windlass.write("windlass.toml", text)
    assert check(windlass, caplog, "config", "validate") == 2


def test_files_that_only_look_odd_are_files(windlass: Terminal) -> None:
    for name in ("./me@work.db", "sqlite:///a=b.db", "postgres.db", "http.d/jobs.db", "sqlite:///u:p@h.db"):
        path = windlass.folder / name.removeprefix("sqlite:///")
        path.parent.mkdir(exist_ok=True)
        windlass.ok("run", "--db", name, "--", "true")
        assert path.exists()
