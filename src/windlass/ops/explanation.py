"""What does an explanation say of a job? The answer's form, on every surface."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec


class Cause(StrEnum):
    """What it is, for programs."""

    ENDED = "ended"
    DEAD = "dead"
    RUNNING = "running"
    STUCK = "stuck"
    STOPPING = "stopping"
    DEPENDENCY = "dependency"
    SCHEDULED = "scheduled"
    RETRY = "retry"
    PAUSED = "paused"
    BREAKER = "breaker"
    NO_WORKER = "no_worker"
    VERSION = "version"
    UNREADABLE = "unreadable"
    LIMIT = "limit"
    RATE = "rate"
    TENANT_LIMIT = "tenant_limit"
    TENANT_TURN = "tenant_turn"
    BEHIND = "behind"
    BUSY = "busy"
    # Nothing stands in its way.
    NEXT = "next"


class Link(msgspec.Struct, frozen=True):
    """Where the cause can be looked at."""

    kind: Literal["type", "job", "worker", "limit", "breaker"]
    name: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: one sentence, and where to look. `also`: what would stand in its way next."""

    sentence: str
    cause: Cause
    link: Link | None = None
    since: datetime | None = None
    until: datetime | None = None
    # Jobs that it waits for.
    blockers: tuple[str, ...] = ()
    # What to type, if anything mends it.
    mend: str | None = None
    also: tuple[str, ...] = ()
