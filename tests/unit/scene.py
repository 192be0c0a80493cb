"""A job that somebody runs, for what is judged without a store."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from windlass.job import Job, JobState

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def running(job_id: str) -> Job:
    """A job of type t, begun then."""
    return Job(
        id=job_id,
        seq=1,
        type="t",
        state=JobState.PROCESSING,
        priority=5,
        payload=msgspec.Raw(b"{}"),
        max_attempts=5,
        created_at=THEN,
        enqueued_at=THEN,
        updated_at=THEN,
        run_at=THEN,
        started_at=THEN,
    )
