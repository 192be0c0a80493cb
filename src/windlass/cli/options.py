"""How are the words on a command line read?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from windlass.checks import read_moment
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.job import JobState
from windlass.ops import filters
from windlass.ops.filters import STATES
from windlass.store.jobs import Filter

F = TypeVar("F", bound=Callable[..., Any])


def span(text: str) -> timedelta:
    """A duration: 30s, 10m, 1h30m, 7d, or plain seconds."""
    try:
        return parse_duration(text)
    except InvalidValue:
        raise click.BadParameter(
            f"{text!r} is not a duration such as 30s, 10m, 1h30m or 7d, or plain seconds"
        ) from None


def moment(text: str) -> datetime:
    """A time in ISO 8601; without a zone it is UTC."""
    try:
        return read_moment(text)
    except InvalidValue as error:
        raise click.BadParameter(f"{text!r} is not {error.allowed}") from None


def rate(text: str) -> float:
    """So many per second: 50, 50/s or 3000/m."""
    count, _, unit = text.partition("/")
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip())
    if seconds is not None and count.strip().isdecimal() and int(count) > 0:
        return int(count) / seconds
    raise click.BadParameter(f"{text!r} is not a rate: a whole number, alone or with /s, /m or /h")


def payload_field(text: str) -> tuple[tuple[str, ...], Any]:
    """A field of the payload and its value: payload.user.id=42. What is not JSON is taken as text."""
    try:
        return filters.read_condition(text)
    except InvalidValue as error:
        raise click.BadParameter(f"{text!r} is not {error.allowed}") from None


# --- the filter, the same wherever jobs are chosen ----------------------------------------------


def filter_options(command: F) -> F:
    """Add the options that choose jobs; the command takes them as `**choice` for `read_filter`."""
    return _with(command, _TYPE, _STATE, *_OTHERS)


def filter_options_without_state(command: F) -> F:
    """The same for a command that is for jobs of one state."""
    return _with(command, _TYPE, *_OTHERS)


def _with(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def read_filter(choice: dict[str, Any], *, states: tuple[JobState, ...] = ()) -> Filter:
    """The filter that the options ask for; `states` hold where none are named."""
    named = choice.get("state", ()) or tuple(states)
    try:
        return filters.read_filter(
            types=choice["type"],
            states=named,
            tenant=choice["tenant"],
            key=choice["key"],
            error=choice["error"],
            older_than=choice["older_than"],
            where=choice["where"],
        )
    except InvalidValue as error:
        flag = "--" + error.field.replace("_", "-")
        raise must_be(flag, error.value, error.allowed) from None


def names_any(choice: dict[str, Any]) -> bool:
    """Whether any of the filter's options was given."""
    return any(value not in (None, ()) for value in choice.values())


tenant_option = click.option(
    "--tenant", metavar="TENANT", help="Whose key it is, if several tenants have the same one."
)
_TYPE = click.option("--type", multiple=True, metavar="TYPE", help="Jobs of this type; may be repeated.")
_STATE = click.option(
    "--state",
    multiple=True,
    type=click.Choice(STATES),
    metavar="STATE",
    help=f"Jobs in this state; may be repeated. One of {', '.join(STATES)}.",
)
_OTHERS = (
    click.option("--tenant", metavar="NAME", help="Jobs of this tenant."),
    click.option("--key", metavar="KEY", help="The job with this key."),
    click.option(
        "--error", metavar="TEXT", help="Jobs whose last error has this reason, or this text in it."
    ),
    click.option("--older-than", type=span, metavar="DURATION", help="Jobs enqueued longer ago than this."),
    click.option(
        "--where",
        multiple=True,
        type=payload_field,
        metavar="FIELD=VALUE",
        help="Jobs with this in their payload, as in payload.user.id=42; may be repeated.",
    ),
)
