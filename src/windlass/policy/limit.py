"""How much of a kind of work may go on at once, and how often may it start?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.checks import check_whole
from windlass.errors import must_be
from windlass.job import TypeInfo

MOST_AT_ONCE = 1_000_000
_LARGEST_COUNT = 1_000_000
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_RATE = re.compile(r"(\d{1,7})\s*/\s*([smhd])")
# What a rate allows at once, unless it is said: as much as a claim that comes so late must make up for.
_BURST_SECONDS = 0.1
# A token that was there so many microseconds before it was asked for is not lost: else no rate could be used
# in full. Never more than half of the time to the next one, so that no stretch has more than is stated.
_LATENESS = 100_000
# Whoever asks may have looked at the clock so many microseconds ago. A time that lies further ahead than
# the next step and this was said by another rate, or by a clock that was set back: nobody waits for it.
LOOKED_AGO = 2_000_000


class Rate(msgspec.Struct, frozen=True):
    """So many starts in so many seconds, evenly; in any stretch at most its share and `burst` more."""

    count: int
    seconds: int
    burst: int = 0

    @property
    def interval(self) -> int:
        """Microseconds from one start to the next."""
        return max(1, self.seconds * 1_000_000 // self.count)

    @property
    def allowance(self) -> int:
        """How far behind a rate's next time may lie, in microseconds: what was not used then may be yet."""
        at_once = self.burst or max(1, math.ceil(self.count / self.seconds * _BURST_SECONDS))
        return (at_once - 1) * self.interval + min(_LATENESS, self.interval // 2)

    def tokens(self, next_at: int, now: int) -> int:
        """How many may start now, if the next time is `next_at`."""
        since = now - self._from(next_at, now)
        return 0 if since < 0 else since // self.interval + 1

    def after(self, next_at: int, now: int, started: int) -> int:
        """The next time once so many have started."""
        return self._from(next_at, now) + started * self.interval

    def _from(self, next_at: int, now: int) -> int:
        if next_at > now + self.interval + LOOKED_AGO:
            return now
        return max(next_at, now - self.allowance)

    def __str__(self) -> str:
        unit = {seconds: name for name, seconds in _SECONDS.items()}[self.seconds]
        return f"{self.count}/{unit}"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What holds together for all jobs under one name, over all workers. None: as much as there is."""

    concurrency: int | None = None
    rate: Rate | None = None
    # Of each tenant's jobs; for types only.
    per_tenant: int | None = None

    @property
    def bounds(self) -> bool:
        """Whether it limits anything."""
        return self != UNLIMITED


UNLIMITED = Limit()


def told(limit: Limit) -> str:
    """A limit in words, such as `3 at once, 100/m`; empty if there is none."""
    parts = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency} at once")
    if limit.per_tenant is not None:
        parts.append(f"{limit.per_tenant} a tenant")
    if limit.rate is not None:
        parts.append(str(limit.rate) + (f" in bursts of {limit.rate.burst}" if limit.rate.burst else ""))
    return ", ".join(parts)


def parse_rate(value: object, field: str = "rate") -> Rate:
    """A rate such as 100/m, or InvalidValue."""
    found = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or not 0 < int(found[1]) <= _LARGEST_COUNT:
        raise must_be(field, value, "a rate such as 10/s, 100/m, 5000/h or 1/d")
    return Rate(int(found[1]), _SECONDS[found[2]])


# --- as code and catalogue say it ----------------------------------------------------------------


def make_limit(
    concurrency: int | None = None,
    rate: str | None = None,
    burst: int | None = None,
    per_tenant: int | None = None,
) -> Limit:
    """What code says about a limit, checked."""
    if burst is not None and rate is None:
        raise must_be("burst", burst, "given together with rate")
    made = None if rate is None else parse_rate(rate)
    if made is not None and burst is not None:
        made = msgspec.structs.replace(made, burst=check_whole("burst", burst, 1, MOST_AT_ONCE))
    return Limit(
        concurrency=_at_once("concurrency", concurrency),
        rate=made,
        per_tenant=_at_once("tenant_concurrency", per_tenant),
    )


def limit_options(limit: Limit, key: str | None) -> dict[str, Any]:
    """What the catalogue tells of a type's limits; nothing if it has none."""
    told = {
        "concurrency": limit.concurrency,
        "tenant_concurrency": limit.per_tenant,
        "rate": None if limit.rate is None else str(limit.rate),
        "burst": None if limit.rate is None else limit.rate.burst or None,
        "limit_key": key,
    }
    return {name: value for name, value in told.items() if value is not None}


def limit_from(options: Mapping[str, Any]) -> Limit:
    """A type's limit as the catalogue tells it."""
    given = (options.get(name) for name in ("concurrency", "rate", "burst", "tenant_concurrency"))
    return make_limit(*given)


def key_limits(types: Iterable[TypeInfo]) -> dict[str, Limit]:
    """What types share, by key, as the catalogue tells it."""
    told = (info.options for info in types if "key_limit" in info.options)
    return {options["limit_key"]: limit_from(options["key_limit"]) for options in told}


def _at_once(field: str, value: int | None) -> int | None:
    return None if value is None else check_whole(field, value, 1, MOST_AT_ONCE)
