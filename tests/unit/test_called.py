"""Does a message name only commands that can be typed here?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.cli import screen


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which the program is not on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def a_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_on_the_path_it_is_called_by_its_name(nowhere: Path) -> None:
    a_program(nowhere / "windlass")
    assert screen.program_name(nowhere / "elsewhere/python") == "windlass"


def test_elsewhere_it_is_called_by_its_path_or_as_a_module(nowhere: Path) -> None:
    python = nowhere / "my shop/.venv/bin/python"
    assert screen.program_name(python) == "'my shop/.venv/bin/python' -m windlass"
    a_program(python.with_name("windlass"))
    assert screen.program_name(python) == "'my shop/.venv/bin/windlass'"
    assert screen.program_name(Path("/opt/python")) == "/opt/python -m windlass"


def test_only_commands_are_named_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen._NAME, "typed", ".venv/bin/windlass")  # noqa: SLF001
    assert screen.as_typed("`windlass db migrate`, or windlass --db x status") == (
        "`.venv/bin/windlass db migrate`, or .venv/bin/windlass --db x status"
    )
    for same in ("pip install 'windlass[sqlite]'", "windlass: no", "bin/windlass up", "Windlass does not"):
        assert screen.as_typed(same) == same


def test_an_error_of_the_program_names_what_can_be_typed(nowhere: Path) -> None:
    environment = {**os.environ, "WINDLASS_DATABASE_URL": "sqlite:///missing.db"}
    told = subprocess.run(
        [sys.executable, "-m", "windlass", "list"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 3
    assert f"`{screen.program_name(Path(sys.executable))} enqueue`" in told.stderr
    assert "`windlass " not in told.stderr
