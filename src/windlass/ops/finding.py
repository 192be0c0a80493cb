"""What is one thing that is wrong, and how is it told?"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from windlass.ops.words import span


class Cause(StrEnum):
    """What is wrong."""

    NO_WORKER = "no_worker"
    STOPPED = "stopped"
    UNSERVED = "unserved"
    UNREADABLE = "unreadable"
    # Of a payload version that no live worker takes.
    VERSION = "version"
    NOT_PROMOTED = "not_promoted"
    DEPENDENCY = "dependency"
    MISMATCH = "mismatch"
    POISON = "poison"
    PAUSED = "paused"
    HELD = "held"
    TOO_FEW_WORKERS = "too_few_workers"
    IDLE = "idle"
    STUCK = "stuck"
    BACKLOG = "backlog"
    STARVED = "starved"
    UNVERIFIED = "unverified"
    SCHEDULE = "schedule"
    # An operation that has not moved for long.
    OPERATION = "operation"
    SILENT = "silent"
    MISSING = "missing"
    DEAF = "deaf"
    DEAD = "dead"
    # Died again after several replays.
    REPLAYED = "replayed"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or (not `grave`) worth knowing, and the command that mends it."""

    cause: Cause
    grave: bool
    sentence: str
    since: datetime | None = None
    # The type that it is about.
    type: str | None = None
    mend: str | None = None


def lasting(found: Finding, now: datetime) -> str:
    """What was found, and for how long it has been so."""
    return found.sentence if found.since is None else f"{found.sentence}, for {span(now - found.since)}"


def in_a_line(found: Finding, now: datetime) -> str:
    """The same, and what to type."""
    return lasting(found, now) if found.mend is None else f"{lasting(found, now)}: {found.mend}"
