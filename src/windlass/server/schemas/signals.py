"""What do the signals look like over HTTP? Durations are seconds."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windlass.server.schemas.stats import BandDocument


class LaneDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting jobs of one type and priority under one view."""

    type: str
    priority: int
    view: str
    count: int
    oldest: float | None


class UntakenDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a type that are due for long and of which none runs."""

    type: str
    count: int
    oldest: float
    why: str


class BalanceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What went in and what came out, of one type."""

    type: str
    enqueued: int
    started: int
    completed: int
    failed: int
    dead: int
    late: int
    reaped: int


class CheckedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the verification samples of a type."""

    type: str
    waiting: int
    overdue: float | None
    matched: int
    mismatched: int
    unknown: int
    last_mismatch_at: datetime | None
    last_mismatch_job: str | None


class TickDocument(msgspec.Struct, frozen=True, kw_only=True):
    """When something that must happen again and again last succeeded."""

    name: str
    at: datetime | None
    age: float | None
    within: float
    late: bool


class SignalsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every signal at one moment."""

    now: datetime
    counted: float
    lanes: list[LaneDocument]
    bands: list[BandDocument]
    untaken: list[UntakenDocument]
    window: float
    balances: list[BalanceDocument]
    checked: list[CheckedDocument]
    ticks: list[TickDocument]
    warnings: list[str]
