"""What does a store know that a depth does not tell? Ticks, checks, and jobs that nobody can see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec


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


class Signalling(Protocol):
    """What is needed for signals that do not lie."""

    def sight(self, stalled_for: timedelta) -> Sighting:
        """One look at ticks, checks, and jobs that no claim can find although their time came so long ago."""

    def note_ticks(self, ages: Mapping[str, timedelta], who: str) -> None:
        """Keep that things which must happen again and again succeeded, so long ago."""

    def take_checks(self, types: Sequence[str], *, limit: int, again: timedelta) -> list[Check]:
        """Checks that are due; if no verdict comes, others may take them after `again`."""

    def put_off_check(self, check: Check, by: timedelta) -> None:
        """The check could not be made; try again after so long."""

    def end_check(self, check: Check, verdict: Verdict) -> bool:
        """Count a verdict; False if the check was taken by somebody else meanwhile."""
