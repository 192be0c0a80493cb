"""How does a column of values become one parameter? As an array in the server's own spelling.

The driver's own way of writing lists costs several times as much, on the path of every job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
_NOTHING = "{}"


def numbers(values: Iterable[int | None]) -> str:
    """Whole numbers."""
    return "{" + ",".join("NULL" if value is None else str(int(value)) for value in values) + "}"


def words(values: Iterable[str | None]) -> str:
    """Texts of which it is known that they need no quotes, such as tokens and states."""
    return "{" + ",".join("NULL" if value is None else value for value in values) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Any texts."""
    return "{" + ",".join("NULL" if value is None else _quoted(value) for value in values) + "}"


def sparse(spelled: Callable[[Iterable[T | None]], str], values: Iterable[T | None]) -> str:
    """A column that is mostly empty; quite empty, it is left out: `unnest` fills up with nulls."""
    listed = list(values)
    return _NOTHING if listed.count(None) == len(listed) else spelled(listed)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
