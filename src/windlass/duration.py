"""How long is "1h30m"? Durations come in as seconds, timedeltas or such words, and are timedeltas inside."""

from __future__ import annotations

import re
from datetime import timedelta

from windlass.errors import InvalidValue

# What users may write where a duration is taken.
Duration = float | timedelta | str

ALLOWED = "a duration: seconds, a timedelta, or words such as 250ms, 30s, 10m, 1h30m, 7d"


def parse_duration(value: object, field: str = "duration") -> timedelta:
    """A duration as a timedelta, zero or longer; InvalidValue names `field`."""
    if isinstance(value, timedelta):
        duration: timedelta | None = value
    elif isinstance(value, str):
        duration = _spoken(value.strip())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        duration = _made(seconds=value)
    else:
        duration = None
    if duration is None or duration < timedelta(0):
        raise InvalidValue(field, value, ALLOWED)
    return duration


def _spoken(text: str) -> timedelta | None:
    if _SECONDS.fullmatch(text):
        return _made(seconds=float(text))
    match = _WORDS.fullmatch(text)
    if match is None or not text:
        return None
    parts = {unit: float(number) for unit, number in match.groupdict().items() if number}
    return _made(**parts)


def _made(**parts: float) -> timedelta | None:
    try:
        return timedelta(**parts)
    except (OverflowError, ValueError):
        return None


_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SECONDS = re.compile(_NUMBER)
_WORDS = re.compile(
    rf"(?:(?P<days>{_NUMBER})d)?(?:(?P<hours>{_NUMBER})h)?"
    rf"(?:(?P<minutes>{_NUMBER})m)?(?:(?P<seconds>{_NUMBER})s)?(?:(?P<milliseconds>{_NUMBER})ms)?"
)
