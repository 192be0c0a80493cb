"""What does an outcome leave behind, and which leases are held or lost?"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import msgspec

from windlass.errors import Refused
from windlass.job import HUNG, SUSPECT_AFTER, Attempt, Error, Lease, Output, Reason, Request
from windlass.outcome import Again, Cancelled, Dead, Done, Left, Outcome, Released, Snoozed, stopped
from windlass.store import rows
from windlass.store.verbs import breaking

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.store.protocol import Settlement
    from windlass.store.transaction import Tx

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
                history=rows.json_text(completed_attempts(told, outcome)),
                result=None if value is None else value.decode(),
                last_token=lease.token,
            )
        case Cancelled(error, output):
            history = _history(told, "cancelled", error, output)
            return _failed(lease, Kind.FINISH, history, error, state="cancelled")
        case Dead(error, why, output):
            history = _history(told, "dead", error, output)
            return _failed(lease, Kind.BURY, history, error, why=why)
        case Again(delay, error, output):
            history = _history(told, "retry", error, output)
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
            history = _history(told, "released", error, output)
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
        error=rows.error_text(told),
        lost=(SUSPECT_AFTER if error.kind == HUNG else 1) if lost else 0,
        **facts,
    )


def _returned(lease: Lease, *, delay: timedelta = timedelta(0), snoozed: bool = False) -> Write:
    """A job that is given back as if it had not been claimed."""
    before = lease.job.history
    return Write(
        kind=Kind.PUT_BACK,
        history=rows.json_text(before) if before else None,
        last_token=lease.token,
        delay=delay,
        given_back=True,
        snoozed=snoozed,
    )


def _history(told: Told, outcome: str, error: Error | None = None, output: Output | None = None) -> str:
    return rows.json_text(attempts(told, outcome, error, output))


def attempts(
    told: Told, outcome: str, error: Error | None = None, output: Output | None = None
) -> tuple[Attempt, ...]:
    """The job's attempts with this one behind them; only a lease's holder can have added any meanwhile."""
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
    )
    return rows.newest((*job.history, attempt))


def completed_attempts(told: Told, done: Done) -> tuple[Attempt, ...]:
    """The job's attempts, the last of them completed; it tells why the result is missing, if it is."""
    found = attempts(told, "completed", output=done.output)
    if done.missing is None:
        return found
    return (*found[:-1], msgspec.structs.replace(found[-1], result_missing=done.missing))


def note_hang(tx: Tx, seq: int, token: str, hang: Error | None) -> None:
    """Keep why a running job's worker does not answer, for its reaper; None: it answers again."""
    row = tx.row("running_job", seq=seq, token=token)
    if row is not None:
        job = rows.live_job(row)
        history = job.history
        breaking.note_hang(tx, job, hangs=hang is not None)
        before = history[-1].error if history else None
        error = rows.json_text(hang) if hang else rows.error_text(before) if before else None
        tx.change("note_hang", seq=seq, token=token, error=error)


def held_by(tx: Tx, worker: str) -> list[Lease]:
    """Every lease in a worker's name."""
    return [rows.lease_from(row) for row in tx.rows("held_by", worker=worker)]


def orphans(tx: Tx, *, limit: int) -> list[Lease]:
    """Leases whose worker is declared dead, stopped, or unknown."""
    return [rows.lease_from(row) for row in tx.rows("orphans", limit=limit)]


def expired(tx: Tx, *, limit: int) -> list[Lease]:
    """Leases past their end, the longest past first."""
    return [rows.lease_from(row) for row in tx.rows("expired", now=tx.now, limit=limit)]
