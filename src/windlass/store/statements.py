"""Load the SQL texts: sections named `-- name: claim`, or `-- name: claim [sqlite]` for one dialect only.

What several statements share is written once. `{kept}` stands for a list of columns from `rows.COLUMNS`,
`{j.kept}` for the same with a table's name before each, `{:new}` for parameters of these names, and `{new[]}`
for array parameters. `{claim_set}` stands for a section `-- part: claim_set`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path

from windlass.store import rows

_HERE = Path(__file__).parent
_SECTION = re.compile(r"^-- (name|part): (\w+)(?: \[(sqlite|postgres)\])?\n", re.MULTILINE)
_SHARED = re.compile(r"\{(:|\w+\.)?([a-z_]+)(\[\])?\}")
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
    """Every statement: its name, the only dialect that it is for or an empty text, and its SQL."""
    yield from ((name, only, text) for kind, name, only, text in _read() if kind == "name")


@cache
def _read() -> list[tuple[str, str, str, str]]:
    found: list[tuple[str, str, str, str]] = []
    for folder in ("", "sqlite", "postgres"):
        for path in sorted((_HERE / folder).glob("*.sql")):
            _, *parts = _SECTION.split(path.read_text(encoding="utf-8"))
            only = (each or "" for each in parts[2::4])
            found += zip(parts[::4], parts[1::4], only, parts[3::4], strict=True)
    return found


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


# The same with a bare ? for each name; of numbered ones Python 3.12 warns if their values are a list.
unnamed = partial(_PARAMETER.sub, "?")


def spelled(text: str, dialect: str) -> str:
    """A text with all that it shares with others, in a dialect.

    Our tables are in a schema of their own; SQLite has none, so there it becomes a prefix.
    """

    def shared(found: re.Match[str]) -> str:
        before, name, array = found[1] or "", found[2], found[3]
        if name in rows.COLUMNS and array:
            return ", ".join(f"cast(:{each} as {kind}[])" for each, kind in rows.NEW.items())
        if name in rows.COLUMNS:
            return ", ".join(before + each for each in rows.COLUMNS[name])
        return _parts(dialect).get(name, found[0])

    text = _SHARED.sub(shared, text)
    return text.replace("windlass.", "windlass_") if dialect == "sqlite" else text


@cache
def _parts(dialect: str) -> Mapping[str, str]:
    # Without the comment above each, and without its end.
    return {
        name: re.sub(r"^--.*\n", "", text, flags=re.MULTILINE).strip().rstrip(";")
        for kind, name, only, text in _read()
        if kind == "part" and only in ("", dialect)
    }
