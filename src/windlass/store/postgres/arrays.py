"""How does a column of values become one parameter? As an array in the server's own spelling.

The driver's own way of writing lists costs several times as much, on the path of every job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
_NOTHING = "{}"
_NULL = "NULL"


def numbers(values: Iterable[int | None]) -> str:
    """Whole numbers."""
    return _array(values, lambda value: str(int(value)))


def words(values: Iterable[str | None]) -> str:
    """Texts of which it is known that they need no quotes, such as tokens and states."""
    return _array(values, str)


def texts(values: Iterable[str | None]) -> str:
    """Any texts."""
    return _array(values, _quoted)


def sparse(spelled: Callable[[Iterable[T | None]], str], values: Iterable[T | None]) -> str:
    """A column that is mostly empty; quite empty, it is left out: `unnest` fills up with nulls."""
    listed = list(values)
    return _NOTHING if listed.count(None) == len(listed) else spelled(listed)


def _array(values: Iterable[T | None], spelled: Callable[[T], str]) -> str:
    listed = list(values)
    if listed and listed.count(listed[0]) == len(listed):
        # Of many jobs most columns say the same in every row: it is spelled once.
        return "{" + ",".join([_NULL if listed[0] is None else spelled(listed[0])] * len(listed)) + "}"
    return "{" + ",".join([_NULL if value is None else spelled(value) for value in listed]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
