"""What should a store answer? The rules once more, over a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from windlass.job import Job, JobState, Reason
from windlass.outcome import Again, Cancelled, Dead, Done, Left, Outcome, Released, Snoozed
from windlass.store.upkeep import Retention

LOST = {Reason.WORKER_LOST, Reason.LEASE_EXPIRED}
ENDED = {JobState.COMPLETED, JobState.CANCELLED, JobState.DISCARDED}


@dataclass
class Expected:
    """One job as it should stand."""

    id: str
    seq: int
    type: str
    priority: int
    tenant: str
    version: int
    key: str | None
    max_attempts: int
    run_at: datetime
    state: JobState = JobState.PENDING
    attempts: int = 0
    claims: int = 0
    snoozes: int = 0
    interruptions: int = 0
    losses: int = 0
    replays: int = 0
    records: int = 0
    token: str | None = None
    until: datetime | None = None
    worker: str | None = None
    request: str | None = None
    finished_at: datetime | None = None
    # The token that left last, and what was settled with it.
    last: tuple[str, Outcome] | None = None

    def like(self, job: Job) -> bool:
        """Whether the store's record says the same."""
        return self.told() == (
            *(job.id, job.seq, job.state, job.priority, job.tenant, job.key, job.run_at),
            *(job.attempts, job.claims, job.snoozes, job.interruptions, job.losses, job.replay_count),
            *(len(job.history), job.lease_until, job.request, job.finished_at),
        )

    def told(self) -> tuple[object, ...]:
        """What is compared."""
        return (
            *(self.id, self.seq, self.state, self.priority, self.tenant, self.key, self.run_at),
            *(self.attempts, self.claims, self.snoozes, self.interruptions, self.losses, self.replays),
            *(self.records, self.until, self.request, self.finished_at),
        )

    def end(self, state: JobState, now: datetime) -> None:
        """Come to stand in a state in which nobody runs the job."""
        self.state, self.token, self.until, self.request = state, None, None, None
        self.finished_at = now


@dataclass
class Model:
    """All jobs, by id."""

    jobs: dict[str, Expected] = field(default_factory=dict)

    def newest_first(self) -> list[Expected]:
        return sorted(self.jobs.values(), key=lambda job: -job.seq)

    def running(self) -> list[Expected]:
        return [job for job in self.jobs.values() if job.state is JobState.PROCESSING]

    def claimable(self, types: Mapping[str, int], now: datetime) -> list[Expected]:
        return [
            job
            for job in self.jobs.values()
            if job.state is JobState.PENDING and job.run_at <= now and job.version <= types.get(job.type, 0)
        ]

    def take(self, job: Expected, *, token: str, worker: str, until: datetime) -> None:
        job.state, job.token, job.worker, job.until = JobState.PROCESSING, token, worker, until
        job.attempts += 1
        job.claims += 1

    def settle(self, job: Expected, outcome: Outcome, now: datetime) -> None:
        """Apply an outcome to the job that its lease still holds."""
        assert job.token is not None
        job.last = (job.token, outcome)
        lost = isinstance(outcome, (Again, Dead)) and outcome.error.reason in LOST
        # A job that is cancelled will not run again, so nobody asks whether it is a suspect.
        job.losses += lost and not (isinstance(outcome, Again) and job.request == "cancel")
        job.records += not isinstance(outcome, Snoozed) and outcome != Released()
        if isinstance(outcome, Done):
            job.end(JobState.COMPLETED, now)
        elif isinstance(outcome, Cancelled):
            job.end(JobState.CANCELLED, now)
        elif isinstance(outcome, Dead):
            job.end(JobState.DEAD, now)
        else:
            assert not isinstance(outcome, Left), "test_unread.py tells of what is left to other releases"
            self._put_back(job, outcome, now)

    def _put_back(self, job: Expected, outcome: Again | Snoozed | Released, now: datetime) -> None:
        if job.request is not None:
            # What would run again although somebody asked to stop it is stopped.
            job.records += isinstance(outcome, Snoozed) or outcome == Released()
            job.end(JobState.CANCELLED if job.request == "cancel" else JobState.DEAD, now)
            return
        job.state, job.token, job.until, job.worker = JobState.PENDING, None, None, None
        job.attempts -= not isinstance(outcome, Again)
        job.snoozes += isinstance(outcome, Snoozed)
        job.interruptions += isinstance(outcome, Released) and outcome.error is not None
        job.run_at = now if isinstance(outcome, Released) else now + outcome.delay

    def replay(self, job: Expected, now: datetime) -> None:
        job.state, job.finished_at = JobState.PENDING, None
        job.attempts = job.snoozes = job.interruptions = job.losses = 0
        job.replays += 1
        job.run_at = now

    def prune(self, keep: Retention, now: datetime) -> None:
        def over(job: Expected) -> bool:
            if job.finished_at is None:
                return False
            kept = keep.ended if job.state in ENDED else keep.dead
            return job.finished_at < now - kept

        self.jobs = {job.id: job for job in self.jobs.values() if not over(job)}


def in_turn(jobs: Iterable[Expected], after: str) -> list[Expected]:
    """The order of claims for one type: priority, tenants in turn from after the one served last, seq."""
    waiting = sorted(jobs, key=lambda job: job.seq)
    ordered: list[Expected] = []
    for priority in sorted({job.priority for job in waiting}, reverse=True):
        lanes: dict[str, list[Expected]] = {}
        for job in waiting:
            if job.priority == priority:
                lanes.setdefault(job.tenant, []).append(job)
        tenants = sorted(lanes, key=lambda tenant: (tenant <= after, tenant))
        while any(lanes.values()):
            ordered += [lanes[tenant].pop(0) for tenant in tenants if lanes[tenant]]
    return ordered


def allowed(verb: str, state: JobState) -> bool:
    """Whether operators may do this to a job in that state."""
    return (
        state
        in {
            "cancel": {JobState.PENDING, JobState.PROCESSING},
            "bury": {JobState.PENDING, JobState.PROCESSING},
            "replay": {JobState.DEAD},
            "discard": {JobState.DEAD},
            "edit": {JobState.PENDING},
        }[verb]
    )


def act(model: Model, verb: str, job: Expected, now: datetime, *, priority: int, delay: timedelta) -> None:
    """What an allowed verb makes of a job."""
    if job.state is JobState.PROCESSING:
        job.request = verb
        return
    acts: dict[str, Callable[[], None]] = {
        "cancel": lambda: job.end(JobState.CANCELLED, now),
        "bury": lambda: job.end(JobState.DEAD, now),
        "discard": lambda: job.end(JobState.DISCARDED, now),
        "replay": lambda: model.replay(job, now),
    }
    if verb == "edit":
        job.priority, job.run_at = priority, now + delay
    else:
        acts[verb]()
