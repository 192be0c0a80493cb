"""What was found? Every run as it was, so that medians and plots can be made from the file alone."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import msgspec

RESULTS = Path(__file__).resolve().parent / "results"
LATEST = RESULTS / "latest.json"
QUICK = RESULTS / "quick.json"


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One case of one contender in one round: figures, or why there are none."""

    case: str
    contender: str
    round: int
    figures: dict[str, Any] = {}
    cannot: str | None = None
    failed: str | None = None


class Entrant(msgspec.Struct, frozen=True, kw_only=True):
    """What stood behind a contender's name in this run."""

    title: str
    store: str
    version: str
    settings: str
    leaves_out: str = ""


class Results(msgspec.Struct, kw_only=True):
    """A whole run."""

    made: str
    commit: str
    scale: float
    rounds: int
    minutes: float = 0.0
    machine: dict[str, str]
    servers: dict[str, str]
    entrants: dict[str, Entrant] = {}
    runs: list[Run] = []

    def save(self, path: Path) -> None:
        """Write it down, one run a line, so that a change can be read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        head = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(self, runs=[])), indent=1)
        lines = b",\n".join(b"  " + msgspec.json.encode(run) for run in self.runs)
        path.write_bytes(head.replace(b'"runs": []', b'"runs": [\n' + lines + b"\n ]") + b"\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read it back."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def figure(self, case: str, contender: str, metric: str) -> Figure | None:
        """The median of the rounds, or None if it was not measured."""
        found = [
            float(run.figures[metric])
            for run in self.runs
            if run.case == case and run.contender == contender and run.figures.get(metric) is not None
        ]
        return Figure.of(found) if found else None

    def why_not(self, case: str, contender: str) -> str | None:
        """Why there is no figure, in the peer's own words or ours."""
        for run in self.runs:
            if run.case == case and run.contender == contender and not run.figures:
                return run.cannot or run.failed
        return None


class Figure(msgspec.Struct, frozen=True):
    """A median and how far the rounds lie apart."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: list[float]) -> Figure:
        """Sum up the rounds of one figure."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    @property
    def spread(self) -> float:
        """The distance between the best and the worst round, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0
