"""Jobs: to enqueue, to show, to change."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass.job import (
    HIGHEST_PRIORITY,
    MAX_ATTEMPTS,
    MAX_BATCH_NAME,
    MAX_KEY,
    MAX_TENANT,
    MAX_TYPE,
    MAX_UNIQUE,
    JobState,
    Reason,
    Request,
    TypeInfo,
    View,
)
from windlass.queue.jobs import MOST_PARENTS
from windlass.server.schemas import EMPTY, END, NAME, Anything, Form, Moment, Object, Span

MOST_JOBS = 100
MOST_BULK = 10_000


class JobForm(Form, frozen=True, kw_only=True):
    """A job to be enqueued."""

    type: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_TYPE, pattern=NAME, examples=["send_email"]),
    ]
    payload: Annotated[
        Object, Meta(description="The handler's parameters; at most 64 KB.", examples=[{"to": "a@b.c"}])
    ] = msgspec.field(default_factory=lambda: EMPTY)
    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY, description="Higher first.")] | None = None
    delay: Span | None = None
    run_at: Moment | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    key: (
        Annotated[
            str,
            Meta(min_length=1, max_length=MAX_KEY, description="Sending it twice makes one job."),
        ]
        | None
    ) = None
    id: Annotated[str, Meta(description="A UUID of your own making.")] | None = None
    tenant: Annotated[str, Meta(min_length=1, max_length=MAX_TENANT)] | None = None
    on_conflict: Literal["error", "existing"] = "error"
    traceparent: str | None = None
    payload_ref: str | None = None
    depends_on: (
        Annotated[
            tuple[str, ...],
            Meta(
                max_length=MOST_PARENTS,
                description="Ids or keys: it runs after all of these jobs have completed.",
                examples=[["render:home"]],
            ),
        ]
        | None
    ) = None
    on_dead: Annotated[
        Literal["wait", "cancel", "run"],
        Meta(description="What to do when a job that it depends on is dead."),
    ] = "wait"
    unique: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=MAX_UNIQUE,
                description="At most one job of that name at a time.",
                examples=["sync:42"],
            ),
        ]
        | None
    ) = None
    until: (
        Annotated[
            Literal["start", "done"], Meta(description="How long it holds the unique name: done if left out.")
        ]
        | None
    ) = None
    on_unique: (
        Annotated[
            Literal["skip", "replace", "error"],
            Meta(description="If a job holds the name: answer with it, give it this work, or refuse."),
        ]
        | None
    ) = None


class BatchForm(Form, frozen=True, kw_only=True):
    """Jobs that are stored together, all or none."""

    jobs: Annotated[tuple[JobForm, ...], Meta(min_length=1, max_length=MOST_JOBS)]
    batch: (
        Annotated[
            str,
            Meta(max_length=MAX_BATCH_NAME, description="Given: progress can be asked for, under that name."),
        ]
        | None
    ) = None
    batch_id: (
        Annotated[
            str, Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}" + END, description="A UUID.")
        ]
        | None
    ) = None


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is stored: by this request (`created`), or before, under the same key."""

    id: str
    type: str
    state: JobState
    key: str | None
    created: bool


class AcceptedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are stored, in the order of the request."""

    jobs: list[Accepted]
    batch: str | None = None


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed."""

    reason: Reason
    kind: str | None = msgspec.field(name="class")
    message: str


class JobDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its whole story."""

    id: str
    seq: int
    type: str
    state: JobState
    view: View | None
    priority: int
    payload: Object
    key: str | None
    tenant: str | None
    attempts: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    error: ErrorDocument | None
    result: Anything | None
    result_missing: Annotated[str, Meta(description="Why the result could not be kept.")] | None
    request: Request | None
    lease_until: datetime | None
    claims: int
    snoozes: int
    interruptions: int
    losses: int
    replay_count: int
    enqueued_at: datetime
    updated_at: datetime
    schema_version: int
    caller: str | None
    traceparent: str | None
    payload_ref: str | None
    rerun_of: Annotated[str, Meta(description="The ended job that this one runs again.")] | None
    history: list[dict[str, Any]]
    changes: list[dict[str, Any]]


class ToldJob(JobDocument, frozen=True, kw_only=True):
    """A job with what ties it to others."""

    progress: dict[str, Any] | None
    batch: str | None
    waits_for: list[str]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first, and the cursor of the next page."""

    jobs: list[JobDocument]
    next: str | None


class CatalogueDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer must know: types with their schemas, and what operators have set."""

    # A payload need fit only one of a type's live releases.
    types: list[TypeInfo]
    settings: dict[str, str]


class ConfirmedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The acknowledgement of a job's effect is counted; `first` is false if it had been before."""

    id: str
    first: bool


class BatchDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A batch: how many of its jobs are in which state."""

    id: str
    name: str | None
    total: int
    ended: int
    states: dict[str, int]
    then: str | None
    created_at: datetime
    finished_at: datetime | None
