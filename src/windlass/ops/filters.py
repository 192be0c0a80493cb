"""How does somebody outside say which jobs are meant? The same words on every surface."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from windlass.checks import TEXT, storable
from windlass.errors import must_be
from windlass.job import JobState, View
from windlass.store.jobs import Filter

_LONGEST_AGO = timedelta(days=36_500)
STATES = tuple(each.value for each in (*JobState, *View))


def read_filter(
    *,
    types: Iterable[str] = (),
    states: Iterable[str] = (),
    tenant: str | None = None,
    key: str | None = None,
    error: str | None = None,
    older_than: timedelta | None = None,
    where: Iterable[str | tuple[tuple[str, ...], Any]] = (),
    ids: Iterable[str] = (),
) -> Filter:
    """The filter that such words ask for. A state may also be a view, which then stands alone."""
    chosen, view = _read_states(tuple(states))
    conditions = dict(read_condition(each) if isinstance(each, str) else each for each in where)
    wanted = tuple(types)
    for field, text in (
        ("tenant", tenant),
        ("key", key),
        ("error", error),
        *(("type", each) for each in wanted),
    ):
        _check_text(field, text)
    for path, value in conditions.items():
        _check_text("where", ".".join(path) + f"={value}")
    if older_than is not None and older_than > _LONGEST_AGO:
        raise must_be("older_than", f"{older_than.days}d", f"at most {_LONGEST_AGO.days}d")
    return Filter(
        ids=tuple(ids),
        types=wanted,
        states=chosen,
        view=view,
        tenant=tenant,
        key=key,
        error=error,
        older_than=older_than,
        payload=conditions,
    )


def _read_states(names: tuple[str, ...]) -> tuple[tuple[JobState, ...], str | None]:
    """Either states, or a view."""
    for name in names:
        if name not in STATES:
            raise must_be("state", name, "one of " + ", ".join(STATES))
    views = [name for name in names if name in set(View)]
    if views and len(names) > 1:
        raise must_be("state", ", ".join(names), f"several states, or one of {', '.join(View)} alone")
    if views:
        return (), views[0]
    return tuple(JobState(name) for name in names), None


def _check_text(field: str, text: str | None) -> None:
    """What no store keeps could not be found."""
    if text is not None and not storable(text):
        raise must_be(field, text, TEXT)


def read_condition(text: str) -> tuple[tuple[str, ...], Any]:
    """A field of the payload and its value: payload.user.id=42. What is not JSON is taken as text."""
    path, equals, value = text.partition("=")
    names = tuple(part.strip() for part in path.split("."))
    if not equals or len(names) <= 1 or names[0] != "payload" or not all(names):
        raise must_be("where", text, "a condition such as payload.user.id=42")
    try:
        wanted = json.loads(value)
    except (ValueError, RecursionError):
        wanted = value
    if isinstance(wanted, dict | list):
        raise must_be("where", text, "a comparison with a plain value: only plain values can be compared")
    return names[1:], wanted
