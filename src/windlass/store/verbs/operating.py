"""What may operators and callers do to jobs? The transition table, from their side."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from windlass.clock import END_OF_TIME, from_micros, to_micros
from windlass.errors import JobNotFound, UniqueConflict, WrongState
from windlass.job import Change, Error, Job, JobState, Reason, Request, View
from windlass.store import rows
from windlass.store.observing import DEAD, REPLAYED
from windlass.store.protocol import Acted, Count, Counts, Edit
from windlass.store.verbs import access, history

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.store.transaction import Row, Tx

# History must not make the counts slow: ended jobs are counted up to this bound.
_MOST_ENDED = 10_000
_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def get(tx: Tx, name: str, caller: str) -> Job | None:
    """A job by id or key."""
    if _HALF_A_CHARACTER.search(name):
        # From a command line that is not text; no job has such a name.
        return None
    job = get_by_id(tx, name)
    if job is None:
        holder = tx.row("key_holder", caller=caller, key=name)
        job = None if holder is None else get_by_id(tx, holder["job_id"])
    return job


def get_by_id(tx: Tx, job_id: str) -> Job | None:
    """A job by id, live or archived."""
    row = tx.row("by_id", id=job_id)
    if row is not None:
        return rows.live_job(row)
    row = tx.row("by_id_ended", id=job_id)
    return None if row is None else rows.ended_job(row)


class Asked(NamedTuple):
    """Who asks for it, why, and what the request is called if it may come twice."""

    by: str
    why: str
    request_id: str = ""


def once(tx: Tx, verb: Callable[..., Acted], job_id: str, asked: Asked, *args: object) -> Acted:
    """Carry a verb out, unless this very request has: whose answer was lost is told how the job stands."""
    if asked.request_id:
        job = _known(tx, job_id)
        if any(change.request_id == asked.request_id for change in job.changes):
            return Acted(job.id, job.state, done=job.request is None)
    return verb(tx, job_id, asked, *args)


def cancel(tx: Tx, job_id: str, asked: Asked) -> Acted:
    """End a pending job as cancelled, or ask the worker of a running one to."""
    job = _known(tx, job_id)
    if job.state is JobState.PENDING:
        acted = end(tx, job, JobState.CANCELLED, _changed(tx, job, "cancel", asked))
        return _noted(tx, job, acted, "cancel", asked)
    if job.state is JobState.PROCESSING:
        acted = _ask(tx, job, Request.CANCEL, _changed(tx, job, "cancel", asked))
        return _noted(tx, job, acted, "cancel", asked)
    raise WrongState(job.id, "cancel", job.state.value, "pending and processing")


def bury(tx: Tx, job_id: str, asked: Asked) -> Acted:
    """Move a pending job to the dead letters, or ask the worker of a running one to."""
    job = _known(tx, job_id)
    if job.state is JobState.PROCESSING:
        acted = _ask(tx, job, Request.BURY, _changed(tx, job, "bury", asked))
        return _noted(tx, job, acted, "bury", asked)
    if job.state is not JobState.PENDING:
        raise WrongState(job.id, "bury", job.state.value, "pending and processing")
    error = Error(Reason.CANCELLED, message="moved to the dead letters by hand")
    tx.change(
        "bury",
        seq=job.seq,
        reason=error.reason.value,
        error=rows.error_text(error),
        changes=_changed(tx, job, "bury", asked),
        now=tx.now,
    )
    history.add(tx, {(job.type, DEAD): 1})
    return _noted(tx, job, Acted(job.id, JobState.DEAD), "bury", asked)


def replay(tx: Tx, job_id: str, asked: Asked, edit: Edit | None) -> Acted:
    """Make a dead job pending again, or a waiting one due at once."""
    job = _known(tx, job_id)
    if job.state is JobState.PENDING:
        change = _with_time(edit, tx.now)
        acted = _change(tx, job, change, _changed(tx, job, "replay", asked, edit))
        return _noted(tx, job, acted, "replay", asked, change)
    if job.state is not JobState.DEAD:
        raise WrongState(job.id, "replay", job.state.value, "dead and waiting")
    _retake_name(tx, job)
    _wait_no_more(tx, job)
    anew = edit or Edit()
    run_at = max(to_micros(anew.run_at), tx.now) if anew.run_at else tx.now
    tx.change(
        "replay",
        seq=job.seq,
        due=int(run_at <= tx.now),
        run_at=run_at,
        priority=anew.priority,
        payload=anew.payload.decode() if anew.payload is not None else None,
        schema_version=anew.schema_version,
        changes=_changed(tx, job, "replay", asked, edit),
        now=tx.now,
    )
    history.add(tx, {(job.type, REPLAYED): 1})
    return _noted(tx, job, Acted(job.id, JobState.PENDING), "replay", asked, edit)


def _retake_name(tx: Tx, job: Job) -> None:
    """A dead job runs again: it must have its name back, or it would run beside another one of that name."""
    row = tx.row("unique_of", seq=job.seq)
    if row is None or row["unique_name"] is None:
        return
    name = row["unique_name"]
    tx.row("lock_unique", name=name)
    holder = tx.row("unique_holder", name=name)
    if holder is not None:
        raise UniqueConflict(name, holder["id"], holder["state"])
    tx.change("retake_unique", seq=job.seq)


def discard(tx: Tx, job_id: str, asked: Asked) -> Acted:
    """Close a dead job for good."""
    job = _known(tx, job_id)
    if job.state is not JobState.DEAD:
        raise WrongState(job.id, "discard", job.state.value, "dead")
    acted = end(tx, job, JobState.DISCARDED, _changed(tx, job, "discard", asked))
    return _noted(tx, job, acted, "discard", asked)


def edit(tx: Tx, job_id: str, asked: Asked, change: Edit) -> Acted:
    """Change a pending job."""
    job = _known(tx, job_id)
    if job.state is not JobState.PENDING:
        raise WrongState(job.id, "edit", job.state.value, "pending")
    acted = _change(tx, job, change, _changed(tx, job, "edit", asked, change))
    return _noted(tx, job, acted, "edit", asked, change)


def counts(tx: Tx) -> Counts:
    """How many jobs stand where, by type; due ones by priority, too."""
    found = [_due(row, tx.now) for row in tx.rows("count_due")]
    for row in tx.rows("count_later", now=tx.now, never=END_OF_TIME):
        view = View.DUE if row["due"] else View.RETRYING if row["tried"] else View.SCHEDULED
        view = View.WAITING if row["waits"] else view
        found.append(Count(row["type"], JobState.PENDING, view, row["count"]))
    for row in tx.rows("count_running", now=tx.now):
        stuck = View.STUCK if row["stuck"] else None
        found.append(Count(row["type"], JobState.PROCESSING, stuck, row["count"]))
    found += [Count(row["type"], JobState.DEAD, None, row["count"]) for row in tx.rows("count_dead")]
    ended = tx.rows("count_ended", limit=_MOST_ENDED)
    found += [Count(row["type"], JobState(row["state"]), None, row["count"]) for row in ended]
    return Counts(from_micros(tx.now), found, capped=sum(row["count"] for row in ended) >= _MOST_ENDED)


def _due(row: Row, now: int) -> Count:
    waited = timedelta(microseconds=max(0, now - row["since"]))
    return Count(row["type"], JobState.PENDING, View.DUE, row["count"], waited, row["priority"])


def _known(tx: Tx, job_id: str) -> Job:
    """A job that is to be changed; nobody else changes it before we have."""
    row = tx.row("lock_job", id=job_id)
    job = get_by_id(tx, job_id) if row is None else rows.live_job(row)
    if job is None:
        raise JobNotFound(job_id)
    return job


def end(tx: Tx, job: Job, state: JobState, changes: str) -> Acted:
    """End a job that nobody runs."""
    tx.change(
        "end_idle", seq=job.seq, state=state.value, expected=job.state.value, changes=changes, now=tx.now
    )
    tx.change("remove_idle", seq=job.seq, expected=job.state.value)
    history.add(tx, {(job.type, state.value): 1})
    return Acted(job.id, state)


def _ask(tx: Tx, job: Job, request: Request, changes: str) -> Acted:
    tx.change("request", seq=job.seq, request=request.value, changes=changes, now=tx.now)
    return Acted(job.id, job.state, done=False)


def _change(tx: Tx, job: Job, change: Edit, changes: str) -> Acted:
    run_at = None if change.run_at is None else max(to_micros(change.run_at), tx.now)
    if run_at is not None:
        _wait_no_more(tx, job)
    tx.change(
        "edit",
        seq=job.seq,
        priority=change.priority,
        run_at=run_at,
        due=None if run_at is None else int(run_at <= tx.now),
        payload=change.payload.decode() if change.payload is not None else None,
        schema_version=change.schema_version,
        changes=changes,
        now=tx.now,
    )
    return Acted(job.id, JobState.PENDING)


def _wait_no_more(tx: Tx, job: Job) -> None:
    """Whoever says when a job runs says that it need not wait for others."""
    tx.change("forget_parents", id=job.id)
    tx.change("wait_no_more", id=job.id)


def _with_time(edit: Edit | None, now: int) -> Edit:
    anew = edit or Edit()
    return Edit(
        priority=anew.priority,
        run_at=anew.run_at or from_micros(now),
        payload=anew.payload,
        schema_version=anew.schema_version,
    )


def _changed(tx: Tx, job: Job, verb: str, asked: Asked, edit: Edit | None = None) -> str:
    """The job's changes with this one behind them; a payload that is replaced is kept."""
    before = msgspec.json.decode(job.payload) if edit is not None and edit.payload is not None else None
    change = Change(from_micros(tx.now), verb, asked.by, asked.why, before, asked.request_id)
    return rows.changes_text((*job.changes, change))


def _noted(tx: Tx, job: Job, acted: Acted, verb: str, asked: Asked, change: Edit | None = None) -> Acted:
    """The same, with a line in the audit log. Payloads stay out of it: the job's own record keeps them."""
    before: dict[str, object] = {"state": job.state}
    after: dict[str, object] = {"state": acted.state} if acted.done else {"state": acted.state, "asked": True}
    if change is not None and change.priority is not None:
        before["priority"], after["priority"] = job.priority, change.priority
    if change is not None and change.run_at is not None:
        before["run_at"], after["run_at"] = job.run_at, change.run_at
    if change is not None and change.payload is not None:
        after["payload"] = "changed"
    access.note(tx, verb, "job", job.id, by=asked.by, why=asked.why, before=before, after=after)
    return acted
