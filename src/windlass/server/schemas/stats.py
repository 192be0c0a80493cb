"""What is said of the whole: health, numbers, workers?"""

from __future__ import annotations

from datetime import datetime

import msgspec

from windlass.ops.verdict import Verdict
from windlass.server.schemas.types import TypeDocument


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is well."""

    ok: bool
    store: str


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
    """One priority over all types: how many jobs are due, and for how many seconds the oldest."""

    priority: int
    due: int
    oldest: float
    # Later jobs of a higher priority are ahead of it, and it has waited for long.
    starved: bool


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
    app: str
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
