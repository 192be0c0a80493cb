"""The tree at the top of errors.py is the tree of its classes."""

from __future__ import annotations

import re

from windlass import errors
from windlass.errors import WindlassError


def drawn() -> dict[str, str]:
    """Each class in the drawing, with the one that it hangs below."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if named := re.match(r"([ │├└─]*)([A-Z]\w+)(?: |$)", line):
            depth = len(named[1]) // 4
            above = [*above[:depth], named[2]]
            if depth:
                found[named[2]] = above[depth - 1]
    return found


def test_the_tree_shows_every_error_below_its_base() -> None:
    classes = {
        name: thing.__bases__[0].__name__
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, WindlassError) and thing is not WindlassError
    }
    assert drawn() == classes
