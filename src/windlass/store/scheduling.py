"""What does a store do for schedules? The seam's part for work that comes by itself.

A fire time is dealt with in one transaction: the jobs are inserted and the schedule moves on, fenced by where
it stood. So any number of schedulers may look at the same time, and be killed at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass.job import JobState
from windlass.schedule import NewSchedule

# So many fire times of each schedule are remembered.
REMEMBERED = 100


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
    # Declared by code once, and no more.
    withdrawn: bool = False
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


class Scheduling(Protocol):
    """Work that comes by itself. Verbs that name a schedule raise ScheduleNotFound.

    What `by` did stands in the audit log as soon as it is done.
    """

    def declare(self, schedules: Sequence[NewSchedule], types: Sequence[str]) -> list[str]:
        """Enter what code declares for these types, and mark what it declares no more.

        Answers the names that an operator's own schedules hold: those stay as they are.
        """

    def add_schedule(
        self, new: NewSchedule, *, replace: bool = False, by: str = "", why: str = ""
    ) -> ScheduleInfo:
        """Enter an operator's schedule; ScheduleConflict if the name is taken and not to be replaced."""

    def schedules(self) -> list[ScheduleInfo]:
        """Every schedule, by name."""

    def schedule(self, name: str) -> ScheduleInfo:
        """One schedule."""

    def fires(self, name: str, *, limit: int = REMEMBERED) -> list[Fire]:
        """The last fire times of a schedule and what became of them, newest first."""

    def pause_schedule(self, name: str, *, by: str = "", why: str = "") -> ScheduleInfo:
        """Let a schedule fire no more until it is resumed."""

    def resume_schedule(self, name: str, *, by: str = "", why: str = "") -> ScheduleInfo:
        """Let a schedule fire from its next fire time on; what passed meanwhile is noted as missed."""

    def run_schedule(self, name: str, *, by: str = "", why: str = "", request_id: str = "") -> str:
        """Make the schedule's job now, beside its fire times; the job's id. The same request makes one."""

    def remove_schedule(self, name: str, *, by: str = "", why: str = "") -> None:
        """Forget a schedule; its jobs stay. ScheduleConflict for one that code declares."""

    def fire(self) -> Fired:
        """Deal with every fire time that has come."""
