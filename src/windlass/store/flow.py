"""What holds jobs back, and who said so? The part of the seam that operators and workers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass.policy.breaker import BreakerTerms
from windlass.policy.limit import Limit


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


class Flow(Protocol):
    """Holding jobs back. Workers see every change with their next look; what `by` did is audited."""

    def switches(self) -> Switches:
        """What is held back now."""

    def pause(self, job_type: str, *, by: str = "", why: str = "") -> Pause:
        """Claim no jobs of a type until it is resumed; if it is paused already, that pause stands."""

    def set_breaker(self, name: str, state: BreakerState, *, by: str = "", why: str = "") -> Breaker:
        """Open or close a breaker by hand, or let outcomes decide again."""

    def note_runs(
        self, worker: str, runs: Sequence[Runs], terms: Mapping[str, BreakerTerms]
    ) -> list[Breaker]:
        """Tell what a worker saw; the breakers that were opened or closed by it."""

    def depths(self) -> Depths:
        """How many jobs waited, by type, when the last sample was taken."""

    def adopt(self, restricted: Mapping[str, Restriction]) -> None:
        """Let running jobs that were claimed before a limit was known count under it."""

    def resume(self, job_type: str, *, by: str = "", why: str = "") -> bool:
        """Claim them again; False if the type was not paused."""
