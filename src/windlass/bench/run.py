"""How do our figures stand beside the limits, measured turn by turn in one run?"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from windlass.bench import cases, raw

_ROUNDS = 3


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure: the median of the rounds, all of them, and its share of a limit."""

    name: str
    unit: str
    median: float
    rounds: list[float]
    share_of: str | None = None
    share: float | None = None
    aim: str | None = None


def measure(*, scale: float = 1.0, folder: Path | None = None, step: Callable[[str], None]) -> list[Figure]:
    """Run every case `_ROUNDS` times, interleaved, on new files; `step` is told what is being measured."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=folder) as name:
        return _measure(Path(name), scale, step)


def steps() -> int:
    """How often `step` will be called."""
    return _ROUNDS * len(_RATES) + len(_LATENCIES) + 1


_RATES: dict[str, tuple[Callable[[Path, int], float], int]] = {
    "raw insert, one by one": (raw.single_inserts, 2_000),
    "raw cycle, batches of 100": (raw.whole_cycles, 20_000),
    "enqueue, one by one": (cases.single_enqueues, 2_000),
    "enqueue, 10 threads": (cases.threaded_enqueues, 5_000),
    "enqueue, bulk": (cases.bulk_enqueues, 20_000),
    "drain, async no-ops": (cases.drained, 20_000),
}
_SHARES = {
    "enqueue, one by one": ("raw insert, one by one", ">= 0.8"),
    "enqueue, 10 threads": ("enqueue, one by one", ">= 3"),
    "enqueue, bulk": ("raw insert, one by one", None),
    "drain, async no-ops": ("raw cycle, batches of 100", ">= 0.6"),
}
_LATENCIES: dict[str, tuple[Callable[[Path, int], list[float]], int, str]] = {
    "dispatch, one process": (cases.dispatch_within, 200, "p50 < 5 ms"),
    "dispatch, two processes": (cases.dispatch_across, 200, "p50 < 30 ms"),
}
_IDLE_SECONDS = 10.0


def _measure(folder: Path, scale: float, step: Callable[[str], None]) -> list[Figure]:
    found: dict[str, list[float]] = {name: [] for name in _RATES}
    for _ in range(_ROUNDS):
        for name, (case, count) in _RATES.items():
            step(name)
            found[name].append(case(folder, max(100, round(count * scale))))
    medians = {name: statistics.median(rounds) for name, rounds in found.items()}
    figures = [_rate(name, rounds, medians) for name, rounds in found.items()]
    for name, (delays_of, count, aim) in _LATENCIES.items():
        step(name)
        figures += _delays(name, delays_of(folder, max(20, round(count * scale))), aim)
    step("idle worker")
    share, megabytes = cases.idle(folder, max(3.0, _IDLE_SECONDS * scale))
    figures.append(Figure(name="idle worker", unit="% of a core", median=share * 100, rounds=[], aim="< 1"))
    figures.append(Figure(name="idle worker, memory", unit="MB", median=megabytes, rounds=[]))
    return figures


def _rate(name: str, rounds: list[float], medians: dict[str, float]) -> Figure:
    share_of, aim = _SHARES.get(name, (None, None))
    share = None if share_of is None else medians[name] / medians[share_of]
    return Figure(
        name=name, unit="jobs/s", median=medians[name], rounds=rounds, share_of=share_of, share=share, aim=aim
    )


def _delays(name: str, delays: list[float], aim: str) -> list[Figure]:
    cuts = statistics.quantiles(delays, n=100)
    return [
        Figure(name=f"{name}, p50", unit="ms", median=cuts[49], rounds=[], aim=aim),
        Figure(name=f"{name}, p99", unit="ms", median=cuts[98], rounds=[]),
    ]
