"""Batches and dependents: what waits for other jobs, and what follows when they end.

Whoever ends a job that has dependents or belongs to a batch comes here, in the same transaction. A sweep
repairs what a worker of an older release has left undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from windlass.checks import storable
from windlass.clock import END_OF_TIME, from_micros, to_micros
from windlass.errors import JobNotFound, Refused
from windlass.job import Change, Job, JobState, NewJob
from windlass.store import history, keys, rows
from windlass.store.engine import Acted, Enqueued, Row, Tx


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are enqueued together, and what follows when all of them have ended."""

    id: str
    name: str = ""
    then: NewJob | None = None
    # The batch may be there already: then the jobs are added to it, as long as it has not ended.
    extends: bool = False


class BatchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch has come: how many of its jobs stand in which state."""

    id: str
    name: str
    total: int
    counts: Mapping[JobState, int]
    then_id: str | None
    created_at: datetime
    finished_at: datetime | None

    @property
    def ended(self) -> int:
        """How many jobs have ended, however they did."""
        return self.total - self.counts.get(JobState.PENDING, 0) - self.counts.get(JobState.PROCESSING, 0)


# How jobs are stored that follow the end of others.
Storing = Callable[[Sequence[NewJob]], list[Enqueued]]

_SWEPT = 500


def _fate(policy: str, parent: JobState | None) -> Literal["wait", "cancel", "run"]:
    """What becomes of a dependent when its parent stands so; None: the parent's record is gone."""
    if parent is JobState.COMPLETED or policy == "run":
        return "run"
    # Somebody may replay a dead one.
    return "wait" if parent is JobState.DEAD and policy == "wait" else "cancel"


def attach(tx: Tx, new: NewJob) -> Enqueued:
    """Let a job that was stored just now wait for those that it depends on."""
    job = keys.get_by_id(tx, new.id)
    if job is None:
        raise JobNotFound(new.id)
    unmet = 0
    # In a fixed order, so that two who enqueue never wait for each other.
    parents = {name: keys.get(tx, name, caller=new.caller, tenant=new.tenant) for name in new.depends_on}
    if missing := [name for name, parent in parents.items() if parent is None]:
        raise JobNotFound(missing[0])
    for parent_id in sorted({parent.id for parent in parents.values() if parent is not None}):
        state = _state(tx, parent_id)
        if state is None:
            raise JobNotFound(parent_id)
        fate = "wait" if state in _GOES_ON else _fate(new.on_dead, state)
        if fate == "cancel":
            tx.change("forget_parents", id=new.id)
            _cancel(tx, job, parent_id, state)
            return Enqueued(new.id, new.key, created=True, due=False)
        if fate == "wait":
            unmet += 1
            pair = {"parent_id": parent_id, "child_id": new.id}
            tx.change("add_dependency", **pair, policy=new.on_dead, run_at=to_micros(job.run_at))
            tx.change("mark_parent", id=parent_id)
    if unmet:
        tx.change("wait_for_parents", id=new.id, waits_for=unmet, run_at=END_OF_TIME)
    return Enqueued(new.id, new.key, created=True, due=not unmet and to_micros(job.run_at) <= tx.now)


_GOES_ON = frozenset({JobState.PENDING, JobState.PROCESSING})


def _state(tx: Tx, job_id: str) -> JobState | None:
    """The parent's state, which nobody changes before we are done with it; None: its record is gone."""
    row = tx.row("lock_job", id=job_id) or tx.row("by_id_ended", id=job_id)
    return None if row is None else JobState(row["state"])


def enqueue_batch(tx: Tx, batch: NewBatch, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store jobs as one batch, all or none; those known before are answered, but not part of it."""
    # It does not end before this transaction does.
    is_open = batch.extends and tx.row("lock_batch", id=batch.id) is not None
    done = tx.enqueue(jobs)
    ours = sorted({each.id for each in done if each.created})
    for job_id in ours:
        tx.change("join_batch", id=job_id, batch=batch.id)
    if batch.extends and tx.row("batch", id=batch.id) is not None:
        if ours and not is_open:
            raise Refused(f"batch {batch.id} has ended, and takes no more jobs; start another one")
        tx.change("extend_total", id=batch.id, count=len(ours))
        return done
    then_job, then_id = (None, None) if batch.then is None else (rows.json_text(batch.then), batch.then.id)
    follows = {"then_job": then_job, "then_id": then_id}
    tx.change("open_batch", id=batch.id, name=batch.name, total=len(ours), now=tx.now, **follows)
    _close_if_done(tx, batch.id, tx.enqueue)
    return done


class Ended(NamedTuple):
    """A job that has ended, and the marks that it had."""

    id: str
    state: JobState | None
    marks: Row


def all_ended(tx: Tx, jobs: Sequence[Ended], store: Storing) -> None:
    """Jobs have ended: release or cancel what waits for them, and close each batch whose last job has."""
    batches = set()
    # One after the other, never one within the other: a line of dependents may be thousands long.
    left = deque(jobs)
    while left:
        each = left.popleft()
        batches.add(each.marks["batch"])
        if each.marks["has_dependents"]:
            left += _see_to_dependents(tx, each.id, each.state)
    # In a fixed order, so that two who end jobs of the same batches never wait for each other.
    for batch in sorted(batches - {None}):
        _close_if_done(tx, batch, store)


def end(tx: Tx, job: Job, state: JobState, changes: str) -> Acted:
    """End a job that nobody runs."""
    tx.change(
        "end_idle", seq=job.seq, state=state.value, expected=job.state.value, changes=changes, now=tx.now
    )
    tx.change("remove_idle", seq=job.seq, expected=job.state.value)
    history.add(tx, {(job.type, state.value): 1})
    return Acted(job.id, state)


def _see_to_dependents(tx: Tx, job_id: str, state: JobState | None) -> list[Ended]:
    """Release or cancel what waits for a job; those that were cancelled have ended, too."""
    cancelled: list[Ended] = []
    for row in tx.rows("dependents_of", parent_id=job_id):
        # It may wait no more: another sweep was faster, or a person has sent it on its way.
        dependent = row["child_id"]
        match _fate(row["policy"], state):
            case "run":
                if tx.change("remove_dependency", parent_id=job_id, child_id=dependent):
                    run_at = max(row["run_at"], tx.now)
                    tx.change("release_dependent", id=dependent, run_at=run_at, due=int(run_at <= tx.now))
                    tx.hint()
            case "cancel":
                waits = tx.change("forget_parents", id=dependent)
                found = tx.row("lock_job", id=dependent) if waits else None
                if found is not None and found["state"] == JobState.PENDING:
                    _cancel(tx, rows.read(Job, found), job_id, state)
                    cancelled.append(Ended(dependent, JobState.CANCELLED, found))
    return cancelled


def _cancel(tx: Tx, dependent: Job, parent_id: str, state: JobState | None) -> None:
    why = f"job {parent_id}, which it depends on, is {'gone' if state is None else state.value}"
    change = Change(from_micros(tx.now), "cancel", "windlass", why)
    end(tx, dependent, JobState.CANCELLED, rows.changes_text((*dependent.changes, change)))


def _close_if_done(tx: Tx, batch: str, store: Storing) -> None:
    row = tx.row("lock_batch", id=batch)
    if row is None or tx.row("batch_goes_on", id=batch) is not None:
        return
    tx.change("close_batch", id=batch, now=tx.now)
    if row["then_job"] is not None:
        store([msgspec.json.decode(row["then_job"], type=NewJob)])
        tx.hint()


def sweep(tx: Tx) -> int:
    """Repair what was left undone, each by itself; how much that was."""
    stale = tx.rows("stale_parents", limit=_SWEPT)
    for row in stale:
        with tx.part():
            state = _state(tx, row["parent_id"])
            # Somebody may have replayed it since.
            if state not in _GOES_ON:
                all_ended(tx, _see_to_dependents(tx, row["parent_id"], state), tx.enqueue)
    batches = tx.rows("stale_batches", limit=_SWEPT)
    for row in batches:
        with tx.part():
            _close_if_done(tx, row["id"], tx.enqueue)
    return len(stale) + len(batches)


def batch(tx: Tx, batch_id: str) -> BatchInfo | None:
    """How far a batch has come."""
    row = tx.row("batch", id=batch_id) if storable(batch_id) else None
    if row is None:
        return None
    counts = {JobState(each["state"]): each["count"] for each in tx.rows("count_batch", id=batch_id)}
    return rows.read(BatchInfo, row, counts=counts)


def batch_of(tx: Tx, job_id: str) -> str | None:
    """The batch that a job belongs to."""
    row = tx.row("batch_of", id=job_id)
    return None if row is None else row["batch"]


def waits_for(tx: Tx, job_id: str) -> list[str]:
    """The jobs that a job still waits for."""
    return [row["parent_id"] for row in tx.rows("parents_of", child_id=job_id)]
