"""How do our figures stand beside the limits, measured turn by turn in one run?"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from windlass.bench import cases, raw
from windlass.bench.place import Folder, Place

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


Step = Callable[[str], None]
Rates = dict[str, tuple[Callable[[Any, int], float], int]]


def measure_files(*, scale: float = 1.0, folder: Path | None = None, step: Step) -> list[Figure]:
    """Run every case on new SQLite files; `step` is told what is being measured."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=folder) as name:
        place = Folder(Path(name))
        return _measure(place, _ON_FILES, scale, step) + _idle(place.fresh("idle"), scale, step)


def measure_server(url: str, *, scale: float = 1.0, step: Step) -> list[Figure]:
    """Run every case on new databases of a PostgreSQL server."""
    # Its driver is an extra.
    from windlass.bench import postgres  # noqa: PLC0415

    place = postgres.Server(url)
    limits: Rates = {
        "raw insert, one by one": (postgres.single_inserts, 2_000),
        "raw cycle, batches of 500": (postgres.whole_cycles, 20_000),
    }
    try:
        figures = _measure(
            place, _Plan(limits, _SERVER_SHARES, dict.fromkeys(_LATENCIES, "p50 < 3 ms")), scale, step
        )
        idle = place.fresh("idle")
        figures += _idle(idle, scale, step)
        long, seconds = place.statements_of(idle), max(3.0, _IDLE_SECONDS * scale)
        # A shorter run tells what joining, the first job and leaving take.
        idle = place.fresh("idle")
        cases.idle(idle, 1.0)
        told = (long - place.statements_of(idle)) / (seconds - 1.0)
        figures.append(Figure(name="idle worker, statements", unit="1/s", median=told, rounds=[], aim="< 2"))
        return figures
    finally:
        place.drop()


def steps() -> int:
    """How often `step` will be called."""
    return _ROUNDS * (2 + len(_RATES)) + len(_LATENCIES) + 1


class _Plan(msgspec.Struct):
    """The limits that figures stand beside, the shares of them, and the aims for a dispatch."""

    limits: Rates
    shares: dict[str, tuple[str, str | None]]
    dispatch: dict[str, str]


_RATES: Rates = {
    "enqueue, one by one": (cases.single_enqueues, 2_000),
    "enqueue, 10 threads": (cases.threaded_enqueues, 5_000),
    "enqueue, bulk": (cases.bulk_enqueues, 20_000),
    "drain, async no-ops": (cases.drained, 20_000),
    "drain, process no-ops": (cases.drained_apart, 5_000),
}
_ON_FILES = _Plan(
    {
        "raw insert, one by one": (raw.single_inserts, 2_000),
        "raw cycle, batches of 100": (raw.whole_cycles, 20_000),
    },
    {
        "enqueue, one by one": ("raw insert, one by one", ">= 0.8"),
        "enqueue, 10 threads": ("enqueue, one by one", ">= 3"),
        "enqueue, bulk": ("raw insert, one by one", None),
        "drain, async no-ops": ("raw cycle, batches of 100", ">= 0.6"),
        "drain, process no-ops": ("raw cycle, batches of 100", "> 3000/s on 2 cores"),
    },
    {"dispatch, one process": "p50 < 5 ms", "dispatch, two processes": "p50 < 30 ms"},
)
_SERVER_SHARES: dict[str, tuple[str, str | None]] = {
    "enqueue, one by one": ("raw insert, one by one", None),
    "enqueue, 10 threads": ("raw insert, one by one", ">= 3"),
    "enqueue, bulk": ("raw insert, one by one", "> 40000/s"),
    "drain, async no-ops": ("raw cycle, batches of 500", ">= 0.7, > 15000/s"),
    "drain, process no-ops": ("raw cycle, batches of 500", "> 3000/s on 2 cores"),
}
_LATENCIES: dict[str, tuple[Callable[[Place, int], list[float]], int]] = {
    "dispatch, one process": (cases.dispatch_within, 200),
    "dispatch, two processes": (cases.dispatch_across, 200),
}
_IDLE_SECONDS = 10.0


def _measure(place: Place, plan: _Plan, scale: float, step: Step) -> list[Figure]:
    rates = plan.limits | _RATES
    found: dict[str, list[float]] = {name: [] for name in rates}
    for _ in range(_ROUNDS):
        for name, (case, count) in rates.items():
            step(name)
            found[name].append(case(place, max(100, round(count * scale))))
    medians = {name: statistics.median(rounds) for name, rounds in found.items()}
    figures = [_rate(name, rounds, medians, plan.shares) for name, rounds in found.items()]
    for name, (delays_of, count) in _LATENCIES.items():
        step(name)
        figures += _delays(name, delays_of(place, max(20, round(count * scale))), plan.dispatch[name])
    return figures


def _idle(url: str, scale: float, step: Step) -> list[Figure]:
    step("idle worker")
    share, megabytes = cases.idle(url, max(3.0, _IDLE_SECONDS * scale))
    return [
        Figure(name="idle worker", unit="% of a core", median=share * 100, rounds=[], aim="< 1"),
        Figure(name="idle worker, memory", unit="MB", median=megabytes, rounds=[]),
    ]


def _rate(
    name: str,
    rounds: list[float],
    medians: dict[str, float],
    shares: dict[str, tuple[str, str | None]],
) -> Figure:
    share_of, aim = shares.get(name, (None, None))
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
