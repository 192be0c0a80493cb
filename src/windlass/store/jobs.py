"""Find, count, change and end jobs: filters and pages, and what operators do to one job."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass.checks import check_moment, storable
from windlass.clock import END_OF_TIME, from_micros, span, to_micros
from windlass.errors import JobNotFound, UniqueConflict, WrongState, must_be
from windlass.job import ENDED, LIVE, Change, Error, Job, JobState, NewJob, Reason, Request, View
from windlass.store import access, chains, history, rows, running
from windlass.store.engine import Acted, Row, Tx
from windlass.store.history import CONFIRMED, DEAD, REPLAYED
from windlass.store.keys import get_by_id


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


MOST = 1000
# Before an error's class or reason: this one, and no other that has it in its name.
EXACTLY = "="
_FROM_THE_TOP = 2**62

_LATER = "state = 'pending' and run_at > :now and waits_for = 0 and unread_seq is null"
_VIEWS = {
    View.DUE: "state = 'pending' and run_at <= :now",
    View.SCHEDULED: f"{_LATER} and attempts = 0",
    View.RETRYING: f"{_LATER} and attempts > 0",
    View.WAITING: "state = 'pending' and waits_for > 0",
    View.UNREADABLE: "state = 'pending' and run_at > :now and unread_seq is not null",
    View.STUCK: "state = 'processing' and lease_until < :now",
}


def find(
    tx: Tx, where: Filter, *, limit: int = 50, cursor: str | None = None, window: int | None = None
) -> Page:
    """Jobs newest first, live and archived; with a window, only those among the next `window` numbers.

    There may then be a `next` though nothing was found: more numbers to look through.
    """
    if not 1 <= limit <= MOST:
        raise must_be("limit", limit, f"between 1 and {MOST}")
    values: dict[str, object] = {"before": _decode(cursor), "limit": limit + 1, "now": tx.now}
    floor = None if window is None else _floor(tx, _decode(cursor), window)
    found = tx.search(_parts(where), _clauses(tx, where, values, floor), values)
    jobs = [rows.read(Job, row) for row in found[:limit]]
    if len(found) > limit:
        return Page(jobs, _encode(jobs[-1].seq))
    return Page(jobs, None if floor is None else _encode(floor))


def find_after(tx: Tx, where: Filter, *, after: int, upto: int, limit: int) -> tuple[tuple[str, ...], int]:
    """The ids of jobs with numbers above `after`, oldest first, and the number up to which was looked."""
    values: dict[str, object] = {"before": upto + 1, "limit": limit, "now": tx.now}
    found = tx.search(_parts(where), _clauses(tx, where, values, after + 1), values, oldest=True)
    return tuple(row["id"] for row in found), found[-1]["seq"] if len(found) == limit else upto


def _floor(tx: Tx, before: int, window: int) -> int | None:
    """The number down to which a window reaches; None if nothing lies below it."""
    row = tx.row("numbers")
    if row is None or row["lowest"] is None:
        return None
    floor = min(before, row["highest"] + 1) - window
    return floor if floor > row["lowest"] else None


def count(tx: Tx, where: Filter, *, limit: int) -> int:
    """How many jobs match, counted up to `limit`."""
    values: dict[str, object] = {"before": _FROM_THE_TOP, "limit": limit, "now": tx.now}
    return tx.count(_parts(where), _clauses(tx, where, values), values)


def count_next(tx: Tx, where: Filter, *, window: int, cursor: str | None = None) -> Counted:
    """How many of the next `window` numbers match, from the newest down, and where to go on."""
    before = _decode(cursor)
    floor = _floor(tx, before, window)
    values: dict[str, object] = {"before": before, "limit": window, "now": tx.now}
    found = tx.count(_parts(where), _clauses(tx, where, values, floor), values)
    return Counted(found, None if floor is None else _encode(floor))


def _parts(where: Filter) -> list[str]:
    if where.view is not None:
        return ["find_live"]
    if not where.states:
        return ["find_live", "find_ended"]
    live = [state in LIVE for state in where.states]
    return ["find_live"] * any(live) + ["find_ended"] * (not all(live))


def _clauses(tx: Tx, where: Filter, values: dict[str, object], floor: int | None = None) -> str:
    clauses = "".join(f" and {clause}" for clause in _each_clause(tx, where, values))
    if floor is None:
        return clauses
    values["floor"] = floor
    return f"{clauses} and seq >= :floor"


def _each_clause(tx: Tx, where: Filter, values: dict[str, object]) -> Iterator[str]:
    for column, chosen in (("id", where.ids), ("type", where.types)):
        if chosen:
            names = [f"{column}_{number}" for number in range(len(chosen))]
            values.update(zip(names, chosen, strict=True))
            yield f"{column} in ({', '.join(f':{name}' for name in names)})"
    if where.states:
        # In words rather than bound: only so can the index of the dead be used for them.
        yield "(" + " or ".join(f"state = '{state.value}'" for state in where.states) + ")"
    if where.view is not None:
        yield _view(where.view)
    for column in ("tenant", "caller", "batch", "key"):
        wanted = getattr(where, column)
        if wanted is not None:
            values[column] = wanted
            yield f"{column} = :{column}"
    if where.error is not None:
        yield _error(tx, where.error, values)
    if where.older_than is not None:
        values["older"] = tx.now - span(where.older_than)
        yield "created_at < :older"
    for number, (path, value) in enumerate(where.payload.items()):
        _check_plain(path, value)
        yield tx.payload_equals(f"field_{number}", path, value, values)


def _error(tx: Tx, wanted: str, values: dict[str, object]) -> str:
    if wanted.startswith(EXACTLY):
        values["error"] = wanted.removeprefix(EXACTLY)
        return f"coalesce({tx.field('class')}, reason) = :error"
    values["error"] = "%" + wanted.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"
    words = ("reason", *(f"coalesce({tx.field(name)}, '')" for name in ("class", "message")))
    told = " || ' ' || ".join(words)
    return f"lower({told}) like lower(:error) escape '!'"


def _check_plain(path: Sequence[str], value: object) -> None:
    """Only a single value can be compared with a payload's field."""
    plain = value is None or isinstance(value, str | int | float)
    if (
        not plain
        or (isinstance(value, float) and not math.isfinite(value))
        or (isinstance(value, int) and abs(value) >= 2**63)
    ):
        raise must_be("payload." + ".".join(path), value, "a text, a number, true, false or null")


def _view(view: str) -> str:
    if view not in _VIEWS:
        raise must_be("view", view, "one of " + ", ".join(View))
    return _VIEWS[View(view)]


def _encode(seq: int) -> str:
    return base64.urlsafe_b64encode(str(seq).encode()).decode().rstrip("=")


def _decode(cursor: str | None) -> int:
    if cursor is None:
        return _FROM_THE_TOP
    try:
        seq = int(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        raise must_be("cursor", cursor, "the `next` of an earlier page") from None
    return min(max(seq, 0), _FROM_THE_TOP)


def check_cursor(cursor: str, _field: str = "cursor") -> str:
    """The `next` of a page, or InvalidValue."""
    _decode(cursor)
    return cursor


# History must not make the counts slow: ended jobs are counted up to this bound.
_MOST_ENDED = 10_000
# Beside what handlers have done once; no handler can use it, since theirs are not empty.
CONFIRMED_KEY = ""


_LIVE = (JobState.PENDING, JobState.PROCESSING)
_ENDED = (JobState.COMPLETED, JobState.CANCELLED, JobState.DISCARDED)
# Which states a verb is for: checked in its transaction, and what a filter for many jobs is held to.
STATES: dict[str, tuple[JobState, ...]] = {
    "cancel": _LIVE,
    "bury": _LIVE,
    "replay": (JobState.DEAD,),
    "rerun": _ENDED,
    "discard": (JobState.DEAD,),
    "edit": (JobState.PENDING,),
    "confirm": (*_LIVE, JobState.COMPLETED, JobState.DEAD),
}
_INSTEAD = {
    ("replay", JobState.PENDING): "to run it now, use reschedule --now",
    ("rerun", JobState.DEAD): "to run a dead job again, use replay",
    **dict.fromkeys([("replay", state) for state in _ENDED], "to run it once more as a new job, use rerun"),
}


def cancel(tx: Tx, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
    """End a pending job as cancelled, or ask the worker of a running one to."""

    def do(job: Job, changes: str) -> Acted:
        if job.state is JobState.PENDING:
            return chains.end(tx, job, JobState.CANCELLED, changes)
        return _ask(tx, job, Request.CANCEL, changes)

    return _carry_out(tx, job_id, "cancel", do, by=by, why=why, request_id=request_id)


def bury(tx: Tx, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
    """Move a pending job to the dead letters, or ask the worker of a running one to."""

    def do(job: Job, changes: str) -> Acted:
        if job.state is JobState.PROCESSING:
            return _ask(tx, job, Request.BURY, changes)
        error = Error(Reason.CANCELLED, message="moved to the dead letters by hand")
        told = {"reason": error.reason.value, "error": rows.error_text(error)}
        tx.change("bury", seq=job.seq, changes=changes, now=tx.now, **told)
        history.add(tx, {(job.type, DEAD): 1})
        return Acted(job.id, JobState.DEAD)

    return _carry_out(tx, job_id, "bury", do, by=by, why=why, request_id=request_id)


def replay(
    tx: Tx, job_id: str, *, edit: Edit | None = None, by: str = "", why: str = "", request_id: str = ""
) -> Acted:
    """Make a dead job pending again: same row, history kept, attempts from zero."""

    def do(job: Job, changes: str) -> Acted:
        _retake_name(tx, job)
        _wait_no_more(tx, job)
        anew = edit or Edit()
        if anew.payload is not None:
            tx.change("forget_unread", seq=job.seq)
        run_at = max(to_micros(anew.run_at), tx.now) if anew.run_at else tx.now
        told = rows.columns(anew, run_at=run_at, due=int(run_at <= tx.now))
        tx.change("replay", seq=job.seq, changes=changes, now=tx.now, **told)
        history.add(tx, {(job.type, REPLAYED): 1})
        return Acted(job.id, JobState.PENDING)

    return _carry_out(tx, job_id, "replay", do, edit, by=by, why=why, request_id=request_id)


def rerun(tx: Tx, job_id: str, new: NewJob, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
    """Store a job that does once more what an ended one did; its record and the audit log name both."""
    job, _ = _locked(tx, job_id)
    check_state(job, "rerun")
    [done] = tx.enqueue([new])
    if done.created:
        change = Change(from_micros(tx.now), "rerun", by, why, request_id=request_id, job=job.id)
        _change(tx, _locked(tx, done.id)[0], Edit(), rows.changes_text([change]))
        access.note(tx, "rerun", "job", job.id, by=by, why=why, after={"job": done.id})
    return Acted(done.id, JobState.PENDING)


def _retake_name(tx: Tx, job: Job) -> None:
    """A dead job runs again: it must have its name back, or it would run beside another one of that name."""
    row = tx.row("unique_of", seq=job.seq)
    if row is None or row["unique_name"] is None:
        return
    name = row["unique_name"]
    tx.row("lock_unique", name=name)
    holder = tx.row("unique_holder", name=name, caller=job.caller, tenant=job.tenant)
    if holder is not None:
        raise UniqueConflict(name, holder["id"], holder["state"])
    tx.change("retake_unique", seq=job.seq)


def discard(tx: Tx, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
    """Close a dead job for good."""

    def do(job: Job, changes: str) -> Acted:
        return chains.end(tx, job, JobState.DISCARDED, changes)

    return _carry_out(tx, job_id, "discard", do, by=by, why=why, request_id=request_id)


def confirm(tx: Tx, job_id: str) -> bool:
    """Count that a job's effect was acknowledged; once, however often that is told."""
    job, _ = _locked(tx, job_id)
    check_state(job, "confirm")
    if not tx.change("acknowledge", id=job.id, key=CONFIRMED_KEY, now=tx.now):
        return False
    history.add(tx, {(job.type, CONFIRMED): 1})
    return True


def edit(tx: Tx, job_id: str, change: Edit, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
    """Change a pending job's priority, time or payload."""

    def do(job: Job, changes: str) -> Acted:
        return _change(tx, job, change, changes)

    return _carry_out(tx, job_id, "edit", do, change, by=by, why=why, request_id=request_id)


def act(
    tx: Tx,
    job_id: str,
    verb: str,
    states: Sequence[JobState],
    *,
    by: str = "",
    why: str = "",
    request_id: str = "",
) -> Acted:
    """Carry out a verb that is one statement: the SQL section of its name, for a job in one of these states.

    The section binds `seq`, `changes` and `now`.
    """

    def do(job: Job, changes: str) -> Acted:
        tx.change(verb, seq=job.seq, changes=changes, now=tx.now)
        return Acted(job.id, _locked(tx, job_id)[0].state)

    return _carry_out(tx, job_id, verb, do, states=states, by=by, why=why, request_id=request_id)


def _carry_out(
    tx: Tx,
    job_id: str,
    verb: str,
    do: Callable[[Job, str], Acted],
    change: Edit | None = None,
    states: Sequence[JobState] = (),
    **asked: str,
) -> Acted:
    """Do something to a job in one of the verb's states, once for each request, and note who asked for it.

    `do` takes the job and its changes with this one behind them; `asked`: by, why and request_id.
    """
    job, row = _locked(tx, job_id)
    if asked["request_id"] and any(each.request_id == asked["request_id"] for each in job.changes):
        return Acted(job.id, job.state, done=job.request is None)
    check_state(job, verb, states)
    # A payload that is replaced is kept.
    payload = msgspec.json.decode(job.payload) if change is not None and change.payload is not None else None
    record = Change(from_micros(tx.now), verb, before=payload, **asked)
    acted = do(job, rows.changes_text((*job.changes, record)))
    _note(tx, job, acted, verb, change, by=asked["by"], why=asked["why"])
    if row is not None and acted.done and acted.state is not job.state and acted.state in ENDED:
        chains.all_ended(tx, [chains.Ended(job_id, acted.state, row)], tx.enqueue)
    return acted


def counts(tx: Tx) -> Counts:
    """How many jobs stand where, by type; due ones by priority and schema version, too."""
    found = []
    for row in (*tx.rows("count_due"), *tx.rows("count_overdue", now=tx.now)):
        waited = rows.from_span(max(0, tx.now - row["since"]))
        found.append(rows.read(Count, row, state=JobState.PENDING, view=View.DUE, oldest=waited))
    later = tx.rows("count_later", now=tx.now, never=END_OF_TIME)
    found += [rows.read(Count, row, state=JobState.PENDING) for row in later]
    for row in tx.rows("count_running", now=tx.now):
        stuck = View.STUCK if row["stuck"] else None
        found.append(Count(row["type"], JobState.PROCESSING, stuck, row["count"]))
    found += [Count(row["type"], JobState.DEAD, None, row["count"]) for row in tx.rows("count_dead")]
    # How many have ever ended is told by counters. They are flushed once a second, so the newest records are
    # counted, too: of each number the larger one is true.
    records = {(row["type"], row["state"]): row["count"] for row in tx.rows("count_ended", limit=_MOST_ENDED)}
    counters = {(row["type"], row["name"]): row["value"] for row in tx.rows("ended_ever")}
    known = {of: max(records.get(of, 0), counters.get(of, 0)) for of in sorted({*records, *counters})}
    more = sum(records.values()) >= _MOST_ENDED
    capped = more and any(counters.get(of, 0) < count for of, count in records.items())
    found += [Count(name, JobState(state), None, count) for (name, state), count in known.items()]
    return Counts(from_micros(tx.now), found, capped=capped)


def _locked(tx: Tx, job_id: str) -> tuple[Job, Row | None]:
    """A job that is to be changed, and its row if it is live: nobody else changes it before we have."""
    row = tx.row("lock_job", id=job_id) if storable(job_id) else None
    if row is not None:
        return rows.read(Job, row), row
    job = get_by_id(tx, job_id) if storable(job_id) else None
    if job is None:
        raise JobNotFound(job_id)
    return job, None


def check_state(job: Job, verb: str, states: Sequence[JobState] = ()) -> None:
    """WrongState names the states that the verb is for, and the verb for this one."""
    states = states or STATES[verb]
    if job.state not in states:
        *others, last = states
        allowed = f"{', '.join(others)} and {last}" if others else last.value
        raise WrongState(job.id, verb, job.state.value, allowed, _INSTEAD.get((verb, job.state), ""))


def _ask(tx: Tx, job: Job, request: Request, changes: str) -> Acted:
    tx.change("request", seq=job.seq, request=request.value, changes=changes, now=tx.now)
    return Acted(job.id, job.state, done=False)


def _change(tx: Tx, job: Job, change: Edit, changes: str) -> Acted:
    run_at = None if change.run_at is None else max(to_micros(check_moment("run_at", change.run_at)), tx.now)
    if run_at is not None:
        _wait_no_more(tx, job)
    if change.payload is not None:
        if run_at is None and running.of_job(tx, job) is not None:
            # It waited for somebody who could read the payload before this one.
            run_at = tx.now
        tx.change("forget_unread", seq=job.seq)
    due = None if run_at is None else int(run_at <= tx.now)
    told = rows.columns(change, run_at=run_at, due=due)
    tx.change("edit", seq=job.seq, changes=changes, now=tx.now, **told)
    return Acted(job.id, JobState.PENDING)


def _wait_no_more(tx: Tx, job: Job) -> None:
    """Whoever says when a job runs says that it need not wait for others."""
    tx.change("forget_parents", id=job.id)
    tx.change("wait_no_more", id=job.id)


def _note(tx: Tx, job: Job, acted: Acted, verb: str, change: Edit | None, **asked: str) -> None:
    """A line of the audit log. Payloads stay out of it: the job's own record keeps them."""
    before: dict[str, object] = {"state": job.state}
    after: dict[str, object] = {"state": acted.state} if acted.done else {"state": acted.state, "asked": True}
    if change is not None and change.priority is not None:
        before["priority"], after["priority"] = job.priority, change.priority
    if change is not None and change.run_at is not None:
        before["run_at"], after["run_at"] = job.run_at, change.run_at
    if change is not None and change.payload is not None:
        after["payload"] = "changed"
    access.note(tx, verb, "job", job.id, before=before, after=after, **asked)
