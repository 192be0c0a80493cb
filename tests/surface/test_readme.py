"""The README's first example, typed as printed; and every example, run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WHOLE_RUN

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def typed(command: str, folder: Path) -> str:
    """What a command prints to a person in that folder."""
    words = shlex.split(command)
    words[0] = str(BIN / words[0])
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=WHOLE_RUN, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_block(language: str) -> str:
    found = re.search(
        rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None
    return found[1]


def test_the_first_example_works_as_printed_and_with_only_the_url_changed(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = first_block("python")
    assert example.count("sqlite:///jobs.db") == 1
    (tmp_path / "app.py").write_text(example.replace("sqlite:///jobs.db", store_url), encoding="utf-8")
    monkeypatch.delenv("WINDLASS_DATABASE_URL", raising=False)
    commands = [line[2:] for line in first_block("console").splitlines() if line.startswith("$ ")]
    assert [command.split()[0] for command in commands] == ["python", "windlass"]
    accepted = re.fullmatch(r"accepted ([0-9a-f-]{36})\n", typed(commands[0], tmp_path))
    assert accepted is not None
    printed = first_block("console").splitlines()[-2:]
    assert typed(commands[1], tmp_path).splitlines() == printed
    monkeypatch.setenv("WINDLASS_DATABASE_URL", store_url)
    assert "greet" in typed("windlass status", tmp_path)
    assert accepted[1] in typed("windlass list", tmp_path)
    assert "greeted world" in typed(f"windlass show {accepted[1]}", tmp_path)


def test_every_example_runs_and_is_listed(tmp_path: Path) -> None:
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for example in sorted((ROOT / "examples").glob("*.py")):
        assert f"({example.name})" in listed
        assert typed(f"python '{example}'", tmp_path), example


def test_the_examples_end_as_they_say(tmp_path: Path) -> None:
    told = typed(f"python '{ROOT}/examples/failures.py'", tmp_path).splitlines()
    ended = dict(line.split()[:2] for line in told)
    assert ended == {
        "flaky": "completed",
        "hopeless": "dead",
        "picky": "dead",
        "patient": "completed",
        "unwanted": "cancelled",
    }
    shop = typed(f"python '{ROOT}/examples/orders.py'", tmp_path)
    assert "order 1 is confirmed to ann@example.org" in shop
    assert "rolled back" in shop
    assert "bob" not in shop
