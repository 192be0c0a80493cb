"""What goes into a store's verbs, and what comes out of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass.job import Job, JobState, Lease, NewJob
from windlass.outcome import Outcome
from windlass.store.flow import Restriction

# --- producing ----------------------------------------------------------------------------------


class Enqueued(msgspec.Struct, frozen=True):
    """The answer to one enqueue: which job, whether this call made it, whether workers must yet be told."""

    id: str
    key: str | None
    created: bool
    due: bool


# --- running ------------------------------------------------------------------------------------


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for: types (with the schema version that it knows), how many, for how long."""

    worker: str
    types: Mapping[str, int]
    limit: int
    lease: timedelta
    # The tenant served last, by type: the next claim starts after it.
    turns: Mapping[str, str] = {}
    # What stands in the way of some of the types, and how many of their jobs could start at once.
    restricted: Mapping[str, Restriction] = {}
    slots: int = 0
    # So many of them from the lowest priority that waits, so that it is never forgotten.
    lowest: int = 0
    # Which payloads the worker can read: it is offered jobs that others could not, and it has not tried.
    reader: str = ""
    # 16 hex digits that end the tokens of these leases: whoever asks the same again is given the same.
    mark: str | None = None
    # The file of the store (`Store.generation`) that knows the worker. A claim takes nothing from another
    # file: the reaper would take the jobs for those of a lost worker.
    generation: int | None = None


class Claimed(msgspec.Struct, frozen=True):
    """Leases in the order in which they should start, and when it is worth asking again."""

    leases: list[Lease]
    # When the next scheduled job of a type without restrictions is due.
    next_due: timedelta | None = None
    # When a job of a restricted type may start: one is due, a rate has a token, a breaker a probe.
    permit_due: timedelta | None = None
    # Jobs of restricted types are due, and no permit is there for them.
    held_back: bool = False
    # Somebody else was counting under a limit at that moment: it is worth asking again in a few of them.
    contended: bool = False
    # A claim with the same mark took these before; now nothing was taken.
    repeated: bool = False

    @property
    def again(self) -> timedelta | None:
        """The earlier of both, for who asks for all types alike."""
        return min((each for each in (self.next_due, self.permit_due) if each is not None), default=None)


class Settlement(msgspec.Struct, frozen=True):
    """An outcome for a lease, and how long the handler ran (None: it never started)."""

    lease: Lease
    outcome: Outcome
    ran: timedelta | None = None
    # What the handler asked to be enqueued with its completion, in the same transaction; with Done only.
    enqueues: tuple[NewJob, ...] = ()
    # Its outcome is to be checked after so long; with Done only.
    check_in: timedelta | None = None
    # The release of the application that ran it.
    app: str = ""
    # The work goes on all the same, and keeps its permits until it is let go.
    held: bool = False

    @property
    def plain(self) -> bool:
        """Whether nothing else is written with it."""
        return not self.enqueues and self.check_in is None


# --- operating ----------------------------------------------------------------------------------


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs: every field that is given must match."""

    ids: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    states: tuple[JobState, ...] = ()
    view: str | None = None
    tenant: str | None = None
    # Who enqueued them, and the batch that they belong to.
    caller: str | None = None
    batch: str | None = None
    key: str | None = None
    # A text in the last error; with `=` before it, the whole class, or reason where there is no class.
    error: str | None = None
    older_than: timedelta | None = None
    # Payload fields by path, e.g. {("a", "b"): 1}
    payload: Mapping[tuple[str, ...], Any] = {}


class Page(msgspec.Struct, frozen=True):
    """A page of jobs, newest first, and the cursor for the next one."""

    jobs: list[Job]
    next: str | None


class Counted(msgspec.Struct, frozen=True):
    """How many jobs match among some numbers, and the cursor for those below them; None: there are none."""

    count: int
    next: str | None


class Count(msgspec.Struct, frozen=True):
    """How many jobs of one type stand in one state (and view); of due ones, of one priority and version."""

    type: str
    state: JobState
    view: str | None
    count: int
    # For due jobs: how long the oldest has waited, and the priority and schema version of all of them.
    oldest: timedelta | None = None
    priority: int | None = None
    schema_version: int = 1


class Counts(msgspec.Struct, frozen=True):
    """All counts at one moment: of live jobs now, of ended ones ever.

    `capped`: more jobs may have ended than the counters know of.
    """

    now: datetime
    counts: list[Count]
    capped: bool = False


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What to change on a pending job (or, with replay, on a dead one)."""

    priority: int | None = None
    run_at: datetime | None = None
    payload: bytes | None = None
    schema_version: int | None = None


class Acted(msgspec.Struct, frozen=True):
    """What a verb did to one job: `state` is the state after it."""

    id: str
    state: JobState
    # The verb took effect (True), or waits for the worker that runs the job (False).
    done: bool = True
