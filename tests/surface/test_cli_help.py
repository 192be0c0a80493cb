"""Does every command explain itself, with examples that hold?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from tests.surface.conftest import Terminal
from windlass.cli.commands import Command, Group
from windlass.cli.main import cli


def _commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*path, name))


ALL = dict(_commands(cli))


def _examples(command: click.Command) -> list[str]:
    """The commands among a command's examples; what stands far to their right is prose."""
    assert isinstance(command, Command | Group)
    lines = [line.strip() for line in command.examples.strip().splitlines()]
    return [re.split(r"\s{4,}", line)[0] for line in lines]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_with_examples(windlass: Terminal, path: tuple[str, ...]) -> None:
    text = windlass.ok(*path, "--help").out
    assert "Examples:" in text
    for option in ("--db URL", "--app MODULE:QUEUE", "--json"):
        assert option in text


EXAMPLES = sorted({example for command in ALL.values() for example in _examples(command)})


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_command_line_that_is_understood(windlass: Terminal, example: str) -> None:
    words = shlex.split(example if "'" in example else example.partition("&&")[0])
    words = words[words.index("windlass") + 1 :]
    command: click.Command = cli
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)


def test_nothing_said_gets_the_help_and_half_a_command_line_an_error(windlass: Terminal) -> None:
    assert "Commands:" in windlass.ok().out
    assert windlass("worker") == (2, "", "windlass: Missing command (see windlass worker --help)\n")


def test_the_list_of_commands_tells_whole_sentences(windlass: Terminal) -> None:
    for group in ((), ("worker",), ("db",)):
        told = windlass.ok(*group, "--help").out.partition("Commands:")[2].partition("Examples:")[0]
        assert told
        assert "..." not in told


def test_the_version_is_told(windlass: Terminal) -> None:
    assert re.fullmatch(r"windlass \d+\.\d+\.\d+\n", windlass.ok("--version").out)


def test_the_shared_flags_may_stand_before_or_after_the_verb(windlass: Terminal) -> None:
    windlass.ok("--db", "a.db", "run", "--", "true")
    windlass.ok("run", "--db", "b.db", "--", "true")
    assert len(windlass.ok("--json", "--db", "a.db", "list").json["jobs"]) == 1
    assert len(windlass.ok("list", "--db", "b.db", "--json").json["jobs"]) == 1
    assert windlass.ok("--db", "a.db", "db", "status", "--db", "b.db", "--json").json["url"].endswith("b.db")


def test_arguments_are_not_listed_as_options(windlass: Terminal) -> None:
    text = windlass.ok("run", "--help").out
    assert text.startswith("Usage: windlass run [OPTIONS] -- COMMAND [ARG]...\n")
    assert "\n  COMMAND" not in text
    assert "\n  [ID]..." not in windlass.ok("cancel", "--help").out


def test_the_commands_of_the_dead_letters_speak_of_themselves(windlass: Terminal) -> None:
    assert "--state" not in windlass.ok("dlq", "list", "--help").out
    for name in ("show", "replay", "discard"):
        examples = windlass.ok("dlq", name, "--help").out.partition("Examples:")[2]
        assert f"windlass dlq {name} job1" in examples
        assert f"windlass {name}" not in examples
        assert f"windlass {name} job1" in windlass.ok(name, "--help").out
