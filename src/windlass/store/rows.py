"""A stored row of a job as a value, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from windlass.clock import from_micros
from windlass.job import LIVE, Attempt, Change, Error, Job, JobState, Lease, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from windlass.job import NewJob
    from windlass.store.engine import Row


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


def leases_from(text: str, *, worker: str, now: int, until: int) -> list[Lease]:
    """What a claim took, all at once: a busy worker spends more on reading jobs than on anything else."""
    return leases_of(_taken.decode(text), worker=worker, now=now, until=until)


def leases_of(taken: Iterable[Taken], *, worker: str, now: int, until: int) -> list[Lease]:
    """The same where they came one by one."""
    at, end = from_micros(now), from_micros(until)
    return [Lease(_taken_job(each, worker, at, end), each.token, worker, end) for each in taken]


def _taken_job(taken: Taken, worker: str, at: datetime, end: datetime) -> Job:
    return Job(
        id=taken.id,
        seq=taken.seq,
        type=taken.type,
        state=JobState.PROCESSING,
        priority=taken.priority,
        payload=msgspec.Raw(taken.payload),
        schema_version=taken.schema_version,
        key=taken.key,
        caller=taken.caller,
        tenant=taken.tenant,
        traceparent=taken.traceparent,
        max_attempts=taken.max_attempts,
        attempts=taken.attempts,
        claims=taken.claims,
        snoozes=taken.snoozes,
        interruptions=taken.interruptions,
        losses=taken.losses,
        replay_count=taken.replay_count,
        created_at=from_micros(taken.created_at),
        enqueued_at=from_micros(taken.enqueued_at),
        updated_at=at,
        run_at=from_micros(taken.run_at),
        started_at=at,
        finished_at=moment(taken.finished_at),
        worker=worker,
        lease_until=end,
        request=Request(taken.request) if taken.request else None,
        error=error_from(taken.error),
        history=_history.decode(taken.history) if taken.history else (),
        changes=_changes.decode(taken.changes) if taken.changes else (),
    )


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


def newest(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Those of a job's attempts that are kept."""
    return attempts[-_MOST_ATTEMPTS:]


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


_taken = msgspec.json.Decoder(list[Taken])

# The lists of columns that SQL texts take from here, by name.
COLUMNS = {"new": tuple(NEW), "kept": KEPT, "taken": Taken.__struct_fields__}
