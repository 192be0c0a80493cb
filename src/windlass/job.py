"""What is a job, and what is the right to run it? Frozen values, no I/O."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import msgspec

from windlass.clock import END_OF_TIME, from_micros

MAX_PAYLOAD = 65_536
MAX_RESULT = 65_536
MAX_PROGRESS_MESSAGE = 500
MAX_ATTEMPTS = 20
MAX_SNOOZES = 1_000
FREE_INTERRUPTIONS = 9
# After so many lost workers a job runs in a process of its own.
SUSPECT_AFTER = 2
# The class of the error of a job that kept its worker from answering. One such loss is enough to be suspect.
HUNG = "WorkerHung"
HIGHEST_PRIORITY = 10
DEFAULT_PRIORITY = 5
DEFAULT_MAX_ATTEMPTS = 5
DEFAULT_TIMEOUT = timedelta(seconds=300)
SHORTEST_TIMEOUT = timedelta(milliseconds=1)
LONGEST_TIMEOUT = timedelta(days=7)
# How far ahead a job may be put off, and how old one may become.
LATEST = timedelta(days=3650)
# The same for a moment, whatever any clock says; far below the time that stands for "waits for others".
LATEST_AT = datetime(2100, 1, 1, tzinfo=UTC)
MAX_TYPE = 128
MAX_KEY = 256
MAX_TENANT = 128
MAX_UNIQUE = 256
MAX_BATCH_NAME = 128
MAX_APP_VERSION = 64
# The member of a payload that points at data elsewhere; it is not one of the handler's fields.
REFERENCE = "$payload_ref"
# When a job runs that waits for others: at no time of its own.
WAITING_AT = from_micros(END_OF_TIME)


# What becomes of a handler's return value: kept if it can be, not at all, or the job fails without it.
Keep = Literal["required"] | bool


class JobState(StrEnum):
    """Where a job stands. The first three are live, the others are kept in the archive."""

    PENDING = "pending"
    PROCESSING = "processing"
    DEAD = "dead"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


LIVE = frozenset({JobState.PENDING, JobState.PROCESSING, JobState.DEAD})
ENDED = frozenset({JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED, JobState.DISCARDED})


class View(StrEnum):
    """A closer look at a live job, for people: derived, never stored."""

    DUE = "due"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    STUCK = "stuck"
    # For other jobs to end.
    WAITING = "waiting"
    # For a worker of another release: those that tried could not read its payload.
    UNREADABLE = "unreadable"


class Reason(StrEnum):
    """Why an attempt did not complete."""

    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    CHILD_CRASHED = "child_crashed"
    MEMORY_LIMIT = "memory_limit"
    WORKER_LOST = "worker_lost"
    LEASE_EXPIRED = "lease_expired"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    INVALID_PAYLOAD = "invalid_payload"


class Request(StrEnum):
    """What an operator asked of a running job; its worker, or the reaper, carries it out."""

    CANCEL = "cancel"
    BURY = "bury"


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a command said and how it ended; the ends of long texts are kept."""

    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt, or the job's last attempt, failed."""

    reason: Reason
    kind: str | None = msgspec.field(default=None, name="class")
    message: str = ""
    traceback: str | None = None
    # The handler, or a rule of its type, said that no further attempt can help.
    fatal: bool = False
    # Its class, or one that it derives from, is a connection error, a timeout or an answer of 5xx.
    outside: bool = False


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record that one try at a job leaves behind."""

    number: int
    claim: int
    worker: str
    started_at: datetime
    finished_at: datetime
    outcome: str
    # How long the handler ran, by the worker's steady clock; None if that is not known.
    seconds: float | None = None
    error: Error | None = None
    output: Output | None = None
    # The release of the application that ran it, as far as it says.
    app: str = ""
    # Why the job completed without the result that its handler returned.
    result_missing: str | None = None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person or caller did to a job: replay, edit, cancel and the like."""

    at: datetime
    verb: str
    by: str = ""
    why: str = ""
    # The payload that was replaced.
    before: dict[str, Any] | None = None
    # What the request was called that did it, so that the same one does it once.
    request_id: str = ""
    # The ended job that this one was made from.
    job: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One stored unit of work, as the store knew it at one moment."""

    id: str
    seq: int
    type: str
    state: JobState
    priority: int
    payload: msgspec.Raw
    schema_version: int = 1
    key: str | None = None
    caller: str = ""
    tenant: str = ""
    traceparent: str | None = None
    max_attempts: int
    attempts: int = 0
    claims: int = 0
    snoozes: int = 0
    interruptions: int = 0
    losses: int = 0
    replay_count: int = 0
    created_at: datetime
    enqueued_at: datetime
    updated_at: datetime
    run_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    lease_until: datetime | None = None
    request: Request | None = None
    error: Error | None = None
    result: msgspec.Raw | None = None
    history: tuple[Attempt, ...] = ()
    changes: tuple[Change, ...] = ()
    # No worker that tried could read its payload; it waits for one of another release.
    unread: bool = False

    @property
    def ended(self) -> bool:
        """Whether the job will not run again unless somebody replays it."""
        return self.state in ENDED

    @property
    def result_missing(self) -> str | None:
        """Why the result of a completed job was not kept, if its handler returned one that could not be."""
        completed = self.state is JobState.COMPLETED and self.history
        return self.history[-1].result_missing if completed else None

    @property
    def hang(self) -> Error | None:
        """What the watcher of the running attempt's worker has noted, if this job keeps it from answering."""
        noted = self.error
        # The error of an earlier attempt has no traceback here: that is in the history.
        return noted if noted is not None and noted.kind == HUNG and noted.traceback is not None else None

    @property
    def rerun_of(self) -> str | None:
        """The ended job that this one runs again."""
        return next((change.job for change in self.changes if change.job), None)

    @property
    def payload_ref(self) -> str | None:
        """Where the data is that the payload points at, if it does."""
        if REFERENCE.encode() not in bytes(self.payload):
            return None
        reference: str | None = msgspec.json.decode(self.payload).get(REFERENCE)
        return reference

    @property
    def trace(self) -> str | None:
        """The id of the trace that the job belongs to."""
        return None if self.traceparent is None else self.traceparent.split("-")[1]

    def view(self, now: datetime) -> View | None:
        """The closer look that people want, such as scheduled, retrying or due."""
        if self.state is JobState.PROCESSING:
            return View.STUCK if self.lease_until is not None and self.lease_until < now else None
        if self.state is not JobState.PENDING:
            return None
        if self.run_at <= now:
            return View.DUE
        if self.unread:
            return View.UNREADABLE
        if self.run_at >= WAITING_AT:
            return View.WAITING
        return View.RETRYING if self.attempts else View.SCHEDULED


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer hands in: checked, serialised, not yet stored."""

    id: str
    type: str
    payload: bytes
    schema_version: int = 1
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay: timedelta | None = None
    run_at: datetime | None = None
    key: str | None = None
    caller: str = ""
    tenant: str = ""
    traceparent: str | None = None
    # The caller made the id, or sends it again: it may be known already.
    own_id: bool = False
    take_existing: bool = False
    # Made by the very call that stores it, so that nobody can have sent it before.
    fresh: bool = False
    # Stands for the payload as sent where that is stored encrypted.
    stamp: str | None = None
    # Runs after all of these (ids or keys) have completed; `on_dead` says what to do if one never will.
    depends_on: tuple[str, ...] = ()
    on_dead: Literal["wait", "cancel", "run"] = "wait"
    # At most one job of that name at a time, until it starts or until it is done; what to do if there is one.
    unique: str | None = None
    unique_until: Literal["start", "done"] = "done"
    on_unique: Literal["skip", "replace", "error"] = "skip"
    # The queue that it was made for, known within one process.
    made_for: int = 0

    @property
    def scope(self) -> str:
        """Within which its key stands for one job: its caller and its tenant."""
        return scope_of(self.caller, self.tenant)

    def digest(self) -> str:
        """What a repeated key is compared by: type and payload as sent."""
        sent = self.payload if self.stamp is None else self.stamp.encode()
        return hashlib.sha256(self.type.encode() + b"\0" + sent).hexdigest()[:32]


def scope_of(caller: str, tenant: str) -> str:
    """A caller and a tenant as one text; no caller's name can contain the separator."""
    return f"{caller}\x1f{tenant}" if tenant else caller


class Lease(msgspec.Struct, frozen=True):
    """The right to run one attempt of one job. The token is the fence: who lost it can write nothing."""

    job: Job
    token: str
    worker: str
    until: datetime

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def fields(self) -> dict[str, Any]:
        """By which every line of a log names a job; never what it carries."""
        return named(self.job) | {"worker": self.worker}


def named(job: Job) -> dict[str, Any]:
    """A job in a log: which one, of which type, the attempt; its tenant and its trace, if it has them."""
    fields: dict[str, Any] = {"job": job.id, "type": job.type, "attempt": job.attempts}
    if job.tenant:
        fields["tenant"] = job.tenant
    if job.traceparent is not None:
        fields["trace"] = job.trace
    return fields


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a payload of one version looks like to one release of the application."""

    schema_version: int = 1
    schema: dict[str, Any]


class TypeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job type as the catalogue knows it: enough to check a payload without the handler."""

    name: str
    schema_version: int = 1
    schema: dict[str, Any]
    options: dict[str, Any] = {}
    # What the other live releases of the application take, the newest first.
    others: tuple[Shape, ...] = ()

    def of_shape(self, shape: Shape) -> TypeInfo:
        """The type as another live release knows it."""
        return msgspec.structs.replace(self, schema_version=shape.schema_version, schema=shape.schema)
