"""What jobs, batches and workers look like in JSON, on every surface."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, structs

from windlass.checks import read_moment
from windlass.duration import parse_duration
from windlass.job import Attempt, Change, Error, Job, JobState, Reason, Request, View
from windlass.ops.overview import WorkerHealth
from windlass.payload import seal
from windlass.store.chains import BatchInfo
from windlass.store.fleet import PoolInfo
from windlass.store.jobs import Page
from windlass.store.running import Progress

if TYPE_CHECKING:
    from windlass.ops.jobs import Ties


# In the `extra` of a type: reads a value of it, or raises InvalidValue for a field of that name.
CHECK = "check"
Object = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
Anything = Annotated[msgspec.Raw, Meta(extra_json_schema={"description": "Any JSON value."})]
Span = Annotated[
    float | str,
    Meta(
        description='A duration: seconds, or words such as "30s", "10m", "1h30m", "7d".',
        extra={CHECK: parse_duration},
    ),
]
# Read by us, so that a date alone will do, as on the command line.
Moment = Annotated[
    str,
    Meta(
        description="A time in ISO 8601, such as 2030-01-31T09:00:00Z; without a zone it is UTC.",
        examples=["2030-01-31T09:00:00Z"],
        extra={CHECK: read_moment},
    ),
]
# The end of a pattern: nothing follows, not even the line break that `$` alone overlooks here.
END = r"$(?!\n)"
# How types and schedules are named.
NAME = "^[a-z][a-z0-9_.-]*" + END


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
    # Of a change, fields that say nothing are left out.
    changes: list[dict[str, Any]]


class ToldJob(JobDocument, frozen=True, kw_only=True):
    """A job with what ties it to others."""

    progress: Progress | None
    batch: str | None
    waits_for: list[str]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first, and the cursor of the next page."""

    jobs: list[JobDocument]
    next: str | None


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


class WorkerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A worker and how it is."""

    id: str
    state: str
    alive: bool
    beat_at: datetime | None
    started_at: datetime | None
    host: str
    pid: int
    version: str
    app: str
    types: tuple[str, ...]
    slots: int
    busy: int
    held: int
    done: int
    failed: int
    late: int
    deaf: bool
    # Of its process and those below it; null where it does not tell.
    resident_bytes: int | None
    # By name; empty where it does not tell.
    pools: dict[str, PoolInfo]


def job_document(job: Job, now: datetime) -> JobDocument:
    """A job as people may see it: times in UTC, the payload as its own JSON, secrets hidden."""
    return JobDocument(**_fields(job, now))


def _fields(job: Job, now: datetime) -> dict[str, Any]:
    return {name: getattr(job, name) for name in _SAME} | {
        "view": job.view(now),
        "payload": payload_shown(job),
        "tenant": job.tenant or None,
        "caller": job.caller or None,
        "error": _error(job.error),
        "history": [_attempt(attempt) for attempt in job.history],
        "changes": [change_shown(change) for change in job.changes],
    }


def payload_shown(job: Job) -> msgspec.Raw:
    """A job's payload as people may see it: what is encrypted stays hidden, also from who has the key."""
    if not seal.has_seal(job.payload):
        return job.payload
    return msgspec.Raw(msgspec.json.encode(seal.shown(msgspec.json.decode(job.payload))))


def change_shown(change: Change) -> Change:
    """A change with what was encrypted before it left hidden."""
    return change if change.before is None else structs.replace(change, before=seal.shown(change.before))


def told_document(job: Job, ties: Ties, now: datetime) -> ToldJob:
    """A job with what ties it to others."""
    return ToldJob(
        **_fields(job, now), progress=ties.progress, batch=ties.batch, waits_for=list(ties.waits_for)
    )


def batch_document(batch: BatchInfo) -> BatchDocument:
    """A batch: how many of its jobs stand in which state."""
    return BatchDocument(
        id=batch.id,
        name=batch.name or None,
        total=batch.total,
        ended=batch.ended,
        states={state.value: count for state, count in sorted(batch.counts.items())},
        then=batch.then_id,
        created_at=batch.created_at,
        finished_at=batch.finished_at,
    )


def worker_document(each: WorkerHealth) -> WorkerDocument:
    """A worker and how it is."""
    return msgspec.convert(structs.asdict(each.info) | {"alive": each.alive}, WorkerDocument)


def page_document(page: Page, now: datetime) -> JobPage:
    """A page of jobs and the cursor of the next one."""
    return JobPage(jobs=[job_document(job, now) for job in page.jobs], next=page.next)


def encode(document: object) -> str:
    """JSON for machines, indented for whoever looks all the same. Times end in Z, durations are seconds."""
    return msgspec.json.format(msgspec.json.encode(plain(document)), indent=2).decode()


def plain(value: Any) -> Any:
    """A document without our own classes: durations are seconds, Structs are objects."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, msgspec.Struct):
        return plain(
            {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
        )
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def _attempt(attempt: Attempt) -> dict[str, Any]:
    shown = structs.asdict(attempt)
    del shown["seconds"]
    if attempt.error is not None:
        shown["error"] = plain(_error(attempt.error)) | {"traceback": attempt.error.traceback}
    return shown


def _error(error: Error | None) -> ErrorDocument | None:
    return (
        None if error is None else ErrorDocument(reason=error.reason, kind=error.kind, message=error.message)
    )


_SAME = tuple(
    field.name
    for field in structs.fields(JobDocument)
    if field.name not in ("view", "payload", "tenant", "caller", "error", "history", "changes")
)
