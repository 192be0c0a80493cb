"""What does a store do for schedules? The seam's part for work that comes by itself.

A fire time is dealt with in one transaction: the jobs are inserted and the schedule moves on, fenced by where
it stood. So any number of schedulers may look at the same time, and be killed at any time.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from windlass.job import JobState
from windlass.schedule import NewSchedule

# So many fire times of each schedule are remembered.
REMEMBERED = 100


def digest_of(new: NewSchedule) -> str:
    """What tells two definitions of a schedule apart."""
    return hashlib.blake2b(msgspec.json.encode(new), digest_size=8).hexdigest()


class Origin(StrEnum):
    """Who made a schedule: the application's code, or an operator at run time."""

    CODE = "code"
    OPERATOR = "operator"


class FireOutcome(StrEnum):
    """What became of a fire time."""

    ENQUEUED = "enqueued"
    # A job with that fire time's key was there already.
    FOUND = "found"
    # An earlier run had not ended.
    SKIPPED = "skipped"
    # Nobody was there; the policy says not to catch up with it.
    MISSED = "missed"


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """A fire time and what became of it. `made_by`: somebody had it run by hand."""

    at: datetime
    outcome: FireOutcome
    # Of missed ones: fire times from `at` up to, and without, this moment.
    until: datetime | None = None
    job_id: str | None = None
    # How the job stands now; None if its record is gone, or there never was one.
    job_state: JobState | None = None
    made_by: str | None = None
    noted_at: datetime


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store knows it, and the last of its fire times."""

    new: NewSchedule
    origin: Origin
    # Declared by code once, and by no live release any more.
    withdrawn: bool = False
    # Declared by code that no live worker runs: it does not fire until one does.
    orphaned: bool = False
    paused: bool = False
    paused_by: str | None = None
    paused_at: datetime | None = None
    # None: never again.
    next_at: datetime | None = None
    # Why it could not be fired when its time had come.
    problem: str | None = None
    created_at: datetime
    updated_at: datetime
    last: Fire | None = None

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.new.name


class Fired(msgspec.Struct, frozen=True):
    """What one look at the schedules came to: the jobs that were made, and when to look again."""

    jobs: tuple[str, ...]
    # Until the next fire time; None if there is none.
    next_in: timedelta | None
