"""Can every command that Windlass suggests be typed as it stands?"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import windlass.ops
from windlass.cli.main import cli
from windlass.ops.words import serve_type, start_worker
from windlass.registry import SHELL


def _suggested() -> Iterator[str]:
    """Every text of `windlass.ops` that begins with a command; values are filled in as `x`."""
    for path in sorted(Path(windlass.ops.__path__[0]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts]
            if isinstance(node, ast.JoinedStr | ast.Constant) and "".join(texts).startswith("windlass "):
                line = "".join(texts).partition(",")[0]
                # A constant that ends with a space is a part of a longer text, which is looked at whole.
                if not line.endswith(" "):
                    yield line


def _parse(line: str) -> None:
    """Parse a command line as the program does; nothing runs."""
    command: click.Command = cli
    _, *words = shlex.split(line)
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"{line}: there is no {name}"
        command = found
    command.make_context(line, words)


COMMANDS = sorted({each for each in _suggested() if not each.startswith("windlass worker start ")})


def test_suggestions_are_found() -> None:
    assert "windlass worker health" in COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_a_suggested_command_can_be_parsed(line: str) -> None:
    _parse(line)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (start_worker(["mail", SHELL]), "windlass worker start APP"),
        (start_worker([]), "windlass worker start APP"),
        (start_worker([SHELL]), "windlass worker start --shell"),
        (serve_type("mail"), "windlass worker start APP --types mail"),
        (serve_type(SHELL), "windlass worker start --shell"),
    ],
)
def test_a_worker_is_started_with_an_app_unless_it_runs_shell_jobs(line: str, wanted: str) -> None:
    assert line == wanted
    _parse(line)
