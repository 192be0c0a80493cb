"""What did we set out to reach, and did we?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.contenders import BY_NAME
from bench.results import Results

OURS, SQLITE = "windlass-postgres", "windlass-sqlite"
_CROWDED = 0.9


class Aim(NamedTuple):
    """One aim beside what was measured; `reached` is None if it was not."""

    case: str
    wanted: str
    measured: str
    reached: bool | None


def aims(results: Results) -> list[Aim]:
    """All of them, in the order of the report."""
    return [
        *_drains(results),
        _at_least(
            results, "enqueue, 10 producers, PostgreSQL", _Beside("enqueue_ten", OURS, _best(results)), 3.0
        ),
        _below(results, "enqueue, 10 producers, PostgreSQL", ("enqueue_ten", OURS, "p99"), 10.0, "ms at p99"),
        _dispatch(results),
        _below(results, "recovery after kill -9, PostgreSQL", ("recovery", OURS, "back"), 15.0, "s"),
        _below(results, "recovery after kill -9, SQLite", ("recovery", SQLITE, "back"), 15.0, "s"),
        *(_none_missing(results, name) for name in (OURS, SQLITE)),
        *_crowds(results),
        _below(results, "idle worker, PostgreSQL", ("idle", OURS, "asked"), 2.0, "statements/s"),
        _below(results, "idle worker, PostgreSQL", ("idle", OURS, "cpu"), 1.0, "% of a core"),
        _below(results, "idle worker, PostgreSQL", ("idle", OURS, "memory"), 60.0, "MB"),
    ]


class _Beside(NamedTuple):
    """Our rate in a case beside another's."""

    case: str
    ours: str
    other: str | None


def _drains(results: Results) -> Iterator[Aim]:
    one, two, file = "drain, one process, PostgreSQL", "drain, two processes, PostgreSQL", "drain, SQLite"
    yield _at_least(results, one, _Beside("drain_one", OURS, "pgqueuer"), 2.5)
    yield _at_least(results, one, _Beside("drain_one", OURS, "raw-postgres"), 0.7)
    yield _at_least(results, two, _Beside("drain_two", OURS, "pgqueuer"), 1.5)
    yield _at_least(results, file, _Beside("drain_one", SQLITE, "huey"), 3.0)
    yield _at_least(results, file, _Beside("drain_one", SQLITE, "raw-sqlite"), 0.6)


def _crowds(results: Results) -> Iterator[Aim]:
    for case, beside in (("crowd_other", "rows of another type"), ("crowd_scheduled", "scheduled rows")):
        for name, store in ((OURS, "PostgreSQL"), (SQLITE, "SQLite")):
            found = results.figure(case, name, "share")
            told = f"{found.median:.2f}" if found else "not measured"
            wanted = "at least 0.9 of without"
            yield Aim(
                f"drain beside {beside}, {store}", wanted, told, found.median >= _CROWDED if found else None
            )


def _at_least(results: Results, case: str, beside: _Beside, factor: float) -> Aim:
    title = BY_NAME[beside.other].title if beside.other else "the best peer there"
    wanted = f"at least {factor:g} times {title}"
    mine = results.figure(beside.case, beside.ours, "rate")
    theirs = results.figure(beside.case, beside.other, "rate") if beside.other else None
    if mine is None or theirs is None:
        return Aim(case, wanted, "not measured", None)
    ratio = mine.median / theirs.median
    told = f"{ratio:.2f} ({mine.median:,.0f}/s beside {theirs.median:,.0f}/s)"
    return Aim(case, wanted, told, ratio >= factor)


def _below(results: Results, case: str, where: tuple[str, str, str], limit: float, unit: str) -> Aim:
    found = results.figure(*where)
    wanted = f"under {limit:g} {unit}"
    if found is None:
        return Aim(case, wanted, "not measured", None)
    return Aim(case, wanted, f"{found.median:.2f}", found.median < limit)


def _dispatch(results: Results) -> Aim:
    mine = results.figure("dispatch", OURS, "p50")
    found = {
        name: figure.median
        for name in _peers(lambda name: BY_NAME[name].store == "postgres")
        if (figure := results.figure("dispatch", name, "p50"))
    }
    wanted = "p50 at or below the best peer there"
    if mine is None or not found:
        return Aim("dispatch on an idle worker, PostgreSQL", wanted, "not measured", None)
    best = min(found, key=lambda name: found[name])
    told = f"{mine.median:.2f} ms beside {found[best]:.2f} ms ({BY_NAME[best].title})"
    return Aim("dispatch on an idle worker, PostgreSQL", wanted, told, mine.median <= found[best])


def _none_missing(results: Results, name: str) -> Aim:
    found = results.figure("recovery", name, "missing")
    told = f"{found.median:.0f} missing" if found else "not measured"
    store = "SQLite" if name == SQLITE else "PostgreSQL"
    return Aim(f"recovery after kill -9, {store}", "nothing lost", told, found.high == 0 if found else None)


def _best(results: Results) -> str | None:
    """The peer that enqueues fastest on PostgreSQL with ten producers."""
    found = {
        name: figure.median
        for name in _peers(lambda name: BY_NAME[name].store == "postgres")
        if (figure := results.figure("enqueue_ten", name, "rate"))
    }
    return max(found, key=lambda name: found[name]) if found else None


def _peers(wanted: Callable[[str], bool]) -> list[str]:
    return [name for name, each in BY_NAME.items() if not each.is_ours and not each.is_raw and wanted(name)]
