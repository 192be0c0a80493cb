"""What do operators say of dead jobs, and of many jobs at once?"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass.server.schemas import Form, Span, WhyForm
from windlass.store.operations import Operation

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


class OperationsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Operations, the newest first."""

    operations: list[Operation]
