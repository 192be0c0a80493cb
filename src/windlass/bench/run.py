"""How do our figures stand beside the limits, measured turn by turn in one run?"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from windlass import connect
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
# What is measured, how often, its limit and its aim; of delays the aims for p50 and p99.
Rates = dict[str, tuple[Callable[[Any, int], float], int, str | None, str | None]]
Delays = dict[str, tuple[Callable[[Any, int], list[float]], int, tuple[str | None, str | None]]]


def measure(url: str, *, http: bool, scale: float, folder: Path | None, step: Step) -> list[Figure]:
    """Every figure, on new stores of the kind that the URL names; `step` is told what is being measured."""
    with _place(url, folder) as place:
        if http:
            return list(_http().measure(place, scale=scale, step=step))
        plan = _plan(on_server=connect.is_postgres(url))
        seconds = max(_SHORTEST_IDLE, plan.idle * scale)
        return [*_measure(place, plan, scale, step), *_idle(place.fresh("idle"), seconds, step)]


def steps(*, http: bool, on_server: bool) -> int:
    """How often `step` will be called."""
    if http:
        return int(_http().steps())
    plan = _plan(on_server=on_server)
    return _ROUNDS * len(plan.rates) + len(plan.delays) + 1


@contextmanager
def _place(url: str, folder: Path | None) -> Iterator[Place]:
    if not connect.is_postgres(url):
        with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=folder) as name:
            yield Folder(Path(name))
        return
    # Its driver is an extra.
    from windlass.bench.postgres import Server  # noqa: PLC0415

    place = Server(url)
    try:
        yield place
    finally:
        place.drop()


def _http() -> ModuleType:
    # Its parts are extras.
    from windlass.bench import http  # noqa: PLC0415

    return http


class _Plan(NamedTuple):
    """What is measured; the limits come first, then what stands beside them."""

    rates: Rates
    delays: Delays
    idle: float


_ALONE, _APART = "raw insert, one by one", "> 3000/s on 2 cores"
_RAW_DISPATCH = "raw insert and claim"
_SHORTEST_IDLE = 3.0
# A whole batch, so that every case has something to do.
_FEWEST = 500


def _plan(*, on_server: bool) -> _Plan:
    if not on_server:
        return _Plan(
            {
                _ALONE: (raw.single_inserts, 2_000, None, None),
                "raw cycle, batches of 100": (raw.whole_cycles, 20_000, None, None),
                "enqueue, one by one": (cases.single_enqueues, 2_000, _ALONE, ">= 0.8"),
                "enqueue, 10 threads": (cases.threaded_enqueues, 5_000, "enqueue, one by one", ">= 3"),
                "enqueue, bulk": (cases.bulk_enqueues, 20_000, _ALONE, None),
                "drain, async no-ops": (cases.drained, 20_000, "raw cycle, batches of 100", ">= 0.6"),
                "drain, two processes": (cases.drained_by_two, 20_000, "drain, async no-ops", None),
                "drain, process no-ops": (cases.drained_apart, 5_000, "raw cycle, batches of 100", _APART),
            },
            {
                "dispatch, one process": (cases.dispatch_within, 200, ("< 5 ms", None)),
                "dispatch, two processes": (cases.dispatch_across, 200, ("< 30 ms", None)),
            },
            idle=20.0,
        )
    # Its driver is an extra.
    from windlass.bench import postgres  # noqa: PLC0415

    bulk, cycle = "raw insert, batches of 500", "raw cycle, batches of 500"
    return _Plan(
        {
            _ALONE: (postgres.inserts, 2_000, None, None),
            bulk: (partial(postgres.inserts, size=500), 20_000, None, None),
            cycle: (postgres.whole_cycles, 20_000, None, None),
            "enqueue, one by one": (cases.single_enqueues, 2_000, _ALONE, None),
            "enqueue, 10 threads": (cases.threaded_enqueues, 5_000, _ALONE, ">= 3"),
            "enqueue, bulk": (cases.bulk_enqueues, 20_000, bulk, "> 40000/s"),
            "drain, async no-ops": (cases.drained, 20_000, cycle, ">= 0.7, > 15000/s"),
            "drain, two processes": (cases.drained_by_two, 20_000, "drain, async no-ops", ">= 1"),
            "drain, process no-ops": (cases.drained_apart, 5_000, cycle, _APART),
        },
        {
            _RAW_DISPATCH: (postgres.single_claims, 200, (None, None)),
            "dispatch, one process": (cases.dispatch_within, 200, ("< 3 ms", "< 10 ms")),
            "dispatch, two processes": (cases.dispatch_across, 200, ("< 3 ms", "< 10 ms")),
        },
        # Some of what a worker asks a server comes every 15 or 30 seconds.
        idle=60.0,
    )


def _measure(place: Place, plan: _Plan, scale: float, step: Step) -> list[Figure]:
    found: dict[str, list[float]] = {name: [] for name in plan.rates}
    for _ in range(_ROUNDS):
        for name, (case, count, *_) in plan.rates.items():
            step(name)
            found[name].append(case(place, max(_FEWEST, round(count * scale))))
    figures = [
        rate(name, found[name], beside, found.get(beside or ""), aim)
        for name, (_, _, beside, aim) in plan.rates.items()
    ]
    limit: list[Figure] | None = None
    for name, (delays_of, count, aims) in plan.delays.items():
        step(name)
        made = delays(name, delays_of(place, max(20, round(count * scale))), aims, limit)
        limit = made if name == _RAW_DISPATCH else limit
        figures += made
    return figures


def _idle(url: str, seconds: float, step: Step) -> list[Figure]:
    step("idle worker")
    share, megabytes, asked = cases.idle(url, seconds)
    found = (
        ("idle worker", "% of a core", share * 100, "< 1"),
        ("idle worker, memory", "MB", megabytes, "< 60"),
        ("idle worker, its statements", "1/s", asked, "< 2"),
    )
    return [
        Figure(name=name, unit=unit, median=value, rounds=[], aim=aim)
        for name, unit, value, aim in found
        if not math.isnan(value)
    ]


def rate(
    name: str,
    rounds: list[float],
    beside: str | None = None,
    limits: list[float] | None = None,
    aim: str | None = None,
) -> Figure:
    """Jobs a second. Both met the same minute within each round, so their shares are comparable."""
    share = (
        None if limits is None else median(mine / limit for mine, limit in zip(rounds, limits, strict=True))
    )
    return Figure(
        name=name,
        unit="jobs/s",
        median=median(rounds),
        rounds=rounds,
        share_of=beside,
        share=share,
        aim=aim,
    )


def delays(
    name: str,
    measured: list[float],
    aims: tuple[str | None, str | None],
    beside: list[Figure] | None = None,
) -> list[Figure]:
    """Milliseconds that half of all took at most, and that all but one in a hundred did."""
    cuts = quantiles(measured, n=100)
    return [
        Figure(
            name=f"{name}, p{percent}",
            unit="ms",
            median=cuts[percent - 1],
            rounds=[],
            share_of=None if other is None else other.name,
            share=None if other is None else cuts[percent - 1] / other.median,
            aim=aim,
        )
        for percent, aim, other in zip((50, 99), aims, beside or (None, None), strict=True)
    ]
