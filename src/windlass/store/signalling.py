"""What does a store know that a depth does not tell? Ticks, checks, and jobs that nobody can see."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from windlass.store.explaining import Unread


class Stalled(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a type whose time came long ago and which no claim can find: a promotion is missing."""

    type: str
    count: int
    since: datetime


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the checks of a type, and how many are still to be made (since when)."""

    type: str
    matched: int = 0
    mismatched: int = 0
    unknown: int = 0
    mismatch_at: datetime | None = None
    mismatch_job: str | None = None
    waiting: int = 0
    since: datetime | None = None


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What one look finds."""

    now: datetime
    ticks: Mapping[str, datetime]
    stalled: tuple[Stalled, ...]
    verdicts: tuple[Verdicts, ...]
    # Jobs that no worker has been able to read so far.
    unread: tuple[Unread, ...] = ()


class Verdict(StrEnum):
    """What a check says about the outcome of a completed job."""

    MATCHED = "matched"
    MISMATCHED = "mismatched"
    # It could not be made.
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """The right to check one outcome; `takes`, how often it was taken, is the fence."""

    job_id: str
    type: str
    takes: int
