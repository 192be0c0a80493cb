"""How do our figures stand beside the limits, measured turn by turn in one run?"""

from __future__ import annotations

import math
import re
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from windlass.bench import cases, raw
from windlass.bench.raw import Folder, Place

_ROUNDS = 5
_AIM = re.compile(r"(>=|>|<) *([0-9.]+)")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure: the median of the rounds, all of them, and its share of a limit.

    An aim is written for people: `>= 0.7` of the share, `> 15000/s` or `< 3 ms` of the figure itself.
    """

    name: str
    unit: str
    median: float
    rounds: list[float]
    share_of: str | None = None
    share: float | None = None
    aim: str | None = None

    @property
    def reached(self) -> bool | None:
        """Whether all of its aim is met; None without one."""
        aims = [(sign, float(number)) for sign, number in _AIM.findall(self.aim or "")]
        return all(self._meets(sign, number) for sign, number in aims) if aims else None

    def _meets(self, sign: str, number: float) -> bool:
        if sign == ">=":
            return self.share is not None and self.share >= number
        return self.median > number if sign == ">" else self.median < number


Step = Callable[[str], None]
Rates = dict[str, tuple[Callable[[Any, int], float], int]]
Delays = dict[str, tuple[Callable[[Any, int], list[float]], int]]


def measure_files(*, scale: float = 1.0, folder: Path | None = None, step: Step) -> list[Figure]:
    """Run every case on new SQLite files; `step` is told what is being measured."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=folder) as name:
        place = Folder(Path(name))
        figures = _measure(place, _ON_FILES, scale, step)
        return figures + _idle(place.fresh("idle"), max(3.0, _IDLE_SECONDS * scale), step)


def measure_server(url: str, *, scale: float = 1.0, step: Step) -> list[Figure]:
    """Run every case on new databases of a PostgreSQL server."""
    # Its driver is an extra.
    from windlass.bench import postgres  # noqa: PLC0415

    place = postgres.Server(url)
    plan = _Plan(
        rates={
            "raw insert, one by one": (postgres.single_inserts, 2_000),
            "raw insert, batches of 500": (postgres.bulk_inserts, 20_000),
            "raw cycle, batches of 500": (postgres.whole_cycles, 20_000),
            **_RATES,
        },
        shares=_SERVER_SHARES,
        delays={_RAW_DISPATCH: (postgres.single_claims, 200), **_LATENCIES},
        dispatch=dict.fromkeys(_LATENCIES, ("< 3 ms", "< 10 ms")),
    )
    try:
        figures = _measure(place, plan, scale, step)
        return figures + _idle(place.fresh("idle"), max(3.0, _IDLE_SERVER_SECONDS * scale), step)
    finally:
        place.drop()


def measure_http(url: str, *, scale: float, folder: Path | None, step: Step) -> list[Figure]:
    """The server on new stores of the kind that the URL names."""
    # Its parts are extras.
    from windlass.bench import http  # noqa: PLC0415

    if not url.startswith("postgres"):
        with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=folder) as name:
            return http.measure(Folder(Path(name)), scale=scale, step=step)
    from windlass.bench import postgres  # noqa: PLC0415

    place = postgres.Server(url)
    try:
        return http.measure(place, scale=scale, step=step)
    finally:
        place.drop()


def http_steps() -> int:
    """How often `step` will be called for the server."""
    from windlass.bench import http  # noqa: PLC0415 - see above

    return http.ROUNDS * 3 + len(http.RATES) * http.PACED_ROUNDS * 2 + 1


def steps(*, on_server: bool) -> int:
    """How often `step` will be called."""
    limits = 3 if on_server else 2
    return _ROUNDS * (limits + len(_RATES)) + len(_LATENCIES) + on_server + 1


class _Plan(msgspec.Struct, kw_only=True):
    """What is measured: the limits first, then what stands beside them; shares and aims by name."""

    rates: Rates
    shares: dict[str, tuple[str, str | None]]
    delays: Delays
    # For p50 and for p99.
    dispatch: dict[str, tuple[str, str | None]]


_RATES: Rates = {
    "enqueue, one by one": (cases.single_enqueues, 2_000),
    "enqueue, 10 threads": (cases.threaded_enqueues, 5_000),
    "enqueue, bulk": (cases.bulk_enqueues, 20_000),
    "drain, async no-ops": (cases.drained, 20_000),
    "drain, two processes": (cases.drained_by_two, 20_000),
    "drain, process no-ops": (cases.drained_apart, 5_000),
}
_LATENCIES: Delays = {
    "dispatch, one process": (cases.dispatch_within, 200),
    "dispatch, two processes": (cases.dispatch_across, 200),
}
_RAW_DISPATCH = "raw insert and claim"
_ON_FILES = _Plan(
    rates={
        "raw insert, one by one": (raw.single_inserts, 2_000),
        "raw cycle, batches of 100": (raw.whole_cycles, 20_000),
        **_RATES,
    },
    shares={
        "enqueue, one by one": ("raw insert, one by one", ">= 0.8"),
        "enqueue, 10 threads": ("enqueue, one by one", ">= 3"),
        "enqueue, bulk": ("raw insert, one by one", None),
        "drain, async no-ops": ("raw cycle, batches of 100", ">= 0.6"),
        "drain, two processes": ("drain, async no-ops", None),
        "drain, process no-ops": ("raw cycle, batches of 100", "> 3000/s on 2 cores"),
    },
    delays=_LATENCIES,
    dispatch={"dispatch, one process": ("< 5 ms", None), "dispatch, two processes": ("< 30 ms", None)},
)
_SERVER_SHARES: dict[str, tuple[str, str | None]] = {
    "enqueue, one by one": ("raw insert, one by one", None),
    "enqueue, 10 threads": ("raw insert, one by one", ">= 3"),
    "enqueue, bulk": ("raw insert, batches of 500", "> 40000/s"),
    "drain, async no-ops": ("raw cycle, batches of 500", ">= 0.7, > 15000/s"),
    "drain, two processes": ("drain, async no-ops", ">= 1"),
    "drain, process no-ops": ("raw cycle, batches of 500", "> 3000/s on 2 cores"),
}
_IDLE_SECONDS = 20.0
# Some of what a worker asks a server comes every 15 or 30 seconds.
_IDLE_SERVER_SECONDS = 60.0
# A whole batch, so that every case has something to do.
_FEWEST = 500


def _measure(place: Place, plan: _Plan, scale: float, step: Step) -> list[Figure]:
    found: dict[str, list[float]] = {name: [] for name in plan.rates}
    for _ in range(_ROUNDS):
        for name, (case, count) in plan.rates.items():
            step(name)
            found[name].append(case(place, max(_FEWEST, round(count * scale))))
    figures = [_rate(name, found, plan.shares) for name in found]
    limit: list[float] | None = None
    for name, (delays_of, count) in plan.delays.items():
        step(name)
        cuts = statistics.quantiles(delays_of(place, max(20, round(count * scale))), n=100)
        limit = cuts if name == _RAW_DISPATCH else limit
        figures += _delays(name, cuts, limit, plan.dispatch.get(name, (None, None)))
    return figures


def _idle(url: str, seconds: float, step: Step) -> list[Figure]:
    step("idle worker")
    share, megabytes, asked = cases.idle(url, seconds)
    figures = [
        Figure(name="idle worker", unit="% of a core", median=share * 100, rounds=[], aim="< 1"),
        Figure(name="idle worker, memory", unit="MB", median=megabytes, rounds=[], aim="< 60"),
    ]
    if not math.isnan(asked):
        figures.append(
            Figure(name="idle worker, its statements", unit="1/s", median=asked, rounds=[], aim="< 2")
        )
    return figures


def _rate(name: str, found: dict[str, list[float]], shares: dict[str, tuple[str, str | None]]) -> Figure:
    share_of, aim = shares.get(name, (None, None))
    return Figure(
        name=name,
        unit="jobs/s",
        median=statistics.median(found[name]),
        rounds=found[name],
        share_of=share_of,
        share=None if share_of is None else share(found[name], found[share_of]),
        aim=aim,
    )


def share(rounds: list[float], limits: list[float]) -> float:
    """Within each round both met the same minute, so it is their shares that are comparable."""
    return statistics.median(mine / limit for mine, limit in zip(rounds, limits, strict=True))


def _delays(
    name: str, cuts: list[float], limit: list[float] | None, aims: tuple[str | None, str | None]
) -> list[Figure]:
    figures = []
    for percent, aim in zip((50, 99), aims, strict=True):
        beside = None if limit is None or name == _RAW_DISPATCH else limit[percent - 1]
        figures.append(
            Figure(
                name=f"{name}, p{percent}",
                unit="ms",
                median=cuts[percent - 1],
                rounds=[],
                share_of=None if beside is None else f"{_RAW_DISPATCH}, p{percent}",
                share=None if beside is None else cuts[percent - 1] / beside,
                aim=aim,
            )
        )
    return figures
