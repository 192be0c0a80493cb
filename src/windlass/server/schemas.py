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
    MAX_UNIQUE,
    JobState,
    Reason,
    Request,
    View,
)
from windlass.ops import Verb
from windlass.ops.keys import Role
from windlass.ops.verdict import Verdict
from windlass.queue.options import MOST_PARENTS
from windlass.schedule.timing import MAX_NAME
from windlass.store.flow import BreakerState
from windlass.store.scheduling import FireOutcome, Origin

MOST_JOBS = 100

Object = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
Anything = Annotated[msgspec.Raw, Meta(extra_json_schema={"description": "Any JSON value."})]
Span = Annotated[
    float | str, Meta(description='A duration: seconds, or words such as "30s", "10m", "1h30m", "7d".')
]
# A state, or a closer look at one.
State = Literal[
    "pending",
    "processing",
    "dead",
    "completed",
    "cancelled",
    "discarded",
    "due",
    "scheduled",
    "retrying",
    "stuck",
    "waiting",
]
# Raw JSON that was not sent.
NOTHING = msgspec.Raw()
EMPTY = msgspec.Raw(b"{}")


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
    ] = msgspec.field(default_factory=lambda: EMPTY)
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
        Annotated[str, Meta(max_length=128, description="Given: progress can be asked for, under that name.")]
        | None
    ) = None
    batch_id: (
        Annotated[str, Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", description="A UUID.")]
        | None
    ) = None


class EditForm(Form, frozen=True, kw_only=True):
    """What to change on a job that waits."""

    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)] | None = None
    run_at: datetime | None = None
    delay: Span | None = None
    payload: Object = msgspec.field(default_factory=lambda: NOTHING)
    why: str = ""


class WhyForm(Form, frozen=True, kw_only=True):
    """Why it is done, for the records."""

    why: Annotated[str, Meta(max_length=1000)] = ""


_Confirm = Annotated[
    bool, Meta(description="Types that are marked as sensitive: the job has been looked at.")
]


class ReplayForm(WhyForm, frozen=True, kw_only=True):
    """A dead job to be run again, with another payload if one is given."""

    payload: Object = msgspec.field(default_factory=lambda: NOTHING)
    confirm: _Confirm = False


class FilterForm(Form, frozen=True, kw_only=True):
    """Which jobs: everything that is given must match."""

    ids: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    type: tuple[str, ...] = ()
    state: tuple[State, ...] = ()
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
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    rate: Annotated[float, Meta(ge=0.01, le=1_000_000, description="Jobs per second.")] | None = None
    confirm: _Confirm = False
    why: Annotated[str, Meta(max_length=1000)] = ""


# A setting's value: text as on the command line; a number may go without quotes.
SettingText = str | Annotated[int, Meta(ge=0, le=1_000_000_000)]


class SettingsForm(Form, frozen=True, kw_only=True):
    """Settings by name; null forgets what was set. All or none of them are stored."""

    settings: Annotated[dict[str, SettingText | None], Meta(examples=[{"keep_ended": "14d"}])]
    why: Annotated[str, Meta(max_length=1000)] = ""


class TypeForm(Form, frozen=True, kw_only=True):
    """What an operator sets for one type; null forgets what was set, and what is left out stays."""

    settings: Annotated[
        dict[str, SettingText | None],
        Meta(examples=[{"concurrency": 2, "rate": "100/m", "timeout": "10m", "retry.base": None}]),
    ]
    why: Annotated[str, Meta(max_length=1000)] = ""


class BreakerForm(WhyForm, frozen=True, kw_only=True):
    """What a circuit breaker shall be; `auto`: outcomes decide."""

    state: Annotated[BreakerState, Meta(examples=["open"])]


class ScheduleForm(WhyForm, frozen=True, kw_only=True):
    """Jobs that shall come by themselves: by a cron expression, or every so often."""

    name: Annotated[
        str, Meta(min_length=1, max_length=MAX_NAME, pattern="^[a-z][a-z0-9_.-]*$", examples=["nightly"])
    ]
    type: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_TYPE, pattern="^[a-z][a-z0-9_.-]*$", examples=["report.build"]),
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


class KeyForm(Form, frozen=True, kw_only=True):
    """An API key to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=64, examples=["billing"])]
    roles: Annotated[tuple[Role, ...], Meta(min_length=1)]
    types: tuple[str, ...] = ()
    tenant: str | None = None
    rate: Annotated[float, Meta(gt=0, description="Jobs per second; 1000 if left out.")] | None = None
    expires: Span | None = None
    why: Annotated[str, Meta(max_length=1000)] = ""


_Worker = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", examples=["gpu-box-1"])]


class ClaimForm(Form, frozen=True, kw_only=True):
    """A worker asks for jobs."""

    worker: _Worker
    types: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    wait: Annotated[Span, Meta(description="How long to wait for a job; a minute at most.")] = 0
    lease: Annotated[Span, Meta(description="How long a job is the worker's without an extension.")] = "60s"
    request: (
        Annotated[
            str,
            Meta(min_length=1, max_length=128, description="The same name once more: the same answer."),
        ]
        | None
    ) = None
    holding: (
        Annotated[
            tuple[str, ...],
            Meta(
                description="Every lease that the worker knows to be its own: others in its name come first."
            ),
        ]
        | None
    ) = None


class CompleteForm(Form, frozen=True, kw_only=True):
    """A job is done."""

    result: Anything = msgspec.field(default_factory=lambda: NOTHING)


class FailForm(Form, frozen=True, kw_only=True):
    """An attempt failed."""

    message: Annotated[str, Meta(description="Long ones are cut.")] = ""
    kind: Annotated[str, Meta(max_length=1000, description="The error's class.")] | None = msgspec.field(
        default=None, name="class"
    )
    traceback: str | None = None
    retryable: Annotated[bool, Meta(description="False: to the dead letters at once.")] = True
    delay: Annotated[Span, Meta(description="When to try again; else by the type's policy.")] | None = None


class ExtendForm(Form, frozen=True, kw_only=True):
    """A job takes longer."""

    lease: Span = "60s"


class ReleaseForm(Form, frozen=True, kw_only=True):
    """A job is given back: it runs elsewhere, and this attempt is not counted."""

    started: Annotated[bool, Meta(description="Whether the job had begun to run.")] = False


class BeatForm(Form, frozen=True, kw_only=True):
    """A worker is alive, and works on these."""

    leases: Annotated[tuple[str, ...], Meta(max_length=1000, description="To be extended.")] = ()
    lease: Span = "60s"
    busy: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    stopping: Annotated[bool, Meta(description="The last beat: nothing of it is alive any more.")] = False


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


class ToldJob(JobDocument, frozen=True, kw_only=True):
    """A job with what ties it to others."""

    progress: dict[str, Any] | None
    batch: str | None
    waits_for: list[str]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first, and the cursor of the next page."""

    jobs: list[JobDocument]
    next: str | None


class CatalogueType(msgspec.Struct, frozen=True, kw_only=True):
    """A type as the catalogue knows it: enough to check a payload without the handler."""

    name: str
    schema_version: int
    schema: dict[str, Any]
    options: dict[str, Any]


class CatalogueDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer must know: types with their schemas, and what operators have set."""

    types: list[CatalogueType]
    settings: dict[str, str]


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


class SettingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run-time setting; `stored`: an operator has set it."""

    name: str
    value: Any
    stored: bool


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every run-time setting with its effective value."""

    settings: list[SettingDocument]


class PauseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A type that nobody claims from: by whom, why and since when."""

    type: str
    by: str
    why: str
    at: datetime


class ResumedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A type whose jobs start again; not `resumed`: it was not paused."""

    type: str
    resumed: bool


class BreakerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit breaker: since when, by whom and why it is as it is, and when the next job may try."""

    name: str
    open: bool
    by_hand: bool
    at: datetime
    by: str
    why: str
    probe_at: datetime | None


class RateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """So many starts in so many seconds; `burst`: so many at once (0: as the rate says)."""

    count: int
    seconds: int
    burst: int


class LimitDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What may run at once, and how often it may start, over all workers; null: any number."""

    concurrency: int | None
    rate: RateDocument | None
    per_tenant: int | None


class TypeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A type: what its code says, what holds for its jobs, what holds them back, and where they stand."""

    name: str
    known: bool
    schema_version: int
    options: dict[str, Any]
    effective: dict[str, Any]
    counts: dict[str, int]
    oldest_due: float | None
    workers: int
    paused: PauseDocument | None
    breaker: BreakerDocument | None
    limit: LimitDocument
    limit_key: str | None


class TypesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every type that is registered or has jobs."""

    types: list[TypeDocument]


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The workers that are alive, together."""

    alive: int
    silent: int
    slots: int
    busy: int


class ScheduleSummaryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules, together, and the one that fires next."""

    count: int
    paused: int
    next_name: str | None
    next_at: datetime | None


class BandDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The due jobs of one priority, and for how many seconds the oldest of them has waited."""

    priority: int
    due: int
    oldest: float


class StatsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One look at everything."""

    now: datetime
    counts: dict[str, int]
    capped: bool
    oldest_due: float | None
    fleet: FleetDocument
    types: list[TypeDocument]
    warnings: list[str]
    schedules: ScheduleSummaryDocument | None
    bands: list[BandDocument]
    verdict: Verdict | None


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
    state: Literal["active", "paused", "withdrawn"]
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
    types: list[str]
    slots: int
    busy: int
    held: int
    done: int
    failed: int
    late: int
    deaf: bool


class WorkersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every worker that has a row, newest first."""

    workers: list[WorkerDocument]


class DrainedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that was asked to finish and exit."""

    worker: str


class KeyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without what would let anybody use it."""

    id: str
    name: str
    roles: list[str]
    types: list[str]
    tenant: str | None
    rate: float | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


class NewKeyDocument(KeyDocument, frozen=True, kw_only=True):
    """An API key that was just made: the only time that it is shown."""

    key: str


class KeysDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every API key, the newest first."""

    keys: list[KeyDocument]


class EntryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log."""

    seq: int
    at: datetime
    who: str
    verb: str
    kind: str
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    why: str


class AuditDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log, newest first."""

    entries: list[EntryDocument]
    next: str | None


class LeaseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The right to run one attempt of a job until a time."""

    lease: str
    until: datetime
    # How long the type's jobs may run, in seconds.
    timeout: float
    job: JobDocument


class ClaimedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker may run now."""

    worker: str
    drain: bool
    leases: list[LeaseDocument]


class SettledDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempt amounts to: done, again (after `delay`), released, dead, cancelled, or repeated."""

    id: str
    outcome: str
    delay: float | None = None


class ExtendedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The lease's new end; `request`: what an operator asks of the job, cancel or bury."""

    lease: str
    until: datetime
    request: Request | None


class BeatDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker must know: which leases it keeps, which it has lost, and what is asked of it."""

    worker: str
    drain: bool
    kept: list[ExtendedDocument]
    lost: list[str]
