"""What is measured, and how much of it? Sizes shrink with the scale, the cases stay the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.contenders import Contender

ENQUEUE_SECONDS = 2.0
DRAIN_SECONDS = 3.0
BULK = 10_000
DISPATCHES = 100
IDLE_SECONDS = 20.0
RECOVERY_LIMIT = 90.0
CROWDS = {"other": 200_000, "scheduled": 1_000_000, "archived": 10_000_000}
WAIT_SLOTS = 100
_WAIT_PACE = 2_500
_CPU_PACE = 250
# So many contenders at the same time, in cases that mostly wait: when all start at once, none does in time.
TOGETHER = 6
# So many times the scale is the size of a case that has no crowd to fill in.
_CHEAP = 3.0
# The smallest scale, in percent.
_SMALLEST = 2
# A driver, its store and its worker come and go.
_AROUND = 1.3
Arguments = Callable[[Contender, float], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure."""

    name: str
    title: str
    verb: str
    arguments: Arguments
    # About how long one run takes at full size, without its surroundings and the filling of a crowd.
    seconds: float
    # What does not shrink with the scale.
    fixed: float = 0.0
    rounds: int = 3
    together: bool = False
    # The database itself has no worker, so it takes part in some only.
    with_raw: bool = False
    crowd: str | None = None
    # About how long it takes until the whole crowd is in.
    filling: float = 0.0
    metrics: dict[str, str] = field(default_factory=lambda: {"rate": "jobs/s"})


def _seconds(_: Contender, scale: float) -> dict[str, Any]:
    return {"seconds": ENQUEUE_SECONDS * scale}


def _drain(processes: int) -> Arguments:
    def arguments(contender: Contender, scale: float) -> dict[str, Any]:
        return {
            "count": sized(contender.pace * DRAIN_SECONDS * processes**0.5, scale),
            "processes": processes,
        }

    return arguments


def _wait(contender: Contender, scale: float) -> dict[str, Any]:
    pace = min(_WAIT_PACE, contender.pace)
    return {"count": sized(pace * DRAIN_SECONDS, scale), "task": "wait", "concurrency": WAIT_SLOTS}


def _spin(contender: Contender, scale: float) -> dict[str, Any]:
    pace = min(_CPU_PACE, 2 * contender.pace)
    return {"count": sized(pace * DRAIN_SECONDS, scale), "task": "spin", "processes": 2}


def _recovery(contender: Contender, _: float) -> dict[str, Any]:
    return {"jobs": max(2, contender.at_once), "at_once": contender.at_once, "limit": RECOVERY_LIMIT}


def sized(count: float, scale: float) -> int:
    """So many jobs at this scale, in whole hundreds where that is possible."""
    wanted = round(count * scale)
    return max(60, wanted if wanted < 1000 else wanted // 500 * 500)  # noqa: PLR2004


_CROWDED = {"share": "of without", "before": "jobs/s", "after": "jobs/s", "crowd": "rows"}
_LATENCY = {"p50": "ms", "p99": "ms"}
_RATE_AND_LATENCY = {"rate": "jobs/s", "p50": "ms", "p99": "ms"}
ALL = (
    Case(
        "enqueue_one",
        "Enqueue one by one, one producer",
        "enqueue_one",
        _seconds,
        ENQUEUE_SECONDS,
        with_raw=True,
        metrics=_RATE_AND_LATENCY,
    ),
    Case(
        "enqueue_ten",
        "Enqueue one by one, 10 producers in one process",
        "enqueue_producers",
        _seconds,
        ENQUEUE_SECONDS,
        with_raw=True,
        metrics=_RATE_AND_LATENCY,
    ),
    Case(
        "bulk",
        "Enqueue in bulk",
        "bulk",
        lambda _, scale: {"count": sized(BULK, scale)},
        1.0,
        with_raw=True,
    ),
    Case("drain_one", "Drain no-ops, one process", "drain", _drain(1), DRAIN_SECONDS + 1, with_raw=True),
    Case("drain_two", "Drain no-ops, two processes", "drain", _drain(2), DRAIN_SECONDS + 1),
    Case("wait", "Drain jobs that wait 20 ms, 100 at once in one process", "drain", _wait, DRAIN_SECONDS + 1),
    Case("cpu", "Drain jobs of 5 ms CPU, two processes", "drain", _spin, DRAIN_SECONDS + 1),
    Case(
        "dispatch",
        "From enqueue to start on an idle worker",
        "dispatch",
        lambda _, scale: {"count": max(20, round(DISPATCHES * scale))},
        DISPATCHES * 0.06,
        metrics=_LATENCY,
    ),
    Case(
        "idle",
        "An idle worker process",
        "idle",
        # Not less at a smaller scale: some of what a worker asks comes every 15 seconds.
        lambda _, __: {"seconds": IDLE_SECONDS},
        0,
        fixed=IDLE_SECONDS + 33,
        rounds=1,
        together=True,
        metrics={"cpu": "% of a core", "asked": "1/s", "memory": "MB"},
    ),
    Case(
        "recovery",
        "After `kill -9` of a worker",
        "recovery",
        _recovery,
        0,
        fixed=RECOVERY_LIMIT + 10,
        rounds=1,
        together=True,
        metrics={"back": "s", "missing": "jobs", "doubled": "jobs"},
    ),
    Case(
        "crowd_other",
        "Drain beside rows of another type or queue",
        "drain",
        _drain(1),
        2 * DRAIN_SECONDS + 2,
        crowd="other",
        filling=4,
        metrics=_CROWDED,
    ),
    Case(
        "crowd_scheduled",
        "Drain beside rows scheduled for next week",
        "drain",
        _drain(1),
        2 * DRAIN_SECONDS + 2,
        rounds=1,
        filling=20,
        crowd="scheduled",
        metrics=_CROWDED,
    ),
    Case(
        "crowd_archived",
        "Drain beside finished rows",
        "drain",
        _drain(1),
        2 * DRAIN_SECONDS + 2,
        rounds=1,
        filling=60,
        crowd="archived",
        metrics=_CROWDED,
    ),
)
BY_NAME = {case.name: case for case in ALL}


def chosen(names: str | None) -> list[Case]:
    """Those whose names were given, in their usual order; all without names."""
    if not names:
        return list(ALL)
    wanted = names.split(",")
    unknown = [name for name in wanted if name not in BY_NAME]
    if unknown:
        raise ValueError(f"no case is called {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    return [case for case in ALL if case.name in wanted]


def takes_part(case: Case, contender: Contender) -> bool:
    """Whether a contender is measured in a case at all."""
    if contender.only and case.name not in contender.only:
        return False
    if contender.is_raw:
        return case.with_raw and not (contender.store == "sqlite" and case.name == "enqueue_ten")
    return case.crowd is None or contender.store != "redis"


def _is_able(case: Case, contender: Contender) -> bool:
    """Whether it takes any time: who keeps no finished jobs says so at once."""
    return case.crowd != "archived" or contender.keeps_finished


def crowd_size(kind: str, scale: float) -> int:
    """How many rows come in; a smaller run keeps the whole crowd as long as it can."""
    return max(1000, round(CROWDS[kind] * _crowded(scale)))


def _crowded(scale: float) -> float:
    return min(1.0, 2 * scale)


def size_of(case: Case, scale: float) -> float:
    """How large a case is at a scale: what is cheap keeps its size for longer than what takes minutes."""
    return scale if case.crowd else min(1.0, _CHEAP * scale)


def estimate(cases: list[Case], contenders: list[Contender], rounds: int, scale: float) -> float:
    """About how many seconds a run will take."""
    total = 0.0
    for case in cases:
        runs = sum(takes_part(case, each) and _is_able(case, each) for each in contenders)
        one = _AROUND * (2 if case.crowd else 1) + case.fixed + case.seconds * size_of(case, scale)
        one += case.filling * _crowded(scale)
        steps = -(-runs // TOGETHER) if case.together else runs
        total += min(rounds, case.rounds) * one * steps
    return total


def scale_for(cases: list[Case], contenders: list[Contender], rounds: int, seconds: float) -> float:
    """The largest scale, 1 at most, that fits into so many seconds."""
    fitting = (percent / 100 for percent in range(100, _SMALLEST, -1))
    return next(
        (scale for scale in fitting if estimate(cases, contenders, rounds, scale) <= seconds), _SMALLEST / 100
    )
