"""What a request may say and what comes back. The same types decode requests and write the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

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
)
from windlass.ops.document import END, NAME, Moment, Object, Span
from windlass.ops.search import STATES
from windlass.queue.jobs import MOST_PARENTS

# Raw JSON that was not sent.
NOTHING = msgspec.Raw()
EMPTY = msgspec.Raw(b"{}")
MOST_JOBS = 100
MOST_BULK = 10_000
UUID_PATTERN = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
if TYPE_CHECKING:
    State = str
else:
    # A state, or a closer look at one.
    State = Literal[STATES]


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
