"""What a request may say and what comes back. The same types decode requests and write the contract."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass.config import LONGEST_LEASE, SHORTEST_LEASE
from windlass.duration import parse_duration
from windlass.errors import must_be
from windlass.job import (
    HIGHEST_PRIORITY,
    MAX_APP_VERSION,
    MAX_ATTEMPTS,
    MAX_BATCH_NAME,
    MAX_KEY,
    MAX_TENANT,
    MAX_TYPE,
    MAX_UNIQUE,
    JobState,
    Request,
)
from windlass.ops.document import END, NAME, Anything, JobDocument, Moment, Object, Span
from windlass.ops.search import STATES
from windlass.queue.jobs import MOST_PARENTS

# Raw JSON that was not sent.
NOTHING = msgspec.Raw()
EMPTY = msgspec.Raw(b"{}")
MOST_JOBS = 100
MOST_BULK = 10_000
UUID_PATTERN = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# A state, or a closer look at one, in any case.
State = Annotated[str, Meta(extra_json_schema={"enum": STATES})]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request may say; anything else is refused."""


class NoForm(Form, frozen=True, kw_only=True):
    """Nothing: no body, or an empty object."""


class WhyForm(Form, frozen=True, kw_only=True):
    """Why it is done, for the records."""

    why: Annotated[str, Meta(max_length=1000)] = ""


_Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY, description="Sending it twice makes one job.")]
_Parents = Annotated[
    tuple[str, ...],
    Meta(
        max_length=MOST_PARENTS,
        description="Ids or keys: it runs after all of these jobs have completed.",
        examples=[["render:home"]],
    ),
]
_OnDead = Annotated[
    Literal["wait", "cancel", "run"], Meta(description="What to do when a job that it depends on is dead.")
]
_Unique = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_UNIQUE,
        description="At most one job of that name at a time.",
        examples=["sync:42"],
    ),
]
_Until = Annotated[
    Literal["start", "done"], Meta(description="How long it holds the unique name: done if left out.")
]
_OnUnique = Annotated[
    Literal["skip", "replace", "error"],
    Meta(description="If a job holds the name: answer with it, give it this work, or refuse."),
]
_BatchName = Annotated[
    str, Meta(max_length=MAX_BATCH_NAME, description="Given: progress can be asked for, under that name.")
]


class JobForm(Form, frozen=True, kw_only=True):
    """A job to be enqueued."""

    type: Annotated[str, Meta(min_length=1, max_length=MAX_TYPE, pattern=NAME, examples=["send_email"])]
    payload: Annotated[
        Object, Meta(description="The handler's parameters; at most 64 KB.", examples=[{"to": "a@b.c"}])
    ] = msgspec.field(default_factory=lambda: EMPTY)
    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY, description="Higher first.")] | None = None
    delay: Span | None = None
    run_at: Moment | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    key: _Key | None = None
    id: Annotated[str, Meta(description="A UUID of your own making.")] | None = None
    tenant: Annotated[str, Meta(min_length=1, max_length=MAX_TENANT)] | None = None
    on_conflict: Literal["error", "existing"] = "error"
    traceparent: str | None = None
    payload_ref: str | None = None
    depends_on: _Parents | None = None
    on_dead: _OnDead = "wait"
    unique: _Unique | None = None
    until: _Until | None = None
    on_unique: _OnUnique | None = None


class BatchForm(Form, frozen=True, kw_only=True):
    """Jobs that are stored together, all or none."""

    jobs: Annotated[tuple[JobForm, ...], Meta(min_length=1, max_length=MOST_JOBS)]
    batch: _BatchName | None = None
    batch_id: Annotated[str, Meta(pattern=f"^{UUID_PATTERN}{END}", description="A UUID.")] | None = None


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
    ] = msgspec.field(default_factory=dict)


class ActionForm(WhyForm, frozen=True, kw_only=True):
    """One action for every job that a filter chooses, with the action's own fields."""

    action: str
    filter: FilterForm
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    rate: Annotated[float, Meta(ge=0.01, le=1_000_000, description="Jobs per second.")] | None = None


# --- remote workers -----------------------------------------------------------------------------

WORKER = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_LEASE = re.compile(r"([0-9a-f-]{36})\.([0-9a-f-]{32,36})")
_Version = Annotated[
    str,
    Meta(
        max_length=MAX_APP_VERSION,
        pattern="^[!-~]*" + END,
        description="The release of the worker's program: attempts are counted by it.",
        examples=["2.4.1"],
    ),
]
_Request = Annotated[
    str, Meta(min_length=1, max_length=128, description="The same name once more: the same answer.")
]
_Holding = Annotated[
    tuple[str, ...],
    Meta(description="Every lease that the worker knows to be its own: others in its name come first."),
]
_Worker = Annotated[str, Meta(pattern=f"^{WORKER}{END}", examples=["gpu-box-1"])]


class ClaimForm(Form, frozen=True, kw_only=True):
    """A worker asks for jobs."""

    worker: _Worker
    types: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    wait: Annotated[Span, Meta(description="How long to wait for a job; a minute at most.")] = 0
    lease: Annotated[Span, Meta(description="How long a job is the worker's without an extension.")] = "60s"
    request: _Request | None = None
    holding: _Holding | None = None


class CompleteForm(Form, frozen=True, kw_only=True):
    """A job is done."""

    result: Anything = msgspec.field(default_factory=lambda: NOTHING)
    version: _Version = ""


class FailForm(Form, frozen=True, kw_only=True):
    """An attempt failed."""

    message: Annotated[str, Meta(description="Long ones are cut.")] = ""
    kind: Annotated[str, Meta(max_length=1000, description="The error's class.")] | None = msgspec.field(
        default=None, name="class"
    )
    traceback: str | None = None
    retryable: Annotated[bool, Meta(description="False: to the dead letters at once.")] = True
    delay: Annotated[Span, Meta(description="When to try again; else by the type's policy.")] | None = None
    version: _Version = ""


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
    # Why a completed job's result was not kept.
    result_missing: str | None = None


class ExtendedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The lease's new end; `request`: what an operator asks of the job."""

    lease: str
    until: datetime
    request: Request | None


class BeatDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker must know: which leases it keeps, which it has lost, and what is asked of it."""

    worker: str
    drain: bool
    kept: list[ExtendedDocument]
    lost: list[str]


# --- what a path and a word say -------------------------------------------------------------------


def split_lease(text: str) -> tuple[str, str]:
    """The job's id and the token of a lease, which reads ID.TOKEN."""
    found = _LEASE.fullmatch(text)
    if found is None:
        raise must_be("lease", text, "the `lease` of a claimed job, which reads ID.TOKEN")
    return found[1], found[2]


def lease_span(value: float | str) -> timedelta:
    """How long a lease lasts."""
    span = parse_duration(value, "lease")
    if not SHORTEST_LEASE <= span <= LONGEST_LEASE:
        raise must_be("lease", value, "between 60s and 3600s")
    return span
