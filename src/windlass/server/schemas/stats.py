"""What is said of the whole: health, numbers, workers?"""

from __future__ import annotations

from datetime import datetime

import msgspec


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is well."""

    ok: bool
    store: str


class PoolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of a worker: its slots, and how many of them are taken."""

    slots: int
    busy: int
    held: int


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
    # Of its process and those below it; null where it does not tell.
    resident_bytes: int | None
    # By name; empty where it does not tell.
    pools: dict[str, PoolDocument]


class WorkersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every worker that has a row, newest first."""

    workers: list[WorkerDocument]


class DrainedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that was asked to finish and exit."""

    worker: str
