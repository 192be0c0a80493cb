"""How does every command look: the flags it shares with all others, and the examples in its help?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from windlass.cli.session import Session


class Command(click.Command):
    """A command that takes the shared flags after its own name and shows examples in its help."""

    def __init__(self, *args: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples
        self.params.extend(_shared_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options, then the shared ones."""
        _write_options(self, ctx, formatter)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        _write_examples(self.examples, formatter)


class Group(click.Group):
    """A command with commands of its own; the shared flags may stand here as well."""

    command_class = Command
    group_class = type

    def list_commands(self, _: click.Context) -> list[str]:
        """In the order in which they were added, which is the order of use."""
        return list(self.commands)

    def __init__(self, *args: Any, examples: str = "", **attributes: Any) -> None:
        # Half a command line is a mistake like any other: one line says so.
        super().__init__(*args, **{"no_args_is_help": False, **attributes})
        self.examples = examples
        self.params.extend(_shared_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The group's own options, the shared ones, and its commands."""
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its whole first sentence: half of one tells a newcomer nothing."""
        commands = [self.commands[name] for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(each.name or "", each.get_short_help_str(_SENTENCE)) for each in commands])

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        _write_examples(self.examples, formatter)


# Longer than any first sentence.
_SENTENCE = 200


class _SharedOption(click.Option):
    """Remembered in the session wherever it stands; the last one wins."""


def _shared_options() -> list[click.Parameter]:
    return [
        _SharedOption(
            ["--db", "shared_db"],
            metavar="URL",
            expose_value=False,
            callback=_remember("database_url"),
            help="The store: a path, sqlite:///file.db or postgresql://... "
            "[WINDLASS_DATABASE_URL; default: windlass.db here]",
        ),
        _SharedOption(
            ["--app", "shared_app"],
            metavar="MODULE:QUEUE",
            expose_value=False,
            callback=_remember("app"),
            help="The application's Queue, importable from the current folder. [WINDLASS_APP]",
        ),
        _SharedOption(
            ["--json", "shared_json"],
            is_flag=True,
            expose_value=False,
            callback=_remember_json,
            help="Print JSON.",
        ),
    ]


def _remember(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.ensure_object(Session).flags[name] = value

    return callback


def _remember_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).json = True


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        # Arguments are told by the usage and the words beneath it.
        record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
        if record is not None:
            (shared if isinstance(parameter, _SharedOption) else own).append(record)
    for title, records in (("Options", own), ("Options of every command", shared)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def _write_examples(examples: str, formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples.strip().splitlines():
                formatter.write(f"{' ' * formatter.current_indent}{line.strip()}\n")
