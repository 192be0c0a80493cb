"""What do operators say of dead jobs, and of many jobs at once?"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass.ops import Verb
from windlass.server.schemas import NOTHING, Form, Object, Span, WhyForm

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
    "unreadable",
]
_Confirm = Annotated[
    bool, Meta(description="Types that are marked as sensitive: the job has been looked at.")
]


class ReplayForm(WhyForm, frozen=True, kw_only=True):
    """A dead job to be run again, with another payload if one is given."""

    payload: Object = msgspec.field(default_factory=lambda: NOTHING)
    confirm: _Confirm = False


class RerunForm(WhyForm, frozen=True, kw_only=True):
    """An ended job to be run once more, as a new job."""

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
    ] = msgspec.field(default_factory=dict)


class ActionForm(WhyForm, frozen=True, kw_only=True):
    """One verb for every job that a filter chooses."""

    action: Verb
    filter: FilterForm
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    rate: Annotated[float, Meta(ge=0.01, le=1_000_000, description="Jobs per second.")] | None = None
    confirm: _Confirm = False
