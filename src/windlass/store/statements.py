"""Load the SQL texts: sections named `-- name: claim`, or `-- name: claim [sqlite]` for one dialect only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_SECTION = re.compile(r"^-- name: (\w+)(?: \[(sqlite|postgres)\])?\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


@cache
def load(dialect: str) -> Mapping[str, str]:
    """The statements of one dialect by name."""
    shared: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, only, text in sections():
        if only in ("", dialect):
            (own if only else shared)[name] = spelled(text, dialect)
    return shared | own


def sections() -> Iterator[tuple[str, str, str]]:
    """Every section: its name, the only dialect that it is for or an empty text, and its SQL."""
    for folder in ("", "sqlite", "postgres"):
        for path in sorted((_HERE / folder).glob("*.sql")):
            _, *found = _SECTION.split(path.read_text(encoding="utf-8"))
            yield from zip(found[::3], (only or "" for only in found[1::3]), found[2::3], strict=True)


def parameters(statement: str) -> set[str]:
    """The names that a statement binds."""
    return set(_PARAMETER.findall(statement))


def numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """The same with $1, $2 for the names, as PostgreSQL takes them, and the names in that order."""
    order: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in order:
            order.append(found[1])
        return f"${order.index(found[1]) + 1}"

    return _PARAMETER.sub(number, statement), tuple(order)


def unnamed(statement: str) -> str:
    """The same with a bare ? for each name; of numbered ones Python 3.12 warns if their values are a list."""
    return _PARAMETER.sub("?", statement)


def spelled(text: str, dialect: str) -> str:
    """Our tables stand in a schema of their own; SQLite has none, so there it becomes a prefix."""
    return text.replace("windlass.", "windlass_") if dialect == "sqlite" else text
