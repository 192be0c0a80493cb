"""How does a zone's local time map to real time, in the nights in which its clocks change?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from windlass.errors import must_be

# No zone changes its clocks and changes them back within a day.
_STRIDE = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """A zone by its name; InvalidValue if this machine does not know it."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # Directories and odd names fail in ways of their own.
        allowed = "the name of a time zone, such as Europe/Berlin or UTC"
        if not available_timezones():
            allowed = (
                "UTC on this machine, which has no time zone database: "
                "install its tzdata package, or `pip install tzdata`"
            )
        raise must_be("tz", name, allowed) from None


def local(moment: datetime, zone: tzinfo) -> datetime:
    """What the clocks of a zone show at a moment, as a plain time."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def offset(moment: datetime, zone: tzinfo) -> timedelta:
    """How far the clocks of a zone stand from UTC at a moment."""
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def first_at(shown: datetime, zone: tzinfo) -> datetime:
    """The first moment at which the clocks of a zone show this; if they skip it, the moment of the skip."""
    before = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if local(before, zone) == shown:
        return before
    # Skipped: read by the offset after the change it lies before it, by the one before the change after it.
    earlier = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return change_between(earlier, before, zone) or before


def change_between(start: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """The first moment after `start`, up to `end`, from which the clocks of a zone stand otherwise."""
    standing = offset(start, zone)
    low = start
    while low < end:
        high = min(low + _STRIDE, end)
        if offset(high, zone) != standing:
            return _narrowed(low, high, zone, standing)
        low = high
    return None


def _narrowed(low: datetime, high: datetime, zone: tzinfo, standing: timedelta) -> datetime:
    """Halve until the change is known to the second."""
    while high - low > _SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle <= low:
            break
        low, high = (middle, high) if offset(middle, zone) == standing else (low, middle)
    return high
