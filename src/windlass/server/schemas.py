"""What may stand in a request, and what comes back? The same types decode requests and write the contract."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass.job import (
    HIGHEST_PRIORITY,
    MAX_ATTEMPTS,
    MAX_KEY,
    MAX_TENANT,
    MAX_TYPE,
    JobState,
    Reason,
    Request,
    View,
)
from windlass.ops import Verb

MOST_JOBS = 100

Object = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
Anything = Annotated[msgspec.Raw, Meta(extra_json_schema={"description": "Any JSON value."})]
Span = Annotated[
    float | str, Meta(description='A duration: seconds, or words such as "30s", "10m", "1h30m", "7d".')
]
# Raw JSON that was not sent.
NOTHING = msgspec.Raw()


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request may say; anything else is refused."""


class JobForm(Form, frozen=True, kw_only=True):
    """A job to be enqueued."""

    type: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_TYPE, pattern="^[a-z][a-z0-9_.-]*$", examples=["send_email"]),
    ]
    payload: Annotated[
        Object, Meta(description="The handler's parameters; at most 64 KB.", examples=[{"to": "a@b.c"}])
    ] = msgspec.Raw(b"{}")
    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY, description="Higher first.")] | None = None
    delay: Span | None = None
    run_at: Annotated[datetime, Meta(description="Without a zone it is UTC.")] | None = None
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
    depends_on: tuple[str, ...] | None = None
    on_dead: Literal["wait", "cancel", "run"] = "wait"


class BatchForm(Form, frozen=True, kw_only=True):
    """Jobs that are stored together, all or none."""

    jobs: Annotated[tuple[JobForm, ...], Meta(min_length=1, max_length=MOST_JOBS)]
    batch: (
        Annotated[str, Meta(max_length=128, description="Given: progress can be asked for, under that name.")]
        | None
    ) = None


class EditForm(Form, frozen=True, kw_only=True):
    """What to change on a job that waits."""

    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)] | None = None
    run_at: datetime | None = None
    delay: Span | None = None
    payload: Object = NOTHING
    why: str = ""


class WhyForm(Form, frozen=True, kw_only=True):
    """Why it is done, for the records."""

    why: Annotated[str, Meta(max_length=1000)] = ""


class ReplayForm(WhyForm, frozen=True, kw_only=True):
    """A dead job to be run again, with another payload if one is given."""

    payload: Object = NOTHING


class FilterForm(Form, frozen=True, kw_only=True):
    """Which jobs: everything that is given must match."""

    ids: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    type: tuple[str, ...] = ()
    state: tuple[JobState | View, ...] = ()
    tenant: str | None = None
    key: str | None = None
    error: str | None = None
    older_than: Span | None = None
    where: Annotated[
        dict[str, Any],
        Meta(description="Fields of the payload and their values.", examples=[{"user.id": 42}]),
    ] = {}


class ActionForm(Form, frozen=True, kw_only=True):
    """One verb for every job that a filter chooses."""

    action: Verb
    filter: FilterForm
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1)] | None = None
    rate: Annotated[float, Meta(gt=0, description="Jobs per second.")] | None = None
    why: Annotated[str, Meta(max_length=1000)] = ""


# --- what comes back ----------------------------------------------------------------------------


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
    history: list[dict[str, Any]]
    changes: list[dict[str, Any]]


class ProgressDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running job said that it had come."""

    done: int
    total: int | None


class ToldJob(JobDocument, frozen=True, kw_only=True):
    """A job with what ties it to others."""

    progress: dict[str, Any] | None
    batch: str | None
    waits_for: list[str]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first, and the cursor of the next page."""

    jobs: list[JobDocument]
    next: str | None


class ActedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb did. `done` is false where the worker that runs the job was asked."""

    id: str
    state: JobState
    done: bool


class BatchDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A batch: how many of its jobs stand in which state."""

    id: str
    name: str | None
    total: int
    ended: int
    states: dict[str, int]
    then: str | None
    created_at: datetime
    finished_at: datetime | None


class BulkDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs that a filter chose."""

    verb: Verb
    dry_run: bool
    matched: int
    done: int
    asked: int
    refused: int
    refusals: list[str]


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is well."""

    ok: bool
    store: str
