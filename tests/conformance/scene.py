"""What does a test start from? Jobs, leases and outcomes in words."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from windlass.clock import ManualClock, uuid7
from windlass.job import Error, Job, JobState, Lease, NewJob, Reason
from windlass.outcome import Again, Cancelled, Dead, Done, Outcome, Released, Snoozed
from windlass.store.engine import Settlement, Want
from windlass.store.fleet import WorkerInfo
from windlass.store.store import Store

LEASE = timedelta(seconds=60)
MAIL = "mail.send"
REPORT = "report.build"
TYPES = {MAIL: 1, REPORT: 1}

BOOM = Error(Reason.EXCEPTION, "ValueError", "boom", "Traceback: boom")
LOST_WORKER = Error(Reason.WORKER_LOST, message="the worker is gone")

DONE = Done(b'{"sent":true}')
AGAIN = Again(timedelta(0), BOOM)
LATER = Again(timedelta(seconds=30), BOOM)
REAPED = Again(timedelta(0), LOST_WORKER)
SNOOZED = Snoozed(timedelta(seconds=20))
GIVEN_BACK = Released()
INTERRUPTED = Released(Error(Reason.INTERRUPTED, message="stopped"))
DEAD = Dead(BOOM)
CANCELLED = Cancelled(Error(Reason.CANCELLED, message="stopped"))
OUTCOMES: dict[str, Outcome] = {
    "done": DONE,
    "again": AGAIN,
    "later": LATER,
    "reaped": REAPED,
    "snoozed": SNOOZED,
    "given back": GIVEN_BACK,
    "interrupted": INTERRUPTED,
    "dead": DEAD,
    "cancelled": CANCELLED,
}

_numbers = itertools.count(1)


def a_job(**changes: Any) -> NewJob:
    """A job like no other: its id and payload are its own."""
    fields: dict[str, Any] = {"id": uuid7(), "type": MAIL, "payload": a_payload(number=next(_numbers))}
    return NewJob(**(fields | changes))


def a_payload(**fields: Any) -> bytes:
    """A payload as a producer sends it."""
    return json.dumps(fields, ensure_ascii=False).encode()


def put(store: Store, *jobs: NewJob) -> list[Job]:
    """Store jobs that must all be new."""
    answers = store.enqueue(jobs)
    assert all(answer.created for answer in answers)
    return [look_up(store, answer.id) for answer in answers]


def put_one(store: Store, **changes: Any) -> Job:
    """Store one job."""
    [job] = put(store, a_job(**changes))
    return job


def take(
    store: Store,
    limit: int = 1,
    *,
    worker: str = "worker-1",
    types: Mapping[str, int] = TYPES,
    turns: Mapping[str, str] | None = None,
) -> list[Lease]:
    """Claim up to `limit` jobs."""
    want = Want(worker=worker, types=types, limit=limit, lease=LEASE, turns=turns or {})
    return store.claim(want).leases


def take_one(store: Store, *, worker: str = "worker-1") -> Lease:
    """Claim the one job that is there to be claimed first."""
    [lease] = take(store, worker=worker)
    return lease


def take_new(store: Store, *, worker: str = "worker-1", **changes: Any) -> Lease:
    """Store one job and claim it."""
    job = put_one(store, **changes)
    lease = take_one(store, worker=worker)
    assert lease.id == job.id
    return lease


def settle(store: Store, lease: Lease, outcome: Outcome) -> bool:
    """Settle one lease; False if it was lost."""
    return store.settle([Settlement(lease, outcome, timedelta(seconds=2))]) == []


def look_up(store: Store, name: str) -> Job:
    """A job that must be there."""
    job = store.get(name)
    assert job is not None, f"job {name} has vanished"
    return job


def state_of(store: Store, name: str) -> JobState:
    return look_up(store, name).state


def ids(records: Iterable[Job | Lease]) -> list[str]:
    return [record.id for record in records]


def in_every_state(store: Store, *, keyed: bool = False) -> list[Job]:
    """Two jobs in each state, the pending ones last, so that no other can be claimed in their place."""
    ran = [state for state in JobState if state is not JobState.PENDING]
    states = [*ran, *reversed(ran), JobState.PENDING, JobState.PENDING]
    return [
        in_state(store, state, key=f"key-{number}" if keyed else None) for number, state in enumerate(states)
    ]


def in_state(store: Store, state: JobState, **changes: Any) -> Job:
    """A job that has come to stand in a state."""
    job = put_one(store, **changes)
    match state:
        case JobState.PENDING:
            pass
        case JobState.PROCESSING:
            take_one(store)
        case JobState.COMPLETED:
            assert settle(store, take_one(store), DONE)
        case JobState.CANCELLED:
            store.cancel(job.id)
        case JobState.DEAD | JobState.DISCARDED:
            store.bury(job.id)
            if state is JobState.DISCARDED:
                store.discard(job.id)
    assert state_of(store, job.id) is state
    return look_up(store, job.id)


def a_seasoned_lease(store: Store, clock: ManualClock, **changes: Any) -> Lease:
    """A running job of which every time and every counter differs from every other."""
    job = put_one(store, delay=timedelta(seconds=7), max_attempts=20, **changes)
    outcomes = [AGAIN] * 5 + [SNOOZED] + [INTERRUPTED] * 2 + [REAPED] * 3
    for outcome in outcomes:
        _come_due(store, clock)
        assert settle(store, take_one(store), outcome)
    clock.advance(11)
    store.bury(job.id)
    clock.advance(13)
    store.replay(job.id)
    for outcome in [AGAIN] * 5 + [SNOOZED] + [INTERRUPTED] * 2 + [REAPED] * 3:
        _come_due(store, clock)
        assert settle(store, take_one(store), outcome)
    _come_due(store, clock)
    return take_one(store, worker="worker-2")


def _come_due(store: Store, clock: ManualClock) -> None:
    clock.advance(31)
    store.promote()


def a_worker(name: str, **changes: Any) -> WorkerInfo:
    """A worker process as it joins."""
    number = next(_numbers)
    fields: dict[str, Any] = {
        "id": name,
        "host": "host",
        "boot": "boot",
        "pid_space": "space",
        "pid": 1000 + number,
        "pid_started": 2000 + number,
        "version": "0.1.0",
        "types": (MAIL,),
        "slots": 10,
    }
    return WorkerInfo(**(fields | changes))
