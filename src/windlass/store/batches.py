"""What is a batch, on its way into the store and on its way out?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from windlass.job import JobState, NewJob


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are enqueued together, and what follows when all of them have ended."""

    id: str
    name: str = ""
    then: NewJob | None = None
    # The batch may be there already: then the jobs are added to it, as long as it has not ended.
    extends: bool = False


class BatchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch has come: how many of its jobs stand in which state."""

    id: str
    name: str
    total: int
    counts: Mapping[JobState, int]
    then_id: str | None
    created_at: datetime
    finished_at: datetime | None

    @property
    def ended(self) -> int:
        """How many jobs have ended, however they did."""
        return self.total - self.counts.get(JobState.PENDING, 0) - self.counts.get(JobState.PROCESSING, 0)
