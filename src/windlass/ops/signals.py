"""Which signals cannot lie about the jobs? Gathered here, once; metrics, dashboard, status and doctor show them.

A depth of 0 may hide jobs that nobody takes, a low age a starved priority, steady completions work that is done
twice, and "completed" an outcome that never came. Each of these is a field of `Signals`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting jobs of one type and priority under one view: due, scheduled, retrying or waiting.

    `priority` is None where more than 10,000 jobs wait for their time: those are counted by type alone.
    """

    type: str
    priority: int | None
    view: str
    count: int
    # How long the first of them has been due; None for those whose time has not come.
    oldest: timedelta | None = None


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """One priority over all types: how many jobs are due, and for how long the oldest. A starved one is old."""

    priority: int
    due: int
    oldest: timedelta
    # It waits although jobs of a higher priority, or later ones, are taken meanwhile.
    starved: bool = False


class Untaken(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a type that have been due for long and of which none runs, and why that may be."""

    type: str
    count: int
    oldest: timedelta
    # One of: no_worker, paused, breaker, newer, not_promoted, untaken.
    why: str


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """What went in and what came out, of one type, within `Signals.window`."""

    type: str
    enqueued: int
    completed: int
    failed: int
    dead: int


class Doubled(msgspec.Struct, frozen=True, kw_only=True):
    """Work that was done twice, as far as it is known: results that came after the job was given to another."""

    # Of the workers whose rows are there: a day's worth.
    late: int
    # Live jobs that were lost with a worker or a lease at least once.
    rerun: int


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the verification samples of a type, since the first one."""

    type: str
    # Taken and not checked yet, and for how long the oldest of them has been due.
    waiting: int
    overdue: timedelta | None
    matched: int
    mismatched: int
    # The check itself raised, again and again.
    unknown: int
    last_mismatch_at: datetime | None = None
    last_mismatch_job: str | None = None


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """When something that must happen again and again last succeeded: beat, reap, promote, schedule, prune."""

    name: str
    # None: never, as far as this store knows.
    at: datetime | None
    age: timedelta | None
    # Older than this is late; None: nobody is there who should.
    within: timedelta
    late: bool


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """All of them at one moment. `warnings` are whole sentences for the person on call."""

    now: datetime
    # Depths are counted by one process every few seconds: how old that count is.
    counted: timedelta
    lanes: tuple[Lane, ...]
    bands: tuple[Band, ...]
    untaken: tuple[Untaken, ...]
    window: timedelta
    balances: tuple[Balance, ...]
    doubled: Doubled
    checked: tuple[Checked, ...]
    ticks: tuple[Tick, ...]
    warnings: tuple[str, ...]
