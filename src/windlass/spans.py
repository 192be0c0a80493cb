"""How long is a span of time that somebody wrote as seconds, a timedelta or words such as 1h30m?"""

from __future__ import annotations

import re
from datetime import timedelta

# What users may write where a duration is taken.
Duration = float | timedelta | str

ALLOWED = "a duration: seconds, a timedelta, or words such as 250ms, 30s, 10m, 1h30m, 7d"


# How far a handler may put off its job.
LONGEST_DELAY = timedelta(days=366)


def checked_duration(value: object, longest: timedelta | None = None) -> timedelta | str:
    """A duration of zero or more, and at most `longest`; or else a text that says what is allowed."""
    duration = _read(value)
    if duration is None:
        return ALLOWED if longest is None else f"{ALLOWED}, at most {longest.days}d"
    if longest is not None and not timedelta(0) <= duration <= longest:
        return f"between 0s and {longest.days}d"
    return duration if duration >= timedelta(0) else "0s or longer"


def _read(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        text = value.strip()
        found = _spoken(text.removeprefix("-"))
        return -found if found is not None and text.startswith("-") else found
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _made(seconds=value)
    return None


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
