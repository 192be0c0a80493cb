"""Is every event that we log on the one list of them, in the documentation?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import windlass

HERE = Path(windlass.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
# (event, level, meaning) as the page lists them.
EVENTS = re.findall(
    r"^\| `([a-z]+\.[a-z_]+)` \| ((?:debug|info|warning|error)[a-z ]*) \| (.+) \|$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)
# Logged by the demo jobs alone.
OF_THE_DEMO = {"video.converted"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


@cache
def _logged() -> list[tuple[str, str, str]]:
    """(event, level, place) of every call of a logger in the package."""
    return list(_calls())


def _calls() -> Iterator[tuple[str, str, str]]:
    for path in sorted(HERE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_logger(node.func):
                level = node.func.attr
                message = node.args[1 if level == "log" else 0]
                names = [str(each.value) for each in ast.walk(message) if isinstance(each, ast.Constant)]
                place = f"{path.relative_to(HERE)}:{node.lineno}"
                assert names, f"{place}: an event's name stands in the call that logs it"
                yield from ((name, level, place) for name in names)


def _is_logger(called: ast.Attribute) -> bool:
    value = called.value
    name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
    return name == "log" and called.attr in LEVELS


def test_every_event_is_listed_once_and_every_listed_one_is_logged() -> None:
    names = [name for name, _, _ in EVENTS]
    assert len(names) == len(set(names))
    assert {name for name, _, _ in _logged()} == {*names, *OF_THE_DEMO}


def test_the_list_says_the_level() -> None:
    listed = {name: level for name, level, _ in EVENTS}
    for name, level, place in _logged():
        if name not in OF_THE_DEMO and level != "log":
            told = "error" if level == "exception" else level
            assert told in listed[name], f"{place} logs {name} as {level}"
