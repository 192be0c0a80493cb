"""The table of faults in README.md, read."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
_ROW = re.compile(r"^\| (F-\d+[a-z]?) \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
_TARGET = re.compile(r"`make ([\w-]+)")


def text() -> str:
    """The page that the table is on."""
    return (TESTS / "README.md").read_text(encoding="utf-8")


def rows() -> list[tuple[str, str]]:
    """The ids in their order, each with what its last column says."""
    return [(fault, named) for fault, _, named in _ROW.findall(text())]


def tests_in(text: str) -> list[tuple[str, str]]:
    """The tests that a text names: the file below this folder, and the function."""
    return _TEST.findall(text)


def targets_in(text: str) -> list[str]:
    """The make targets that a text names."""
    return _TARGET.findall(text)
