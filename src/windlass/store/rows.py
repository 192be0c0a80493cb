"""A stored row of a job as a value, and back: what a claim reads, and what an outcome writes."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import msgspec

from windlass.clock import from_micros
from windlass.errors import Refused
from windlass.job import (
    HUNG,
    LIVE,
    SUSPECT_AFTER,
    Attempt,
    Change,
    Error,
    Job,
    JobState,
    Lease,
    Output,
    Reason,
    Request,
)
from windlass.outcome import Again, Cancelled, Dead, Done, Left, Outcome, Released, Snoozed, stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windlass.job import NewJob
    from windlass.store.engine import Row, Settlement


_LOST = frozenset({Reason.WORKER_LOST, Reason.LEASE_EXPIRED})

# What is told of an attempt: when it ended, under which lease, how long it ran, by which release.
Told: TypeAlias = "tuple[datetime, Lease, timedelta | None, str]"


def storable_settlement(settlement: Settlement, refused: Exception) -> Settlement:
    """The same without what was refused: no completion without the jobs that belong to it."""
    outcome = storable(settlement.outcome, refused)
    if isinstance(outcome, Done) and (settlement.enqueues or isinstance(refused, Refused)):
        outcome = Dead(_unstorable(refused))
    return msgspec.structs.replace(settlement, outcome=outcome, enqueues=(), check_in=None)


def storable(outcome: Outcome, refused: Exception) -> Outcome:
    """The same outcome without its own words; a completed job stays completed, without its result."""
    error = _unstorable(refused)
    if isinstance(outcome, Done):
        return Done(missing=error.message)
    return (
        outcome
        if isinstance(outcome, (Snoozed, Left))
        else msgspec.structs.replace(outcome, error=error, output=None)
    )


def _unstorable(refused: Exception) -> Error:
    return Error(
        Reason.EXCEPTION, "Unstorable", f"what the attempt left behind could not be stored: {refused}"
    )


def carried_out(outcome: Outcome, request: Request) -> Outcome:
    """A job that would run again although somebody asked to stop it is stopped now."""
    if not isinstance(outcome, (Again, Snoozed, Released, Left)):
        return outcome
    return stopped(request, getattr(outcome, "output", None), getattr(outcome, "error", None))


class Kind(Enum):
    """What a settle does to a job's row."""

    FINISH = "finish"
    PUT_BACK = "put_back"
    LEAVE = "leave"
    BURY = "bury"


class Write(msgspec.Struct, kw_only=True):
    """A row's worth of facts: what an outcome leaves behind."""

    kind: Kind
    history: str | None
    last_token: str | None
    state: str = ""
    result: str | None = None
    reason: str | None = None
    error: str | None = None
    delay: timedelta = timedelta(0)
    given_back: bool = False
    snoozed: bool = False
    interrupted: bool = False
    lost: int = 0
    left: Left | None = None


def written(lease: Lease, outcome: Outcome, ran: timedelta | None, moment: datetime, app: str = "") -> Write:
    """What is to be written for an outcome at a moment; the same for every store."""
    told = (moment, lease, ran, app)
    match outcome:
        case Done(value):
            return Write(
                kind=Kind.FINISH,
                state="completed",
                history=json_text(
                    attempts(told, "completed", output=outcome.output, missing=outcome.missing)
                ),
                result=None if value is None else value.decode(),
                last_token=lease.token,
            )
        case Cancelled(error, output):
            history = _attempts_text(told, "cancelled", error, output)
            return _failed(lease, Kind.FINISH, history, error, state="cancelled")
        case Dead(error, why, output):
            history = _attempts_text(told, "dead", error, output)
            return _failed(lease, Kind.BURY, history, error, why=why)
        case Again(delay, error, output):
            history = _attempts_text(told, "retry", error, output)
            return _failed(lease, Kind.PUT_BACK, history, error, delay=delay)
        case Snoozed(delay):
            return _returned(lease, delay=delay, snoozed=True)
        case Left(ends_in):
            # What is left without an end waits as long as there is time.
            delay = timedelta.max if ends_in is None else ends_in
            return msgspec.structs.replace(_returned(lease, delay=delay), kind=Kind.LEAVE, left=outcome)
        case Released(error, output):
            if error is None:
                return _returned(lease)
            history = _attempts_text(told, "released", error, output)
            return _failed(lease, Kind.PUT_BACK, history, error, given_back=True, interrupted=True)
        case _:
            assert_never(outcome)


def _failed(
    lease: Lease, kind: Kind, history: str, error: Error, *, why: Error | None = None, **facts: Any
) -> Write:
    """An attempt with an error.

    The token tells a repeated settle that it was done before; the holder of a reaped lease came too late.
    """
    lost = error.reason in _LOST
    told = why or error
    return Write(
        kind=kind,
        history=history,
        last_token=None if lost else lease.token,
        reason=told.reason.value,
        error=error_text(told),
        lost=(SUSPECT_AFTER if error.kind == HUNG else 1) if lost else 0,
        **facts,
    )


def _returned(lease: Lease, *, delay: timedelta = timedelta(0), snoozed: bool = False) -> Write:
    """A job that is given back as if it had not been claimed."""
    before = lease.job.history
    return Write(
        kind=Kind.PUT_BACK,
        history=json_text(before) if before else None,
        last_token=lease.token,
        delay=delay,
        given_back=True,
        snoozed=snoozed,
    )


def _attempts_text(told: Told, outcome: str, error: Error | None = None, output: Output | None = None) -> str:
    return json_text(attempts(told, outcome, error, output))


def attempts(
    told: Told,
    outcome: str,
    error: Error | None = None,
    output: Output | None = None,
    missing: str | None = None,
) -> tuple[Attempt, ...]:
    """The job's attempts with this one behind them; only a lease's holder can have added any meanwhile.

    `missing` says why a result was not kept.
    """
    finished, lease, ran, app = told
    job = lease.job
    attempt = Attempt(
        number=job.attempts,
        claim=job.claims,
        worker=lease.worker,
        started_at=job.started_at or finished,
        finished_at=finished,
        seconds=None if ran is None else round(ran.total_seconds(), 6),
        outcome=outcome,
        error=error,
        output=output,
        app=app,
        result_missing=missing,
    )
    return (*job.history, attempt)[-_MOST_ATTEMPTS:]


_history = msgspec.json.Decoder(tuple[Attempt, ...])
_changes = msgspec.json.Decoder(tuple[Change, ...])
_error = msgspec.json.Decoder(Error)
_encode = msgspec.json.Encoder().encode
_STATES = {state.value: state for state in JobState}

# What a producer says of a job: its columns, with their types on PostgreSQL, and their values in that order.
# SQL names them by {new}, the values of one job by {:new}, and arrays of many jobs' values by {new[]}.
NEW = {
    "id": "uuid",
    "type": "text",
    "payload": "json",
    "priority": "smallint",
    "tenant": "text",
    "schema_version": "integer",
    "key": "text",
    "caller": "text",
    "traceparent": "text",
    "max_attempts": "smallint",
}


def new_values(new: NewJob) -> tuple[str | int | None, ...]:
    """The values of `NEW` for a job."""
    return (
        new.id,
        new.type,
        new.payload.decode(),
        new.priority,
        new.tenant,
        new.schema_version,
        new.key,
        new.caller,
        new.traceparent,
        new.max_attempts,
    )


# What moves to the archive as it is: SQL names these columns by {kept}.
KEPT = (
    "seq",
    *NEW,
    "batch",
    "attempts",
    "claims",
    "snoozes",
    "interruptions",
    "losses",
    "replay_count",
    "created_at",
    "enqueued_at",
    "run_at",
    "started_at",
    "worker",
)

# The newest records are kept; what people and attempts leave behind must not grow a row without end.
_MOST_ATTEMPTS = 50
_MOST_CHANGES = 50


def lease_from(row: Row) -> Lease:
    """A running job's row as the lease that its worker holds."""
    return Lease(live_job(row), row["token"], row["worker"], from_micros(row["lease_until"]))


class Taken(msgspec.Struct, array_like=True, gc=False):
    """What is a claimed job's own: the other columns are the same for all that one claim took.

    SQL names these columns, in this order, by {taken}.
    """

    seq: int
    id: str
    type: str
    priority: int
    payload: str
    schema_version: int
    key: str | None
    caller: str
    tenant: str
    traceparent: str | None
    max_attempts: int
    attempts: int
    claims: int
    snoozes: int
    interruptions: int
    losses: int
    replay_count: int
    created_at: int
    enqueued_at: int
    run_at: int
    finished_at: int | None
    request: str | None
    error: str | None
    history: str | None
    changes: str | None
    token: str


def leases_of(taken: Iterable[Taken], *, worker: str, now: int, until: int) -> list[Lease]:
    """What a claim took. A busy worker spends more on reading jobs than on anything else: no detours here."""
    at, end = from_micros(now), from_micros(until)
    leases = []
    for each in taken:
        finished, request, error = each.finished_at, each.request, each.error
        job = Job(
            id=each.id,
            seq=each.seq,
            type=each.type,
            state=JobState.PROCESSING,
            priority=each.priority,
            payload=msgspec.Raw(each.payload),
            schema_version=each.schema_version,
            key=each.key,
            caller=each.caller,
            tenant=each.tenant,
            traceparent=each.traceparent,
            max_attempts=each.max_attempts,
            attempts=each.attempts,
            claims=each.claims,
            snoozes=each.snoozes,
            interruptions=each.interruptions,
            losses=each.losses,
            replay_count=each.replay_count,
            created_at=from_micros(each.created_at),
            enqueued_at=from_micros(each.enqueued_at),
            updated_at=at,
            run_at=from_micros(each.run_at),
            started_at=at,
            finished_at=None if finished is None else from_micros(finished),
            worker=worker,
            lease_until=end,
            request=Request(request) if request else None,
            error=_error.decode(error) if error else None,
            history=_history.decode(each.history) if each.history else (),
            changes=_changes.decode(each.changes) if each.changes else (),
        )
        leases.append(Lease(job, each.token, worker, end))
    return leases


def live_job(row: Row) -> Job:
    """A row of the live table."""
    request = row["request"]
    return _job(
        row,
        lease_until=moment(row["lease_until"]),
        request=Request(request) if request else None,
        result=None,
    )


def shown_job(row: Row) -> Job:
    """A row of the live table that also says whether the job is aside because no worker could read it."""
    job = live_job(row)
    return msgspec.structs.replace(job, unread=True) if row["unread"] else job


def ended_job(row: Row) -> Job:
    """A row of the archive."""
    result = row["result"]
    return _job(row, lease_until=None, request=None, result=None if result is None else msgspec.Raw(result))


def found_job(row: Row) -> Job:
    """A row of either table, as `find` gives it."""
    return shown_job(row) if row["state"] in LIVE else ended_job(row)


def _job(
    row: Row, *, lease_until: datetime | None, request: Request | None, result: msgspec.Raw | None
) -> Job:
    return Job(
        id=row["id"],
        seq=row["seq"],
        type=row["type"],
        state=_STATES[row["state"]],
        priority=row["priority"],
        payload=msgspec.Raw(row["payload"]),
        schema_version=row["schema_version"],
        key=row["key"],
        caller=row["caller"],
        tenant=row["tenant"],
        traceparent=row["traceparent"],
        max_attempts=row["max_attempts"],
        attempts=row["attempts"],
        claims=row["claims"],
        snoozes=row["snoozes"],
        interruptions=row["interruptions"],
        losses=row["losses"],
        replay_count=row["replay_count"],
        created_at=from_micros(row["created_at"]),
        enqueued_at=from_micros(row["enqueued_at"]),
        updated_at=from_micros(row["updated_at"]),
        run_at=from_micros(row["run_at"]),
        started_at=moment(row["started_at"]),
        finished_at=moment(row["finished_at"]),
        worker=row["worker"],
        lease_until=lease_until,
        request=request,
        error=error_from(row["error"]),
        result=result,
        history=_history.decode(row["history"]) if row["history"] else (),
        changes=_changes.decode(row["changes"]) if row["changes"] else (),
    )


def error_from(text: str | None) -> Error | None:
    """An error as the job's row carries it."""
    return _error.decode(text) if text else None


def changes_text(changes: Sequence[Change]) -> str:
    """Changes as they are stored, the newest kept."""
    return _encode(changes[-_MOST_CHANGES:]).decode()


def error_text(error: Error) -> str:
    """An error as the job's row carries it: the traceback stays with its attempt."""
    return _encode(msgspec.structs.replace(error, traceback=None)).decode()


def json_text(value: object) -> str:
    """Any of our own values as JSON text."""
    return _encode(value).decode()


def moment(micros: int | None) -> datetime | None:
    """A stored time, where there may be none."""
    return None if micros is None else from_micros(micros)


# What a claim took, as one JSON text.
taken_from = msgspec.json.Decoder(list[Taken]).decode

# The lists of columns that SQL texts take from here, by name.
COLUMNS = {"new": tuple(NEW), "kept": KEPT, "taken": Taken.__struct_fields__}
