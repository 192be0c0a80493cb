"""The tables that name tests, read: the faults in README.md, and the requirements in requirements.md."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
FAULTS, REQUIREMENTS = TESTS / "README.md", TESTS / "requirements.md"
_ROW = re.compile(r"^\| ([A-Z]+-\d+[a-z]?) \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
_TARGET = re.compile(r"`make ([\w-]+)`")
_PAGE = re.compile(r"`([\w/-]+\.md)`")


def text(page: Path = FAULTS) -> str:
    """The page that a table is on."""
    return page.read_text(encoding="utf-8")


def rows(page: Path = FAULTS) -> list[tuple[str, str]]:
    """The ids in their order, each with what its last column says."""
    return [(row, named) for row, _, named in _ROW.findall(text(page))]


def tests_in(text: str) -> list[tuple[str, str]]:
    """The tests that a text names: the file below this folder, and the function."""
    return _TEST.findall(text)


def named_in(text: str) -> int:
    """How much a text names: tests, make targets and pages."""
    return sum(len(each.findall(text)) for each in (_TEST, _TARGET, _PAGE))


def misnamed_in(text: str) -> list[str]:
    """What a text names and there is not, and what is neither a test nor a target nor a page."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tests = [
        f"{file}::{name}"
        for file, name in tests_in(text)
        if not re.search(rf"^def {name}\(", _read(TESTS / file), re.MULTILINE)
    ]
    targets = [each for each in _TARGET.findall(text) if not re.search(rf"^{each}:", makefile, re.MULTILINE)]
    pages = [each for each in _PAGE.findall(text) if not (ROOT / each).is_file()]
    # A misspelled one would be read as none of them.
    odd = [f"`{each}`" for each in re.findall("`([^`]*)`", text) if not named_in(f"`{each}`")]
    return [*tests, *targets, *pages, *odd]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
