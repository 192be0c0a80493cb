"""Where do the SQL texts come from? One file a statement; `claim.sqlite.sql` wins over `claim.sql`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


@cache
def load(dialect: str) -> Mapping[str, str]:
    """The statements of one dialect by name."""
    statements: dict[str, str] = {}
    for path in sorted((_HERE / "sql").glob("*.sql"), key=lambda path: path.name.count(".")):
        name, *only = path.stem.split(".")
        if only in ([], [dialect]):
            statements[name] = spelled(path.read_text(encoding="utf-8"), dialect)
    return statements


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
