"""Is this tree slower than an earlier commit? Both are measured in turn, pair by pair."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import environments
from bench.client import Client
from bench.contenders import BY_NAME, StoreKind
from bench.places import Places

PAIRS = 21
FEWEST = 3
# The lower quartile of the pairs, or the CPU time of a job where the machine's noise hides the rate.
LEAST_RATE = 0.97
MOST_CPU = 1.03
_WITHIN = 120.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured, and the figure of it in which more is better."""

    name: str
    verb: str
    arguments: dict[str, Any]
    rate: Callable[[dict[str, Any]], float] = lambda figures: figures["rate"]


MEASURES = (
    Measure("drain", "drain", {"count": 8_000}),
    Measure("enqueue", "enqueue_one", {"seconds": 0.4}),
    # As many as it takes for the kernel's clock of CPU time, which counts in hundredths of a second.
    Measure("dispatch", "dispatch", {"count": 100}, lambda figures: 1000 / figures["p50"]),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all pairs of one measure say, as shares of the earlier commit."""

    rates: list[float]
    cpus: list[float]

    @property
    def low(self) -> float:
        """The lower quartile of the rates."""
        return statistics.quantiles(self.rates, n=4, method="inclusive")[0]

    @property
    def cpu(self) -> float | None:
        """The median share of CPU time for each job, if it was measured."""
        return statistics.median(self.cpus) if self.cpus else None

    @property
    def holds(self) -> bool:
        """Whether this tree is as fast."""
        return self.low >= LEAST_RATE or (self.cpu is not None and self.cpu <= MOST_CPU)


def compare(
    places: Places, commit: str, *, stores: list[StoreKind], only: str | None, count: int, tell: Tell
) -> int:
    """Measure both trees; 1 if this one is slower in anything."""
    if count < FEWEST:
        raise ValueError(f"--pairs must be at least {FEWEST}, got {count}")
    earlier = environments.python_for("windlass", source=checkout(commit), tell=tell)
    pythons = [earlier, environments.python_for("windlass", tell=tell)]
    tell(f"this tree as a share of {commit}, {count} pairs each")
    tell(f"{'':<24}{'median':>8}{'quartiles':>14}{'CPU':>7}")
    slower = 0
    for store in stores:
        for measure in MEASURES:
            if only in {None, measure.name}:
                found = _pairs(places, pythons, store, measure, count)
                slower += not found.holds
                tell(_line(f"{measure.name}, {BY_NAME[f'windlass-{store}'].title}", found))
    return 1 if slower else 0


def checkout(commit: str) -> Path:
    """The files of a commit, in a folder that is kept."""
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    folder = environments.KEPT / "commits" / full[:12]
    if not folder.exists():
        folder.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "archive", full], cwd=environments.ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=environments.ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        raise ValueError(f"--against: {told.stderr.strip()}")
    return told.stdout.strip()


def _pairs(places: Places, pythons: list[Path], store: StoreKind, measure: Measure, count: int) -> Verdict:
    """One pair more than is counted: the first one meets empty caches."""
    found = Verdict([], [])
    places_ = [places.fresh(store, plain_path=False) for _ in pythons]
    try:
        with (
            Client(pythons[0], "windlass", places_[0].url) as then,
            Client(pythons[1], "windlass", places_[1].url) as now,
        ):
            for client in (then, now):
                client.ask("setup", within=_WITHIN)
            for number in range(count + 1):
                # Now the one first, now the other: whatever a turn leaves behind meets both.
                turns = (then, now) if number % 2 else (now, then)
                figures = {
                    id(one): one.ask(measure.verb, within=_WITHIN, **measure.arguments) for one in turns
                }
                before, after = figures[id(then)], figures[id(now)]
                if number:
                    found.rates.append(measure.rate(after) / measure.rate(before))
                    if before.get("cpu"):
                        found.cpus.append(after["cpu"] / before["cpu"])
    finally:
        for place in places_:
            place.close()
    return found


def _line(name: str, found: Verdict) -> str:
    low, _, high = statistics.quantiles(found.rates, n=4, method="inclusive")
    cpu = "" if found.cpu is None else f"{found.cpu:7.2f}"
    verdict = "" if found.holds else "   SLOWER"
    return f"{name:<24}{statistics.median(found.rates):>8.2f}{low:>8.2f}{high:>6.2f}{cpu:>7}{verdict}"
