"""What holds jobs back, and who said so? The part of the seam that operators and workers share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from windlass.policy.limit import Limit

# Before a type: a job of it has kept a worker from answering. No type or key has such a name.
HANG = "hang:"
# For so long after that its jobs run in child processes.
ISOLATED = timedelta(minutes=10)


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A type that nobody claims from."""

    type: str
    by: str
    why: str
    at: datetime


class BreakerState(StrEnum):
    """What an operator may say about a breaker."""

    OPEN = "open"
    CLOSED = "close"
    # Outcomes decide.
    AUTO = "auto"


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """What stands between a type, or what shares a key (`key:crm`), and a dependency that is down."""

    name: str
    open: bool
    by_hand: bool
    # Since when, by whom and why.
    at: datetime
    by: str
    why: str
    probe_at: datetime | None = None


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker saw of the runs under one name."""

    name: str
    # (number, microseconds since it began, done, failed), each as a whole.
    stretches: tuple[tuple[int, int, int, int], ...] = ()
    # Jobs that failed, and leases that succeeded.
    failed: tuple[str, ...] = ()
    succeeded: tuple[str, ...] = ()


class Depths(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs wait, by type; counted then, so long ago (None: never)."""

    pending: Mapping[str, int] = {}
    at: datetime | None = None
    age: timedelta | None = None
    # A server counts, and refuses what is too much.
    elsewhere: bool = False


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """All that holds jobs back at one moment, besides limits."""

    pauses: Mapping[str, Pause] = {}
    breakers: Mapping[str, Breaker] = {}
    # Names of which some runs failed lately: workers tell what they see of them.
    failing: frozenset[str] = frozenset()
    # Types of which a job has lately kept a worker from answering: their jobs run in child processes.
    hanging: frozenset[str] = frozenset()


class Restriction(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way of one type's jobs: limits by name, and the key that it shares with others."""

    limits: Mapping[str, Limit]
    key: str = ""
    # The open breaker, and how long after one probe the next one may start.
    breaker: str | None = None
    probe: timedelta = timedelta(minutes=1)

    @property
    def counted(self) -> tuple[str, ...]:
        """Of what the end of a job lets another one start; of a rate alone only time does."""
        names = (
            name
            for name, limit in self.limits.items()
            if limit.concurrency is not None or limit.per_tenant is not None
        )
        return (*names, *(() if self.breaker is None else (f"breaker {self.breaker}",)))
