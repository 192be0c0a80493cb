"""What all commands share: flags, examples, and how options are read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from windlass.checks import read_moment
from windlass.cli.session import Session
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.job import JobState
from windlass.ops import search
from windlass.ops.search import STATES
from windlass.store.jobs import Filter

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Command(click.Command):
    """A command that takes the shared flags after its own name and shows examples in its help."""

    def __init__(self, *args: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples
        for flag, metavar, meaning in _SHARED:
            option = _SharedOption(
                [flag, f"shared_{flag[2:]}"],
                metavar=metavar,
                is_flag=metavar is None,
                expose_value=False,
                callback=_remember,
                help=meaning,
            )
            self.params.append(option)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options, then the shared ones."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            # Arguments are told by the usage and the words beneath it.
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record is not None:
                (shared if isinstance(parameter, _SharedOption) else own).append(record)
        for title, records in (("Options", own), ("Options of every command", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{' ' * formatter.current_indent}{line.strip()}\n")


class Group(Command, click.Group):
    """A command with commands of its own; the shared flags may stand here as well."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        # Half a command line is a mistake like any other: one line says so.
        super().__init__(*args, **{"no_args_is_help": False, **attributes})

    def list_commands(self, _: click.Context) -> list[str]:
        """In the order in which they were added, which is the order of use."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The group's own options, the shared ones, and its commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its whole first sentence: half of one tells a newcomer nothing."""
        with formatter.section("Commands"):
            shown = [(name, each.get_short_help_str(_SENTENCE)) for name, each in self.commands.items()]
            formatter.write_dl(shown)

    def subcommand(self, examples: str) -> Callable[[Callable[..., Any]], Command]:
        """Make a command of this group; its name is the function's, without `_command`."""

        def made(function: Callable[..., Any]) -> Command:
            own = command(examples)(function)
            self.add_command(own)
            return own

        return made


def command(examples: str) -> Callable[[Callable[..., Any]], Command]:
    """Make a command; its name is the function's, without `_command`."""

    def made(function: Callable[..., Any]) -> Command:
        name = function.__name__.removesuffix("_command")
        return click.command(name, Command, examples=examples)(function)

    return made


def group(examples: str) -> Callable[[Callable[..., Any]], Group]:
    """Make a command with commands of its own."""
    return click.group(cls=Group, examples=examples)


def option(declared: str, meaning: str, *, name: str | None = None, **attributes: Any) -> Callable[[F], F]:
    """An option such as "--limit N"; without a metavar, a type and a default it is a flag."""
    words = declared.split()
    flags = [word for word in words if word.startswith("-")]
    if len(flags) < len(words):
        attributes["metavar"] = words[-1]
    elif "type" not in attributes and "default" not in attributes:
        attributes["is_flag"] = True
    return click.option(*flags, *([name] if name else []), help=meaning, **attributes)


def options(*each: Callable[[F], F]) -> Callable[[F], F]:
    """Add options to a command, in this order."""

    def added(function: F) -> F:
        for option in reversed(each):
            function = option(function)
        return function

    return added


# Longer than any first sentence.
_SENTENCE = 200


class _SharedOption(click.Option):
    """Remembered in the session wherever it stands; the last one wins."""


_USUAL_STORE = "[WINDLASS_DATABASE_URL; default: windlass.db here]"
_PLACES = "a path, sqlite:///file.db or postgresql://...; or a server: http://host:port or https://host"
# Each with what follows it, if it is no flag.
_SHARED = (
    ("--db", "URL", f"The store: {_PLACES} {_USUAL_STORE}"),
    ("--app", "MODULE:QUEUE", "The application's Queue, importable from the current folder. [WINDLASS_APP]"),
    ("--json", None, "Print JSON."),
)


def _remember(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    here = ctx.ensure_object(Session)
    if option.name == "shared_json":
        here.json = here.json or value
    elif value is not None:
        here.flags["database_url" if option.name == "shared_db" else "app"] = value


def span(text: str) -> timedelta:
    """A duration: 30s, 10m, 1h30m, 7d, or plain seconds."""
    allowed = "a duration such as 30s, 10m, 1h30m or 7d, or plain seconds"
    return _read(parse_duration, text, allowed)


def moment(text: str) -> datetime:
    """A time in ISO 8601; without a zone it is UTC."""
    return _read(read_moment, text)


def payload_field(text: str) -> tuple[tuple[str, ...], Any]:
    """A field of the payload and its value: payload.user.id=42. What is not JSON is taken as text."""
    return _read(search.read_condition, text)


def _read(reader: Callable[[str], T], text: str, allowed: str = "") -> T:
    try:
        return reader(text)
    except InvalidValue as error:
        raise click.BadParameter(f"{text!r} is not {allowed or error.allowed}") from None


def rate(text: str) -> float:
    """So many per second: 50, 50/s or 3000/m."""
    count, _, unit = text.partition("/")
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip())
    if seconds is not None and count.strip().isdecimal() and int(count) > 0:
        return int(count) / seconds
    raise click.BadParameter(f"{text!r} is not a rate: a whole number, alone or with /s, /m or /h")


# --- the filter, the same wherever jobs are chosen ----------------------------------------------


def read_filter(choice: dict[str, Any], *, states: tuple[JobState, ...] = ()) -> Filter:
    """The filter that the options ask for; `states` hold where none are named."""
    named = {name: value for name, value in choice.items() if name not in ("type", "state")}
    try:
        return search.read_filter(types=choice["type"], states=choice.get("state") or states, **named)
    except InvalidValue as error:
        flag = "--" + error.field.replace("_", "-")
        raise must_be(flag, error.value, error.allowed) from None


def names_any(choice: dict[str, Any]) -> bool:
    """Whether any of the filter's options was given."""
    return any(value not in (None, ()) for value in choice.values())


why_option = option("--why TEXT", "For the records.", default="")
tenant_option = option("--tenant TENANT", "Whose key it is, if several tenants have the same one.")
_TYPE = option("--type TYPE", "Jobs of this type; may be repeated.", multiple=True)
_STATE = option(
    "--state STATE",
    f"Jobs in this state; may be repeated. One of {', '.join(STATES)}.",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
)
_OTHERS = (
    option("--tenant NAME", "Jobs of this tenant."),
    option("--key KEY", "The job with this key."),
    option("--error TEXT", "Jobs whose last error has this reason, or this text in it."),
    option("--older-than DURATION", "Jobs enqueued longer ago than this.", type=span),
    option(
        "--where FIELD=VALUE",
        "Jobs with this in their payload, as in payload.user.id=42; may be repeated.",
        multiple=True,
        type=payload_field,
    ),
)
# The options that choose jobs; a command takes them as `**choice` for `read_filter`.
filter_options = options(_TYPE, _STATE, *_OTHERS)
# The same for a command that is for jobs of one state.
stateless_filter = options(_TYPE, *_OTHERS)


@click.command
@filter_options
@option("--all", "Every job that the verb is for; no filter needed.", name="everything")
@option("--limit N", "Only the N oldest that match.", type=int)
@option("--rate N/s", "Maximum jobs per second.", type=rate)
@option("--dry-run", "Count only; change nothing.")
@option("--yes -y", "Do not ask.")
def bulk_options() -> None:
    """What every command for many jobs takes."""
