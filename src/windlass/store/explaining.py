"""What must be known to say why a job does not run?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.job import Job, JobState
from windlass.policy.limit import Limit
from windlass.store.flow import Breaker, Pause

if TYPE_CHECKING:
    from windlass.store.fleet import WorkerInfo

# Jobs in front are counted up to here: the answer must not cost what a backlog costs.
MOST_AHEAD = 1_000
# So many of those that hold something are named.
MOST_NAMED = 10


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
    # The name of which it shall be the only job, and who has it.
    unique: str | None = None
    unique_holder: str | None = None
    ahead: Ahead = Ahead()
    pace: Pace = Pace()
