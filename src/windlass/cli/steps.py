"""How far is a long command that goes in steps? A bar for people who watch, lines for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import click

from windlass.cli.screen import number
from windlass.move import Step
from windlass.ops.words import count

_BETWEEN_LINES = 1.0


@contextmanager
def steps(*, as_json: bool) -> Iterator[Callable[[Step], None]]:
    """Gives what is to be told of each step; all of it goes to standard error."""
    showing = _Steps(as_json=as_json)
    try:
        yield showing.tell
    finally:
        if showing.shown:
            click.echo(err=True)


class _Steps:
    """One line that changes on a terminal; a line a second elsewhere."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._live = not as_json and sys.stderr.isatty()
        self._name = ""
        self._first = 0
        self._begun = self._told = 0.0
        self.shown = False

    def tell(self, step: Step) -> None:
        now = monotonic()
        if step.name != self._name:
            self._name, self._begun, self._first, self._told = step.name, now, step.done, 0.0
        over = step.done == step.total
        if not (self._live or over) and now - self._told < _BETWEEN_LINES:
            return
        self._told = now
        rate = (step.done - self._first) / max(now - self._begun, 1e-3)
        left = (step.total - step.done) / rate if rate else None
        if self._json:
            facts = {"step": step.name, "rows": step.done, "total": step.total}
            click.echo(json.dumps({**facts, "rate": round(rate), "eta": left and round(left, 1)}), err=True)
        else:
            self._show(_words(step, rate, left))

    def _show(self, words: str) -> None:
        self.shown = self._live
        click.echo(f"\r{words}\x1b[K" if self._live else words, err=True, nl=not self._live)


def _words(step: Step, rate: float, left: float | None) -> str:
    if not step.total:
        return step.name
    share = step.done / step.total
    bar = "#" * round(share * _WIDTH)
    words = (
        f"{step.name:<9} [{bar:-<{_WIDTH}}] {share:4.0%}  {number(step.done)} of {count(step.total, 'row')}"
    )
    if rate:
        words += f"  {number(round(rate))}/s"
    return words if not left else f"{words}  {left:.0f}s left"


_WIDTH = 30
