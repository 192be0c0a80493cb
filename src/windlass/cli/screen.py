"""What a person sees in a terminal: tables, colours, progress."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import click

from windlass.ops import words
from windlass.ops.words import count

if TYPE_CHECKING:
    from windlass.move import Step

USUAL = "windlass"
# A command in a sentence: the program's name and a word behind it.
_COMMAND = re.compile(r"(?<![\w/.-])windlass (?=(?:--[a-z]|[a-z]+\b))")


class _Name:
    """What a person types for `windlass`; only the program itself has a reason to look."""

    typed = USUAL


_NAME = _Name()


def find_program_name() -> None:
    """Find out how this program can be called from where it was called."""
    _NAME.typed = program_name(Path(sys.executable))


def program_name(python: Path) -> str:
    """The shortest name that a shell finds: on the PATH, beside Python, or as a module of it."""
    if shutil.which(USUAL) is not None:
        return USUAL
    beside = python.with_name(USUAL)
    path = beside if beside.exists() else python
    short = shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
    return short if path is beside else f"{short} -m {USUAL}"


def as_typed(text: str) -> str:
    """A sentence of ours, with every command in it as it can be typed here."""
    return text if _NAME.typed == USUAL else _COMMAND.sub(lambda _: f"{_NAME.typed} ", text)


def say(message: str) -> None:
    """Say something besides the answer, in one line."""
    click.echo(f"windlass: {' '.join(message.split())}", err=True)


class Cell(NamedTuple):
    """A text on the screen with its colour, if it may have one."""

    text: str
    colour: str | None = None


# None is an empty cell, and a span of time is shown in one unit.
Value = Cell | str | int | timedelta | None
Row = Sequence[Value]


class Screen(NamedTuple):
    """What the output goes to. No width: not a terminal, nothing is cut."""

    width: int | None = None
    colours: bool = False

    @classmethod
    def of_stdout(cls) -> Screen:
        """The screen behind standard output; NO_COLOR and dumb terminals get no colours."""
        if not sys.stdout.isatty():
            return cls()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(shutil.get_terminal_size().columns, not plain)

    def paint(self, text: str, colour: str | None) -> str:
        """The text in a colour, if the screen has colours."""
        return click.style(text, fg=colour) if text and colour and self.colours else text

    def strong(self, text: str) -> str:
        """The text in bold, if the screen can."""
        return click.style(text, bold=True) if self.colours else text

    def table(self, head: Sequence[str], rows: Sequence[Row]) -> list[str]:
        """Aligned columns, numbers to the right; the last column is cut to the screen's width."""
        cells = [[_cell(value) for value in row] for row in rows]
        right = [all(_is_number(row[index]) for row in rows) for index in range(len(head))]
        widths = [
            max(_columns(name), *(_columns(row[index].text) for row in cells), 0)
            for index, name in enumerate(head)
        ]
        if self.width is not None:
            used = sum(widths[:-1]) + _GAP * (len(widths) - 1)
            widths[-1] = max(_columns(head[-1]), min(widths[-1], self.width - used))
        lines = [self.strong(self._line([Cell(name) for name in head], widths, right))]
        return lines + [self._line(row, widths, right) for row in cells]

    def _line(self, row: Sequence[Cell], widths: Sequence[int], right: Sequence[bool]) -> str:
        parts = []
        for cell, width, to_right in zip(row, widths, right, strict=True):
            text = cut(cell.text, width)
            space, painted = " " * (width - _columns(text)), self.paint(text, cell.colour)
            parts.append(space + painted if to_right else painted + space)
        return (" " * _GAP).join(parts).rstrip()


def one_line(text: str) -> str:
    """A text from a job, safe for a table: no line breaks, nothing that steers the terminal."""
    return _harmless(" ".join(text.split()))


def block(text: str) -> list[str]:
    """The lines of a text from a job, with nothing in them that steers the terminal."""
    return [_harmless(line.expandtabs()) for line in text.splitlines()]


def cut(text: str, width: int) -> str:
    """As much of the text as fits."""
    if _columns(text) <= width:
        return text
    kept = ""
    for char in text:
        if _columns(kept + char) > width - 1:
            break
        kept += char
    return kept + "…"


def age(span: timedelta) -> str:
    """A span in one unit: 850ms, 12s, 3m, 5h, 2d."""
    return words.span(abs(span))


def took(span: timedelta) -> str:
    """A measured duration: 12ms, 1.52s, 3m 20s."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < _MINUTE:
        return f"{seconds:.2f}s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    hours, minutes = divmod(minutes, _MINUTE)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"


def duration(span: timedelta) -> str:
    """A duration as it is written in a setting: 30s, 5m, 7d."""
    seconds = span.total_seconds()
    for length, unit in _UNITS:
        if seconds and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def number(count: int) -> str:
    """A count for people: 12,345."""
    return f"{count:,}"


def marked(count: int, colour: str | None = "red") -> Cell:
    """A count that is in colour if it is not 0."""
    return Cell(number(count), colour if count else None)


def _cell(value: Value) -> Cell:
    """What a table shows. Whoever filled it in, nothing in it steers the terminal."""
    if isinstance(value, Cell):
        return Cell(_harmless(value.text), value.colour)
    if isinstance(value, timedelta):
        return Cell(age(value))
    return Cell(number(value) if isinstance(value, int) else one_line(value or ""))


def _harmless(text: str) -> str:
    """Control characters and direction marks as text: a job's words must not move the cursor."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _is_number(value: Value) -> bool:
    """A count, plain or in colour; a text may look like one and is none."""
    return isinstance(value, int) or (isinstance(value, Cell) and value.text.replace(",", "").isdecimal())


def _columns(text: str) -> int:
    """How many columns a terminal needs for the text."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


_GAP = 2
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))
_MINUTE = 60


@contextmanager
def progress(label: str, length: int | None) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told how much is done by now; without a length there is nothing to show."""
    if length is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield lambda done: bar.update(done - bar.pos)


_BETWEEN_LINES = 1.0


@contextmanager
def steps(*, as_json: bool) -> Iterator[Callable[[Step], None]]:
    """Gives what shows each step, on standard error: a line that changes, or a line a second."""
    live = not as_json and sys.stderr.isatty()
    name, first, shown = "", 0, False
    begun = last = 0.0

    def show(step: Step) -> None:
        nonlocal name, first, begun, last, shown
        now = monotonic()
        if step.name != name:
            name, begun, first, last = step.name, now, step.done, 0.0
        if not (live or step.done == step.total) and now - last < _BETWEEN_LINES:
            return
        last, shown = now, live
        rate = (step.done - first) / max(now - begun, 1e-3)
        left = (step.total - step.done) / rate if rate else None
        if as_json:
            facts = {"step": name, "rows": step.done, "total": step.total, "rate": round(rate)}
            click.echo(json.dumps({**facts, "eta": left and round(left, 1)}), err=True)
        else:
            line = _step_line(step, rate, left)
            click.echo(f"\r{line}\x1b[K" if live else line, err=True, nl=not live)

    try:
        yield show
    finally:
        if shown:
            click.echo(err=True)


def _step_line(step: Step, rate: float, left: float | None) -> str:
    if not step.total:
        return step.name
    share = step.done / step.total
    bar = f"[{'#' * round(share * _WIDTH):-<{_WIDTH}}] {share:4.0%}"
    line = f"{step.name:<9} {bar}  {number(step.done)} of {count(step.total, 'row')}"
    line += f"  {number(round(rate))}/s" if rate else ""
    return line + (f"  {left:.0f}s left" if left else "")


_WIDTH = 30
