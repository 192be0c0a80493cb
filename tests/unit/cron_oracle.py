"""When should a cron expression fire? The rules of docs/how-to/schedules.md, minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


def fire_times(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Every fire time after `start`, up to `end`; only plain numbers, lists, *, */n and ranges are read."""
    # A day more on both sides: what the clocks skip or show twice must lie within.
    clocks = list(_clocks(ZoneInfo(zone), start - timedelta(days=1), end + timedelta(days=1)))
    minute, hour, *_ = expression.split()
    real_time = minute.startswith("*") or hour.startswith("*")
    found = _in_real_time(expression, clocks) if real_time else _by_wall_clock(expression, clocks)
    return sorted({each for each in found if start < each <= end})


def _clocks(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Each minute, and what the clocks of the zone show then."""
    moment = start.replace(second=0, microsecond=0)
    while moment <= end:
        yield moment, moment.astimezone(zone).replace(tzinfo=None, fold=0)
        moment += MINUTE


def _in_real_time(expression: str, clocks: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    return (moment for moment, shown in clocks if _matches(expression, shown))


def _by_wall_clock(expression: str, clocks: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    seen: set[datetime] = set()
    before = clocks[0][1] - MINUTE
    for moment, shown in clocks:
        skipped = before + MINUTE
        while skipped < shown:
            if _matches(expression, skipped):
                yield moment
            skipped += MINUTE
        if shown not in seen and _matches(expression, shown):
            yield moment
        seen.add(shown)
        before = max(before, shown)


def _matches(expression: str, shown: datetime) -> bool:
    minute, hour, day, month, weekday = expression.split()
    return (
        _has(minute, shown.minute)
        and _has(hour, shown.hour)
        and _has(day, shown.day)
        and _has(month, shown.month)
        and _has(weekday, shown.isoweekday() % 7)
    )


def _has(field: str, value: int) -> bool:
    for part in field.split(","):
        term, _, step = part.partition("/")
        if term == "*":
            if value % int(step or 1) == 0:
                return True
        elif "-" in term:
            low, high = map(int, term.split("-"))
            if low <= value <= high and (value - low) % int(step or 1) == 0:
                return True
        elif int(term) == value:
            return True
    return False


def utc(text: str) -> datetime:
    """A moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
