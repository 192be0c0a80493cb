"""What happened over time, as charts want it? Pure: rows of the store's history to series of points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from windlass.errors import must_be
from windlass.observe import names
from windlass.store.history import LENGTH, Past, Step

# So far back if nobody says otherwise, and so many points of a type at most.
USUAL: dict[Step, timedelta] = {
    Step.MINUTE: timedelta(hours=3),
    Step.HOUR: timedelta(days=2),
    Step.DAY: timedelta(days=30),
}
MOST_POINTS = 3_000
# And so many of all types together; those with the fewest jobs are then shown as one.
MOST_IN_ALL = 20_000
_MILLION = 1_000_000
_THOUSAND = 1_000


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one type; what nobody measured is None."""

    at: datetime
    enqueued: int
    completed: int
    failed: int
    dead: int
    wait_ms: float | None
    run_ms: float | None
    # All that waited, and those of them whose time had come.
    depth: int | None
    due: int | None
    # In seconds.
    oldest_due_age: float | None


class Line(msgspec.Struct, frozen=True):
    """The points of one type, oldest first, without a gap."""

    type: str
    points: list[Point]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What happened between two moments."""

    step: Step
    since: datetime = msgspec.field(name="from")
    until: datetime = msgspec.field(name="to")
    series: list[Line]


def bounds(
    step: Step, since: datetime | None, until: datetime | None, now: datetime
) -> tuple[datetime, datetime]:
    """From when to when; refuses what is upside down, or more than a chart can show."""
    until = until or now
    since = since or until - USUAL[step]
    if since >= until:
        raise must_be("from", since.isoformat(), f"before to ({until.isoformat()})")
    if (until - since) / LENGTH[step] > MOST_POINTS:
        raise must_be("from", since.isoformat(), f"at most {MOST_POINTS} {step.value}s before to")
    return since, until


def most_types(step: Step, since: datetime, until: datetime) -> int:
    """How many types can be shown one by one."""
    points = max(1, int((until - since) / LENGTH[step]))
    return max(1, MOST_IN_ALL // points)


def chart(step: Step, since: datetime, until: datetime, rows: Iterable[Past]) -> Chart:
    """Series by type, a point for each step."""
    found: dict[str, dict[datetime, Counter[str]]] = {}
    for row in rows:
        if row.type:
            found.setdefault(row.type, {}).setdefault(row.at, Counter())[row.name] = row.value
    length = LENGTH[step]
    first = _EPOCH + (since - _EPOCH) // length * length
    moments = [first + number * length for number in range(-((first - until) // length))]
    series = [
        Line(name, [_point(at, steps.get(at, Counter())) for at in moments])
        for name, steps in sorted(found.items())
    ]
    return Chart(step=step, since=since, until=until, series=series)


def _point(at: datetime, held: Counter[str]) -> Point:
    return Point(
        at=at,
        enqueued=held[names.ENQUEUED],
        completed=held[names.COMPLETED],
        failed=held[names.FAILED],
        dead=held[names.DEAD],
        wait_ms=average_ms(held, names.WAIT),
        run_ms=average_ms(held, names.RUN),
        depth=held.get(names.DEPTH),
        due=held.get(names.DUE),
        oldest_due_age=held[names.OLDEST] / _MILLION if names.OLDEST in held else None,
    )


def average_ms(counts: Counter[str], measure: str) -> float | None:
    """The average of what is measured of each attempt, in milliseconds; None if none ran."""
    number = counts[names.STARTED]
    return round(counts[names.total(measure)] / _THOUSAND / number, 3) if number else None


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
