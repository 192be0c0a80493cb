"""How far is it? A bar for people who watch, nothing for those who do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress(label: str, length: int | None) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told how much is done by now; without a length there is nothing to show."""
    if length is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield lambda done: bar.update(done - bar.pos)
