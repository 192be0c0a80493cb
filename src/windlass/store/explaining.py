"""What must be known to say why a job does not run?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.job import Job, JobState
from windlass.policy.limit import Limit
from windlass.store.flow import Breaker, Pause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.store.fleet import WorkerInfo

# Jobs in front are counted up to here: the answer must not cost what a backlog costs.
MOST_AHEAD = 1_000
# So many of those that hold something are named.
MOST_NAMED = 10


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that workers could not read, and have left to workers of another release."""

    type: str
    # The readers that have tried them.
    readers: frozenset[str]
    # What they cannot read, and what one of them said of it.
    field: str
    problem: str
    since: datetime
    # Counted up to a bound.
    count: int = 1

    def is_for(self, worker: WorkerInfo) -> bool:
        """Whether a worker that takes jobs of this type may be able to read them."""
        # Over HTTP nothing is said of versions: such a worker takes whatever it is given. One of an older
        # release of Windlass says no reader, and is never offered what others have left.
        return worker.reader not in self.readers if worker.reader else not worker.versions

    def for_none_of(self, workers: Iterable[WorkerInfo]) -> bool:
        """Whether none of these workers, which are alive, takes the type and may be able to read them."""
        return not any(
            worker.state != "draining" and worker.serves(self.type) and self.is_for(worker)
            for worker in workers
        )


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a job must pass: of a type, a key (`key:crm`) or all jobs (`*`); and what runs so."""

    name: str
    limit: Limit
    # Counted up to the limit; the oldest of them by id.
    running: int = 0
    jobs: tuple[str, ...] = ()
    # When its rate has a token; None: now.
    token_at: datetime | None = None


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another waits for; no state: its record is gone."""

    id: str
    state: JobState | None = None


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that are claimed before this one, counted up to MOST_AHEAD together."""

    # Of a higher priority, of the same type and of others that the same workers serve.
    higher: int = 0
    # Of the same tenant and priority, earlier.
    earlier: int = 0
    # Of other tenants, whose turn comes before; so many tenants.
    others: int = 0
    tenants: int = 0
    # Of other types, older and of the same priority.
    rivals: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.higher + self.earlier + self.others + self.rivals


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of those in front's types ended lately, in so much time."""

    ended: int = 0
    over: timedelta = timedelta(0)

    @property
    def per_second(self) -> float:
        """Jobs a second."""
        return self.ended / self.over.total_seconds() if self.over else 0.0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that bears on one job at one moment. What cannot matter to a job as it stands is not looked up."""

    now: datetime
    job: Job
    # Every row, the newest first.
    workers: tuple[WorkerInfo, ...] = ()
    pause: Pause | None = None
    breaker: Breaker | None = None
    # How often a breaker lets one job through, and the one that it has let through.
    probe: timedelta = timedelta(0)
    probing: str | None = None
    held: tuple[Held, ...] = ()
    # What of the job's tenant runs, where the type's limit has a bound for each.
    tenant: Held | None = None
    parents: tuple[Parent, ...] = ()
    # Why workers have left it to others.
    unread: Unread | None = None
    # The name of which it shall be the only job, and who has it.
    unique: str | None = None
    unique_holder: str | None = None
    ahead: Ahead = Ahead()
    pace: Pace = Pace()

    def without_others(self) -> Facts:
        """The same without the ids of jobs that may belong to another caller or tenant."""
        tenant = None if self.tenant is None else msgspec.structs.replace(self.tenant, jobs=())
        held = tuple(msgspec.structs.replace(each, jobs=()) for each in self.held)
        return msgspec.structs.replace(self, held=held, tenant=tenant, probing=None)
