"""How can this program be called here? A message must not name a command that the reader's shell lacks."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

USUAL = "windlass"
# A command in a sentence: the program's name and a word behind it.
_COMMAND = re.compile(r"(?<![\w/.-])windlass (?=(?:--[a-z]|[a-z]+\b))")


class _Name:
    """What a person types for `windlass`; only the program itself has a reason to look."""

    def __init__(self) -> None:
        self.typed = USUAL


_NAME = _Name()


def look() -> None:
    """Find out how this program can be called from where it was called."""
    _NAME.typed = found(Path(sys.executable))


def found(python: Path) -> str:
    """The shortest name that a shell finds: on the PATH, beside Python, or as a module of it."""
    if shutil.which(USUAL) is not None:
        return USUAL
    beside = python.with_name(USUAL)
    if beside.exists():
        return shlex.quote(_short(beside))
    return f"{shlex.quote(_short(python))} -m {USUAL}"


def as_typed(text: str) -> str:
    """A sentence of ours, with every command in it as it can be typed here."""
    return text if _NAME.typed == USUAL else _COMMAND.sub(lambda _: f"{_NAME.typed} ", text)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
