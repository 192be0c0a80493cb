"""A stored row of a job as a value, and back: what a claim reads, and what an outcome writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union, assert_never, get_args, get_origin

import msgspec

from windlass.checks import check_moment
from windlass.clock import END_OF_TIME, from_micros, span, to_micros
from windlass.errors import Refused, must_be
from windlass.job import (
    HUNG,
    SUSPECT_AFTER,
    Attempt,
    Change,
    Error,
    Job,
    JobState,
    Lease,
    NewJob,
    Output,
    Reason,
    Request,
)
from windlass.outcome import Again, Cancelled, Dead, Done, Left, Outcome, Released, Snoozed, stopped

if TYPE_CHECKING:
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
    if isinstance(outcome, (Snoozed, Left)):
        return outcome
    return msgspec.structs.replace(outcome, error=error, output=None)


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

    kind: Kind = Kind.PUT_BACK
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
            history = attempts(told, "completed", output=outcome.output, missing=outcome.missing)
            return Write(
                kind=Kind.FINISH,
                state="completed",
                history=_encode(history).decode(),
                result=None if value is None else value.decode(),
                last_token=lease.token,
            )
        case Cancelled(error, output):
            return _failed(told, "cancelled", error, output, kind=Kind.FINISH, state="cancelled")
        case Dead(error, why, output):
            return _failed(told, "dead", error, output, why=why, kind=Kind.BURY)
        case Again(delay, error, output):
            return _failed(told, "retry", error, output, delay=delay)
        case Snoozed(delay):
            return _returned(lease, delay=delay, snoozed=True)
        case Left(ends_in):
            # What is left without an end waits as long as there is time.
            delay = timedelta.max if ends_in is None else ends_in
            return _returned(lease, kind=Kind.LEAVE, left=outcome, delay=delay)
        case Released(error, output):
            if error is None:
                return _returned(lease)
            return _failed(told, "released", error, output, given_back=True, interrupted=True)
        case _:
            assert_never(outcome)


def _failed(
    told: Told, name: str, error: Error, output: Output | None, *, why: Error | None = None, **facts: Any
) -> Write:
    """An attempt with an error.

    The token tells a repeated settle that it was done before; the holder of a reaped lease came too late.
    """
    lost = error.reason in _LOST
    shown = why or error
    return Write(
        history=json_text(attempts(told, name, error, output)),
        last_token=None if lost else told[1].token,
        reason=shown.reason.value,
        error=error_text(shown),
        lost=(SUSPECT_AFTER if error.kind == HUNG else 1) if lost else 0,
        **facts,
    )


def _returned(lease: Lease, **facts: Any) -> Write:
    """A job that is given back as if it had not been claimed."""
    before = lease.job.history
    history = json_text(before) if before else None
    return Write(history=history, last_token=lease.token, given_back=True, **facts)


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


_error = msgspec.json.Decoder(Error)
_encode = msgspec.json.Encoder().encode

# What a producer says of a job: its columns, with their types on PostgreSQL, and their values in that order.
# SQL names them by {new}, the values of one job by {:new}, and arrays of many jobs' values by {new[]}.
_KINDS = {"id": "uuid", "payload": "json", "schema_version": "integer"}
_KINDS |= dict.fromkeys(("priority", "max_attempts"), "smallint")
NEW = {
    name: _KINDS.get(name, "text")
    for name in Job.__struct_fields__
    if name in NewJob.__struct_fields__ and name != "run_at"
}
_new = attrgetter(*NEW)
_PAYLOAD = [*NEW].index("payload")


def new_values(new: NewJob) -> list[str | int | None]:
    """The values of `NEW` for a job."""
    values = [*_new(new)]
    values[_PAYLOAD] = new.payload.decode()
    return values


def run_at(now: int, new: NewJob) -> int:
    """When a new job runs."""
    if new.run_at is not None:
        # A time that has passed means now; since then it waits.
        return max(to_micros(check_moment("at", new.run_at)), now)
    at = now + (span(new.delay) if new.delay is not None else 0)
    if at >= END_OF_TIME:
        raise must_be("delay", new.delay, "within the calendar, which ends with the year 9999")
    return at


# What moves to the archive as it is: SQL names these columns by {kept}.
KEPT = (
    *("seq", *NEW, "batch", "attempts", "claims", "snoozes", "interruptions", "losses", "replay_count"),
    *("created_at", "enqueued_at", "run_at", "started_at", "worker"),
)

# The newest records are kept; what people and attempts leave behind must not grow a row without end.
_MOST_ATTEMPTS = 50
_MOST_CHANGES = 50


S = TypeVar("S", bound=msgspec.Struct)


def read(kind: type[S], row: Row, /, **given: Any) -> S:
    """A struct as its row tells it: each field from the column of its name, unless it is given.

    Times are stored in microseconds, and whatever is no plain value as JSON text.
    """
    stored = dict(row)
    for name, optional, decode in _fields(kind):
        if name in stored and name not in given:
            value = stored[name]
            if value is not None:
                given[name] = value if decode is None else decode(value)
            elif optional:
                given[name] = None
    return kind(**given)


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, bool, Callable[[Any], Any] | None]]:
    """The fields of a struct: the name, whether it may be None, and how a stored value is decoded."""
    found = []
    for field in msgspec.structs.fields(kind):
        hint, optional = field.type, False
        if get_origin(hint) in (Union, UnionType):
            [hint, *others] = [each for each in get_args(hint) if each is not NoneType]
            hint, optional = (Any if others else hint), True
        found.append((field.name, optional, _decoder(hint)))
    return found


def _decoder(hint: Any) -> Callable[[Any], Any] | None:
    if hint in _DECODERS:
        return _DECODERS[hint]
    if get_origin(hint) is Literal:
        return None
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return msgspec.json.Decoder(hint).decode


# A stored length of time.
from_span = partial(timedelta, 0, 0)

_DECODERS: dict[Any, Callable[[Any], Any] | None] = {
    **dict.fromkeys((str, int, Any)),
    bool: bool,
    # Where it must be exact it is stored as text.
    float: float,
    bytes: str.encode,
    datetime: from_micros,
    timedelta: from_span,
    msgspec.Raw: msgspec.Raw,
}


def lease_from(row: Row) -> Lease:
    """A running job's row as the lease that its worker holds."""
    return Lease(read(Job, row), row["token"], row["worker"], from_micros(row["lease_until"]))


# What a claim reads of each job; SQL names these columns by {taken}: what all have, beginning with what the
# claim order is made of, what few have, and the lease's token. The others are the same for all that it took.
_OFTEN = (
    *("priority", "seq", "tenant", "type", "id", "payload", "schema_version", "key", "caller"),
    *("max_attempts", "attempts", "claims", "created_at", "enqueued_at", "run_at"),
)
_SAME = ("state", "updated_at", "started_at", "worker", "lease_until", "result", "unread")
_RARE = [(name, decode) for name, _, decode in _fields(Job) if name not in (*_OFTEN, *_SAME)]
Taken = tuple[Any, ...]


def leases_of(taken: Iterable[Taken], *, worker: str, now: int, until: int) -> list[Lease]:
    """What a claim took. A busy worker spends more on reading jobs than on anything else: no detours here."""
    at, end = from_micros(now), from_micros(until)
    leases = []
    for row in taken:
        (priority, seq, tenant, job_type, job_id, payload, schema_version, key, caller, *others) = row
        (max_attempts, tries, claims, created_at, enqueued_at, run_at, *few, token) = others
        rare: dict[str, Any] = {}
        if any(few):
            for (name, decode), value in zip(_RARE, few, strict=True):
                if value is not None:
                    rare[name] = value if decode is None else decode(value)
        job = Job(
            id=job_id,
            seq=seq,
            type=job_type,
            state=JobState.PROCESSING,
            priority=priority,
            payload=msgspec.Raw(payload),
            schema_version=schema_version,
            key=key,
            caller=caller,
            tenant=tenant,
            max_attempts=max_attempts,
            attempts=tries,
            claims=claims,
            created_at=from_micros(created_at),
            enqueued_at=from_micros(enqueued_at),
            updated_at=at,
            run_at=from_micros(run_at),
            started_at=at,
            worker=worker,
            lease_until=end,
            **rare,
        )
        leases.append(Lease(job, token, worker, end))
    return leases


def columns(value: msgspec.Struct, **given: Any) -> dict[str, Any]:
    """The fields of a struct as they are stored, unless they are given: the way back from `read`."""
    fields = msgspec.structs.asdict(value)
    return {name: _stored(each) for name, each in fields.items() if name not in given} | given


def _stored(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case None | str() | int() | float():
            return value
        case bytes():
            return value.decode()
        case datetime():
            return to_micros(value)
        case timedelta():
            return span(value)
        case _:
            return json_text(value)


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
COLUMNS = {"new": tuple(NEW), "kept": KEPT, "taken": (*_OFTEN, *dict(_RARE), "token")}
