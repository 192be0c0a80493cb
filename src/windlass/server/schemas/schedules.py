"""What is said of schedules?"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass.job import HIGHEST_PRIORITY, MAX_ATTEMPTS, MAX_TENANT, MAX_TYPE, JobState
from windlass.schedule import MAX_NAME
from windlass.server.schemas import EMPTY, NAME, Object, Span, WhyForm
from windlass.store.schedules import FireOutcome, Origin


class ScheduleForm(WhyForm, frozen=True, kw_only=True):
    """Jobs that shall come by themselves: by a cron expression, or every so often."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=NAME, examples=["nightly"])]
    type: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_TYPE, pattern=NAME, examples=["report.build"]),
    ]
    payload: Annotated[Object, Meta(description="Of its jobs.", examples=[{"days": 1}])] = msgspec.field(
        default_factory=lambda: EMPTY
    )
    cron: (
        Annotated[
            str,
            Meta(
                description="Minute, hour, day, month, day of week; or @daily and the like.",
                examples=["0 3 * * *"],
            ),
        ]
        | None
    ) = None
    tz: Annotated[str, Meta(description="The zone of `cron`.", examples=["Europe/Berlin"])] | None = None
    every: Span | None = None
    catch_up: (
        Annotated[
            Literal["none", "last", "all"],
            Meta(description="Fire times that passed while nobody was there: fire none, the last, or all."),
        ]
        | None
    ) = None
    overlap: (
        Annotated[Literal["skip", "queue"], Meta(description="If the run before has not ended.")] | None
    ) = None
    jitter: Span | None = None
    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    tenant: Annotated[str, Meta(min_length=1, max_length=MAX_TENANT)] | None = None
    replace: Annotated[bool, Meta(description="Put it in the place of one that has this name.")] = False


class FireDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A fire time and what became of it."""

    at: datetime
    outcome: FireOutcome
    # Of missed ones: up to, and without, this moment.
    until: datetime | None
    job: str | None
    job_state: JobState | None
    by: str | None
    noted_at: datetime


class ScheduleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and what is wrong with it in words."""

    name: str
    type: str
    payload: Object
    cron: str | None
    every: float | None
    tz: str | None
    catch_up: str
    overlap: str
    jitter: float
    priority: int | None
    max_attempts: int | None
    tenant: str | None
    origin: Origin
    state: Literal["active", "paused", "withdrawn", "orphaned"]
    next_at: datetime | None
    last: FireDocument | None
    paused_by: str | None
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime
    notes: list[str]


class ToldSchedule(ScheduleDocument, frozen=True, kw_only=True):
    """A schedule with what became of its last fire times, newest first."""

    history: list[FireDocument]


class SchedulesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every schedule, by name."""

    schedules: list[ScheduleDocument]


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The job that a schedule made at once."""

    name: str
    job: str


class RemovedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that is no more."""

    name: str
    removed: bool
