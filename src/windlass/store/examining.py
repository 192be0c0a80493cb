"""What does the person on call ask of a store? Why a job waits, what jobs died of, how the database is."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

# A line of a dead group's past has so many points.
POINTS = 24
# The dead are many after an incident: so many of the newest are grouped.
MOST_DEAD = 5_000


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one type that died of one kind of error."""

    type: str
    # The error's class; without one, its reason.
    error: str
    # The newest one's.
    reason: str
    count: int
    first: datetime
    last: datetime
    # The newest of them, and what its error said.
    sample: str
    message: str
    # How many died in each step up to now, the oldest first.
    spark: tuple[int, ...]
    step: timedelta
    # The filter `error` that finds exactly these.
    match: str


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters in groups, the largest first; `capped`: only the newest ones were looked at."""

    groups: list[DeadGroup]
    capped: bool = False


class TableHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A table of ours, as the database's statistics tell (in a file: counted up to 100,000)."""

    name: str
    rows: int
    dead_rows: int
    size_bytes: int
    vacuumed_at: datetime | None = None
    analyzed_at: datetime | None = None


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """Who has been in a transaction for longest, and so keeps dead rows from being cleaned up."""

    holder: str
    pid: int
    age: timedelta


class DatabaseSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the database that matters to us; `wanted`: what it should be, if it is not."""

    name: str
    value: str
    wanted: str | None = None


class DatabaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the database is. What does not exist in one of its kind is None, or empty."""

    kind: str
    version: str
    size_bytes: int
    tables: list[TableHealth]
    settings: list[DatabaseSetting]
    # What is wrong in words, as `db status` tells it.
    notes: list[str] = []
    oldest: OpenTransaction | None = None
    # Of so many sessions, those of ours that listen for hints.
    sessions: int | None = None
    most_sessions: int | None = None
    listeners: int | None = None
    # Of a file: its write-ahead log, pages that are free in it, and room on its disk.
    wal_bytes: int | None = None
    free_bytes: int | None = None
    disk_free_bytes: int | None = None
