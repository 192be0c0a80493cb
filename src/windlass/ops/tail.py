"""What happens to jobs, as it happens? A job's own record tells all; this looks at the right ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.job import ENDED, Error, Job, JobState, View
from windlass.store.jobs import Filter

if TYPE_CHECKING:
    from windlass.ops.ops import Ops

# So many of the newest jobs are looked at each time, and so many that have not ended are followed.
_NEWEST = 200
_FOLLOWED = 2_000
_AT_ONCE = 100
_WORKERS = 50
# What was committed late carries an earlier time: the last seconds are looked at twice.
_OVERLAP = timedelta(seconds=5)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a job: enqueued, started, completed, retrying, dead, or what a person did."""

    at: datetime
    what: str
    job: Job
    # Of an attempt: its number, how long it ran, and why it failed.
    attempt: int | None = None
    ran: timedelta | None = None
    error: Error | None = None
    by: str | None = None


def events(job: Job) -> Iterator[Event]:
    """Everything that a job's record tells."""
    yield Event(at=job.created_at, what="enqueued", job=job)
    for attempt in job.history:
        yield Event(
            at=attempt.finished_at,
            what=_OUTCOMES.get(attempt.outcome, attempt.outcome),
            job=job,
            attempt=attempt.number,
            ran=attempt.finished_at - attempt.started_at,
            error=attempt.error,
        )
    for change in job.changes:
        yield Event(at=change.at, what=change.verb, job=job, by=change.by)
    told = bool(job.history) and job.history[-1].outcome == job.state
    if job.state in ENDED and job.finished_at is not None and not told:
        yield Event(at=job.finished_at, what=job.state.value, job=job, error=job.error)
    if job.state is JobState.PROCESSING and job.started_at is not None:
        yield Event(at=job.started_at, what="started", job=job, attempt=job.attempts)


def held_now(ops: Ops) -> list[Job]:
    """The jobs that run, as the workers' leases show: found by an index, whatever waits; else as listed."""
    if ops.remote is not None:
        return ops.find(Filter(states=(JobState.PROCESSING,)), limit=_NEWEST).jobs
    alive = [each.info.id for each in ops.workers() if each.alive][:_WORKERS]
    return [lease.job for worker in alive for lease in ops.store.held_by(worker)]


@dataclass(eq=False)
class Tail:
    """Follows jobs from now on. What is faster than it looks is seen by its end; floods are seen in part."""

    ops: Ops
    where: Filter
    _: KW_ONLY
    states: tuple[str, ...] = ()
    failures: bool = False
    flooded: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._from = self._since = self.ops.now()
        # Jobs that have not ended, and what was told lately.
        self._followed: OrderedDict[str, None] = OrderedDict()
        self._told: dict[tuple[str, str, datetime], datetime] = {}

    def look(self) -> list[Event]:
        """What happened since the last look, in its order."""
        now = self.ops.now()
        found: dict[str, Job] = {}
        if not self.failures:
            page = self.ops.find(self.where, limit=_NEWEST)
            found = {job.id: job for job in page.jobs}
            self.flooded = len(page.jobs) == _NEWEST and page.jobs[-1].created_at > self._since
            found |= {job.id: job for job in held_now(self.ops) if self._meant(job)}
            found |= self._later(found)
        failed = self.ops.front.failures(since=self._since - _OVERLAP, limit=_NEWEST)
        found |= {job.id: job for job in failed if self._meant(job)}
        self._follow(found)
        since = max(self._since - _OVERLAP, self._from)
        happened = [event for job in found.values() for event in events(job) if event.at > since]
        new = [event for event in happened if (event.job.id, event.what, event.at) not in self._told]
        for event in new:
            self._told[event.job.id, event.what, event.at] = event.at
        horizon = self._since - 2 * _OVERLAP
        self._told = {key: at for key, at in self._told.items() if at > horizon}
        self._since = now
        wanted = [event for event in new if self._wanted(event)]
        return sorted(wanted, key=lambda event: (event.at, event.job.seq))

    def _later(self, seen: dict[str, Job]) -> dict[str, Job]:
        """Jobs that were met before and have not ended: some of them each time, in turn."""
        ids = [name for name in self._followed if name not in seen][:_AT_ONCE]
        if not ids:
            return {}
        for name in ids:
            self._followed.move_to_end(name)
        return {job.id: job for job in self.ops.find(Filter(ids=tuple(ids)), limit=len(ids)).jobs}

    def _follow(self, found: dict[str, Job]) -> None:
        for job in found.values():
            if job.ended:
                self._followed.pop(job.id, None)
            else:
                self._followed[job.id] = None
        while len(self._followed) > _FOLLOWED:
            self._followed.popitem(last=False)

    def _meant(self, job: Job) -> bool:
        where = self.where
        return (not where.types or job.type in where.types) and where.tenant in (None, job.tenant)

    def _wanted(self, event: Event) -> bool:
        if self.failures and event.error is None:
            return False
        return not self.states or event.what in self.states or _STATES.get(event.what) in self.states


# An attempt's outcome in the words of states; what an event leaves a job in.
_OUTCOMES = {"retry": View.RETRYING.value}
_STATES = {"enqueued": "pending", "started": "processing", "retrying": "pending"}
