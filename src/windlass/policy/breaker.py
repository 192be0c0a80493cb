"""When are so many runs failing that more of them would only burn attempts?"""

from __future__ import annotations

from datetime import timedelta

import msgspec

# So many different jobs are noted at most; more of them say nothing new.
MOST_JOBS = 1_000


class BreakerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens, and how often it lets one job through to see whether all is well again."""

    # Opens above this share of failed runs; None: never.
    share: float | None = 0.8
    # ... of at least so many different jobs ...
    jobs: int = 10
    # ... within this time.
    window: timedelta = timedelta(minutes=5)
    probe: timedelta = timedelta(minutes=1)

    @property
    def gather(self) -> timedelta:
        """How long after the first failure to wait until every worker has told what it saw."""
        return min(_GATHER, self.window / 5)

    def opens(self, *, done: int, failed: int, jobs: int) -> bool:
        """Whether so many runs, and failures of so many different jobs, are too many."""
        return self.share is not None and jobs >= self.jobs and failed > self.share * (done + failed)


_GATHER = timedelta(seconds=2)
