"""Does scripts/dev.py keep each Python apart, and take the terminal only where there is one to take?"""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/dev.py"


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- environments -------------------------------------------------------------------------------


def test_the_first_python_has_the_usual_environment_and_any_other_has_its_own(
    dev: ModuleType, tmp_path: Path
) -> None:
    assert dev.environment(tmp_path, "3.11") == tmp_path / ".venv"
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    assert dev.environment(tmp_path, "3.11") == tmp_path / ".venv"
    assert dev.environment(tmp_path, "3.13") == tmp_path / ".venv-3.13"


def test_a_python_that_only_has_the_name_of_one_is_not_one(dev: ModuleType, tmp_path: Path) -> None:
    """As pyenv's stand-ins, which are on the PATH for versions that are not chosen."""
    stand_in = tmp_path / "python3.12"
    stand_in.write_text("#!/bin/sh\necho command not found >&2\nexit 127\n")
    stand_in.chmod(0o755)
    assert not dev.is_python(str(stand_in), "3.12")
    assert not dev.is_python(str(tmp_path / "missing"), "3.12")
    assert dev.is_python(sys.executable, "{}.{}".format(*sys.version_info))


def test_no_version_is_named_that_is_not_tested(dev: ModuleType) -> None:
    """The README, the package's metadata and what CI looks for are the same versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.search(r"nothing but Python ([^;]*);", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named is not None
    assert re.findall(r"3\.\d+", named[1]) == dev.supported()
    assert project["requires-python"] == f">={dev.supported()[0]}"


# --- the terminal -------------------------------------------------------------------------------

TAKE = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("dev", sys.argv[1])
dev = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dev)
before = os.getpgrp()
dev.take_terminal()
try:
    front = os.tcgetpgrp(0) == os.getpgrp()
except OSError:
    front = None
print("front", front, "moved", os.getpgrp() != before)
"""
COMMAND = [sys.executable, "-c", TAKE, str(SCRIPT)]


def at_a_terminal(command: list[str]) -> str:
    """What a command prints that leads the session of a terminal of its own."""
    pid, screen = pty.fork()
    if pid == 0:
        os.execv(command[0], command)  # noqa: S606 - it is the program under test
    printed = b""
    try:
        while chunk := os.read(screen, 4096):
            printed += chunk
    except OSError:  # Linux says so when the last one has closed the terminal
        pass
    os.close(screen)
    os.waitpid(pid, 0)
    return printed.decode().strip()


def test_whoever_leads_the_session_stays_in_front_of_its_terminal() -> None:
    assert at_a_terminal(COMMAND) == "front True moved False"


def test_a_child_of_make_takes_the_terminal_so_that_keys_reach_it_alone() -> None:
    assert at_a_terminal(["/bin/sh", "-c", '"$@"; true', "sh", *COMMAND]) == "front True moved True"


@pytest.mark.parametrize("new_session", [True, False], ids=["leads a session", "does not"])
def test_a_terminal_of_another_session_is_left_alone(*, new_session: bool) -> None:
    screen, theirs = pty.openpty()
    try:
        done = subprocess.run(
            COMMAND, stdin=theirs, capture_output=True, text=True, start_new_session=new_session, check=True
        )
    finally:
        os.close(screen)
        os.close(theirs)
    assert done.stdout.strip() == "front None moved False"


def test_without_a_terminal_nothing_is_taken() -> None:
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "front None moved False"
