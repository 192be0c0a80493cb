"""How long did each call take? A line each in one file, written by every process that makes calls."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.history.result import at

FILE = "SOAK_NOTES"
# A notes file's lines are written together.
_TOGETHER = 64


class Note(NamedTuple):
    """A call: when it was due, its milliseconds from then, how often it was sent, whether it succeeded."""

    kind: str
    due: float
    took: float
    tries: int = 1
    done: bool = True


class Notes:
    """Appends notes; for one thread."""

    def __init__(self, path: str | None = None) -> None:
        self._file = os.open(path or os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lines: list[str] = []

    def add(self, note: Note) -> None:
        """Keep one, and write when there are enough."""
        self._lines.append(f"{note.kind} {note.due:.3f} {note.took:.3f} {note.tries} {note.done:d}\n")
        if len(self._lines) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write what was kept."""
        os.write(self._file, "".join(self._lines).encode())
        self._lines.clear()


def read(path: Path) -> Iterator[Note]:
    """All notes; a line that a killed process left half is passed over."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            parts = line.split()
            if len(parts) == len(Note._fields):
                kind, due, took, tries, done = parts
                yield Note(kind, float(due), float(took), int(tries), done == "1")


class Spans:
    """Stretches of time; asked whether a moment is in one of them."""

    def __init__(self, spans: Iterable[tuple[float, float]] = ()) -> None:
        merged: list[list[float]] = []
        for since, until in sorted(spans):
            if merged and since <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], until)
            else:
                merged.append([since, until])
        self._merged = merged
        self._starts = [since for since, _ in merged]

    def __contains__(self, moment: float) -> bool:
        place = bisect_right(self._starts, moment) - 1
        return place >= 0 and moment <= self._merged[place][1]

    def seconds(self, since: float, until: float) -> float:
        """How long they are between two moments."""
        return sum(max(0.0, min(until, end) - max(since, start)) for start, end in self._merged)


@dataclass
class Calls:
    """The calls of one kind: milliseconds, and how many there were, succeeded and were sent again."""

    took: array[float] = field(default_factory=lambda: array("d"))
    calm: array[float] = field(default_factory=lambda: array("d"))
    made: int = 0
    done: int = 0
    repeated: int = 0

    def add(self, note: Note, *, calm: bool) -> None:
        """Count one."""
        self.made += 1
        self.done += note.done
        self.repeated += note.tries > 1
        if note.done:
            self.took.append(note.took)
            if calm:
                self.calm.append(note.took)

    def figures(self) -> dict[str, float]:
        """For the result."""
        found: dict[str, float] = {"made": self.made, "succeeded": self.done, "sent again": self.repeated}
        for name, values in (("", self.took), ("calm ", self.calm)):
            ordered = sorted(values)
            found[f"{name}counted"] = len(ordered)
            for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
                if ordered:
                    found[f"{name}{label}"] = round(at(ordered, share), 2)
        return found


def by_kind(notes: Iterable[Note], disturbed: Spans) -> dict[str, Calls]:
    """The calls by their kind; those in disturbed moments are not calm."""
    found: defaultdict[str, Calls] = defaultdict(Calls)
    for note in notes:
        found[note.kind].add(note, calm=note.due not in disturbed)
    return dict(found)


def series(notes: Iterable[Note], kind: str, begun: float, step: float) -> dict[str, Sequence[float]]:
    """Of one kind, for each step of time: its middle, calls a second and their quantiles."""
    buckets: defaultdict[int, list[float]] = defaultdict(list)
    for note in notes:
        if note.kind == kind and note.done:
            buckets[int((note.due - begun) // step)].append(note.took)
    places = sorted(buckets)
    ordered = [sorted(buckets[place]) for place in places]
    return {
        "seconds": [round((place + 0.5) * step, 1) for place in places],
        "rate": [round(len(each) / step, 1) for each in ordered],
        "p50": [round(at(each, 0.5), 2) for each in ordered],
        "p99": [round(at(each, 0.99), 2) for each in ordered],
    }
