"""What can a store do? THE SEAM: each verb is one transaction, and times are the store's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from windlass.job import Job, JobState, Lease, NewJob, TypeInfo
from windlass.outcome import Outcome
from windlass.store.access import Access
from windlass.store.batches import BatchInfo, NewBatch
from windlass.store.examining import Examining
from windlass.store.fleet import Fleet
from windlass.store.flow import Flow, Restriction
from windlass.store.handling import Handling
from windlass.store.keeping import Upkeep
from windlass.store.observing import Observing
from windlass.store.scheduling import Scheduling
from windlass.store.signalling import Signalling

# --- producing ----------------------------------------------------------------------------------


class Enqueued(msgspec.Struct, frozen=True):
    """The answer to one enqueue: which job, whether this call made it, whether workers must yet be told."""

    id: str
    key: str | None
    created: bool
    due: bool


class Producing(Protocol):
    """Accepting work."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all jobs or none, durably. A known key or id answers with the job that has it."""

    def enqueue_on(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same within the transaction of the caller's own connection; the caller commits."""

    async def enqueue_on_async(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same for a connection that belongs to the running event loop."""

    def enqueue_batch(self, batch: NewBatch, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs as one batch, all or none; those known before are answered, but not part of it."""

    def batch(self, batch_id: str) -> BatchInfo | None:
        """How far a batch has come."""

    def batch_of(self, job_id: str) -> str | None:
        """The batch that a job belongs to."""

    def waits_for(self, job_id: str) -> list[str]:
        """The ids of the jobs that a job still waits for."""

    def register(self, types: Sequence[TypeInfo]) -> None:
        """Put types into the catalogue; an entry of a newer schema version stays."""

    def types(self) -> dict[str, TypeInfo]:
        """The catalogue by name."""


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
    # 16 hex digits that end the tokens of these leases: whoever asks the same again is given the same.
    mark: str | None = None


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


class Running(Protocol):
    """Working on jobs. Nothing here takes a bare job id: the lease's token is the fence."""

    def claim(self, want: Want) -> Claimed:
        """Promote, then take due jobs: by priority, tenants in turn, then seq. Counts an attempt."""

    def extend(self, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
        """Move the leases' end to now + `by`: (kept with their new end, lost)."""

    def settle(self, settlements: Sequence[Settlement]) -> list[Lease]:
        """Record outcomes; answers the leases that were lost (one settled before is not lost).

        One that cannot be stored fails alone: its job goes to the dead letters, and says why.
        """

    def let_go(self, tokens: Sequence[str]) -> None:
        """Work that went on after it was settled has ended: others may have its permits."""

    def held_by(self, worker: str) -> list[Lease]:
        """Every lease in a worker's name."""

    def orphans(self, *, limit: int) -> list[Lease]:
        """Leases whose worker is declared dead, stopped, or unknown."""

    def expired(self, *, limit: int) -> list[Lease]:
        """Leases past their end, the longest past first."""


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
    """How many jobs of one type stand in one state (and view); of due ones, of one priority."""

    type: str
    state: JobState
    view: str | None
    count: int
    # For due jobs: how long the oldest has waited, and the priority of all of them.
    oldest: timedelta | None = None
    priority: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """All counts at one moment; `capped` says that ended jobs were counted up to a bound only."""

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


class Operating(Protocol):
    """What operators and callers do to jobs. The verbs raise JobNotFound and WrongState.

    What `by` did stands in the audit log as soon as it is done. The same `request_id` once more changes
    nothing: the answer tells how the job stands by then.
    """

    def get(self, name: str, *, caller: str = "") -> Job | None:
        """A job by id or key, live or archived."""

    def find(
        self, where: Filter, *, limit: int = 50, cursor: str | None = None, window: int | None = None
    ) -> Page:
        """Jobs newest first, live and archived; with a window, of those of the next so many numbers only.

        There may then be a `next` though nothing was found: more numbers to look through.
        """

    def count(self, where: Filter, *, limit: int) -> int:
        """How many jobs match, counted up to `limit`."""

    def count_next(self, where: Filter, *, window: int, cursor: str | None = None) -> Counted:
        """How many of the next so many numbers match, from the newest down, and where to go on."""

    def counts(self) -> Counts:
        """How many jobs stand where."""

    def cancel(self, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        """End a pending job as cancelled, or ask the worker of a running one to."""

    def bury(self, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        """Move a pending job to the dead letters, or ask the worker of a running one to."""

    def replay(
        self, job_id: str, *, edit: Edit | None = None, by: str = "", why: str = "", request_id: str = ""
    ) -> Acted:
        """Make a dead job pending again: same row, history kept, attempts anew.

        A pending job that waits for its time is made due at once.
        """

    def discard(self, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        """Close a dead job for good; its record stays in the archive."""

    def edit(self, job_id: str, change: Edit, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        """Change a pending job's priority, time or payload."""


# --- all of it ----------------------------------------------------------------------------------


class Store(
    Producing,
    Running,
    Handling,
    Fleet,
    Flow,
    Operating,
    Examining,
    Observing,
    Scheduling,
    Access,
    Signalling,
    Upkeep,
    Protocol,
):
    """Everything that a store can do."""
