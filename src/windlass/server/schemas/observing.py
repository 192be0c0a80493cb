"""What do the answers about metrics, history, alerts and scale look like?"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec


class HistoryPoint(msgspec.Struct, kw_only=True):
    """One step of one type."""

    at: datetime
    enqueued: int
    completed: int
    failed: int
    dead: int
    wait_ms: float | None
    run_ms: float | None
    depth: int | None
    oldest_due_age: float | None


class HistorySeries(msgspec.Struct, kw_only=True):
    """One type, oldest point first."""

    type: str
    points: list[HistoryPoint]


class HistoryDocument(msgspec.Struct, kw_only=True):
    """What happened between two moments."""

    step: Literal["minute", "hour", "day"]
    since: datetime = msgspec.field(name="from")
    until: datetime = msgspec.field(name="to")
    series: list[HistorySeries]


class TypeTotalsDocument(msgspec.Struct, kw_only=True):
    """What has happened to the jobs of one type, ever."""

    type: str
    enqueued: int
    started: int
    completed: int
    failed: int
    retried: int
    dead: int
    cancelled: int
    wait_ms: float | None
    run_ms: float | None


class ReleaseOfTypeDocument(msgspec.Struct, kw_only=True):
    """What came of the attempts at one type's jobs that one release ran."""

    type: str
    attempts: int
    failed: int
    run_ms: float | None


class ReleaseDocument(msgspec.Struct, kw_only=True):
    """What came of the attempts that one release ran; the type that fails most first."""

    version: str
    first_at: datetime
    attempts: int
    failed: int
    run_ms: float | None
    types: list[ReleaseOfTypeDocument]


class ServiceDocument(msgspec.Struct, kw_only=True):
    """What came over HTTP with the API keys of one service, ever and in the last ten minutes."""

    service: str
    enqueued: int
    enqueued_lately: int
    # Requests to enqueue that were answered with 429, and with 5xx.
    refused: int
    broken: int


class EventDocument(msgspec.Struct, kw_only=True):
    """What happened last to one of the newest jobs."""

    at: datetime
    event: str
    type: str
    job: str
    error: str | None


class TotalsDocument(msgspec.Struct, kw_only=True):
    """Event counts, average durations and the last events."""

    now: datetime
    types: list[TypeTotalsDocument]
    releases: list[ReleaseDocument]
    services: list[ServiceDocument]
    events: list[EventDocument]


class AlertDocument(msgspec.Struct, kw_only=True):
    """An alert whose condition holds."""

    name: str
    state: Literal["firing", "pending"]
    severity: Literal["page", "warning"]
    labels: dict[str, str]
    value: float | None
    since: datetime
    summary: str
    runbook: str


class AlertsDocument(msgspec.Struct, kw_only=True):
    """All that hold; `watched`: somebody has been looking, so it is known for how long."""

    now: datetime | None
    watched: bool
    alerts: list[AlertDocument]


class DemandDocument(msgspec.Struct, kw_only=True):
    """What one type asks for."""

    type: str
    waiting: int
    running: int
    arrivals_per_second: float
    service_seconds: float
    slots: float


class ScaleDocument(msgspec.Struct, kw_only=True):
    """How many workers the load asks for, and why; `now` is without the cool-down."""

    desired: int
    now: int
    alive: int
    slots_per_worker: int
    target_seconds: float
    headroom: float
    least: int
    most: int
    cooldown_seconds: float
    types: list[DemandDocument]
