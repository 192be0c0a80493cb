"""How are times, counts and errors put into a sentence?"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from windlass.job import Error
from windlass.registry import SHELL

_LONGEST_ERROR = 160


def told_error(error: Error | None) -> str:
    """An error in a few words."""
    if error is None:
        return "no recorded error"
    words = ": ".join(part for part in (error.kind or error.reason.value, error.message) if part)
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 1] + "…"


def count(count: int, what: str) -> str:
    """So many of a thing."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def start_worker(types: Iterable[str]) -> str:
    """The command that starts a worker for jobs of these types. Shell jobs need no application."""
    return f"windlass worker start {'--shell' if {*types} == {SHELL} else 'APP'}"


def serve_type(job_type: str) -> str:
    """The command that starts a worker for one type alone."""
    return start_worker([job_type]) + ("" if job_type == SHELL else f" --types {job_type}")


def clock(moment: datetime) -> str:
    """A moment for people."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def at(moment: datetime, now: datetime) -> str:
    """A moment to come, or now."""
    return f"at {clock(moment)} (in {span(moment - now)})" if moment > now else "now"


def ago(moment: datetime, now: datetime) -> str:
    """A moment as seen from now: 3m ago, in 20s."""
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def span(span: timedelta) -> str:
    """A span in one unit, from twice the unit on: 90s says more than 1m."""
    seconds = max(0.0, span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"
