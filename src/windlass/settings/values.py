"""What does the text of a setting mean, and is it allowed?"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.job import HIGHEST_PRIORITY, LONGEST_TIMEOUT, MAX_ATTEMPTS, MAX_TENANT, SHORTEST_TIMEOUT
from windlass.policy.breaker import MOST_JOBS
from windlass.policy.limit import MOST_AT_ONCE, parse_rate
from windlass.policy.retry import KINDS
from windlass.settings.names import TENANTS, split

T = TypeVar("T")
_LONGEST_KEEP = timedelta(days=3650)
_NONE = "none"
_MOST_DIGITS = 18
_LARGEST_LOW_SHARE = 0.5
_DEEPEST = 10**12
_MOST_WORKERS = 10_000
_MOST_TENANTS = 50
# What all tenants that are not named are called there.
_OTHERS = "other"


def parse(name: str, text: str) -> Any:
    """A setting's value from its text; InvalidValue names the setting and what is allowed."""
    _, setting = split(name)
    try:
        return _READERS[setting](text.strip())
    except InvalidValue as error:
        raise must_be(name, text, error.allowed) from None


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read_whole(text: str) -> int:
        # So many digits at most: reading thousands of them is refused in other words.
        if text.isdecimal() and len(text) <= _MOST_DIGITS and least <= int(text) <= most:
            return int(text)
        raise must_be("", text, f"a whole number between {least} and {most}")

    return read_whole


def _or_none(reader: Callable[[str], T]) -> Callable[[str], T | None]:
    def read_or_none(text: str) -> T | None:
        try:
            return None if text == _NONE else reader(text)
        except InvalidValue as error:
            raise must_be("", text, f"{error.allowed}, or {_NONE}") from None

    return read_or_none


def _share(text: str) -> float:
    share = _number(text)
    if 0 < share < 1:
        return share
    raise must_be("", text, "a share between 0 and 1 such as 0.8")


def _low_share(text: str) -> float:
    share = _number(text)
    if 0 <= share <= _LARGEST_LOW_SHARE:
        return share
    raise must_be("", text, f"a share between 0 and {_LARGEST_LOW_SHARE} such as 0.1")


def _number(text: str) -> float:
    """NaN, which is between no bounds, for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _moments(text: str) -> timedelta:
    return _between(text, timedelta(seconds=1), timedelta(days=1), "a duration between 1s and 1d")


def _timeout(text: str) -> timedelta:
    return _between(text, SHORTEST_TIMEOUT, LONGEST_TIMEOUT, "a duration such as 30s or 10m, up to 7d")


def _keep(text: str) -> timedelta:
    return _between(text, timedelta(0), _LONGEST_KEEP, "a duration such as 7d, up to 3650d")


def _keep_schemas(text: str) -> timedelta:
    # Processes say each minute that they are there.
    return _between(text, timedelta(minutes=3), timedelta(days=7), "a duration between 3m and 7d")


def _webhook(text: str) -> str:
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        # Asking for the port refuses one that is no number.
        reachable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        # A password in it would stand in logs and in the audit; what is sent is signed instead.
        if (
            reachable
            and "@" not in parts.netloc
            and text.isascii()
            and text.isprintable()
            and " " not in text
        ):
            return text
    raise must_be("", text, "a URL that begins with http:// or https://, without a user")


def _tenants(text: str) -> tuple[str, ...]:
    """Named one by one: a label for each of ten thousand tenants would be the end of any Prometheus."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if len(names) <= _MOST_TENANTS and all(_is_tenant(name) for name in names):
        return names
    raise must_be(
        "", text, f"the names of up to {_MOST_TENANTS} tenants (not {_OTHERS!r}) such as acme, globex"
    )


def _is_tenant(name: str) -> bool:
    return 0 < len(name) <= MAX_TENANT and name.isprintable() and name != _OTHERS


def _kind(text: str) -> str:
    if text in KINDS:
        return text
    raise must_be("", text, "one of " + ", ".join(KINDS))


def _seconds(text: str) -> float:
    return _between(
        text, timedelta(0), timedelta(days=30), "a duration such as 30s or 5m, up to 30d"
    ).total_seconds()


def _delays(text: str) -> tuple[float, ...]:
    return tuple(_seconds(part.strip()) for part in text.split(","))


def _between(text: str, least: timedelta, most: timedelta, allowed: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except InvalidValue:
        raise must_be("", text, allowed) from None
    if not least <= duration <= most:
        raise must_be("", text, allowed)
    return duration


_READERS: dict[str, Callable[[str], Any]] = {
    "max_attempts": _whole(1, MAX_ATTEMPTS),
    "timeout": _timeout,
    "retry.kind": _kind,
    "retry.base": _seconds,
    "retry.cap": _seconds,
    "retry.jitter": _seconds,
    "retry.delays": _delays,
    "concurrency": _or_none(_whole(1, MOST_AT_ONCE)),
    "tenant_concurrency": _or_none(_whole(1, MOST_AT_ONCE)),
    "rate": _or_none(parse_rate),
    "burst": _or_none(_whole(1, MOST_AT_ONCE)),
    "soft_depth": _whole(1, _DEEPEST),
    "hard_depth": _whole(1, _DEEPEST),
    "max_priority": _whole(0, HIGHEST_PRIORITY),
    "breaker.share": _or_none(_share),
    "breaker.jobs": _whole(1, MOST_JOBS),
    "breaker.window": _moments,
    "breaker.probe": _moments,
    "low_share": _low_share,
    "keep_ended": _keep,
    "keep_dead": _keep,
    "keep_schemas": _keep_schemas,
    "schedules.orphan_after": _or_none(_keep),
    "alerts.webhook": _or_none(_webhook),
    "autoscale.target": _moments,
    "autoscale.least": _whole(0, _MOST_WORKERS),
    "autoscale.most": _whole(1, _MOST_WORKERS),
    "autoscale.cooldown": _moments,
    TENANTS: _or_none(_tenants),
}
