"""How long is "1h30m"? Durations come in as seconds, timedeltas or such words, and are timedeltas inside."""

from __future__ import annotations

from datetime import timedelta

from windlass.errors import must_be
from windlass.spans import ALLOWED, Duration, checked_duration

__all__ = ["ALLOWED", "Duration", "parse_duration"]


def parse_duration(value: object, field: str = "duration", longest: timedelta | None = None) -> timedelta:
    """A duration as a timedelta, zero or longer and at most `longest`; InvalidValue names `field`."""
    found = checked_duration(value, longest)
    if isinstance(found, str):
        raise must_be(field, value, found)
    return found
