"""How are outcomes recorded, leases moved and lost ones found?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

import msgspec

from windlass.clock import END_OF_TIME, from_micros, span
from windlass.job import Attempt, Error, Lease, Output, Reason, Request
from windlass.outcome import Again, Cancelled, Dead, Done, Outcome, Released, Snoozed
from windlass.store import rows
from windlass.store.transaction import Unstorable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.protocol import Settlement
    from windlass.store.transaction import Tx

# Also what cannot even be written as text, such as half a character.
_UNSTORABLE = (Unstorable, UnicodeError, msgspec.MsgspecError)
_LOST = frozenset({Reason.WORKER_LOST, Reason.LEASE_EXPIRED})


def _last_token(lease: Lease, error: Error | None) -> str | None:
    """What tells a repeated settle that it was done before; the holder of a reaped lease came too late."""
    return None if error is not None and error.reason in _LOST else lease.token


def settle(tx: Tx, settlements: Sequence[Settlement]) -> list[Lease]:
    """Record outcomes; the leases that were lost come back."""
    try:
        with tx.part():
            return [each.lease for each in settlements if not _settle_one(tx, each)]
    except _UNSTORABLE:
        return [each.lease for each in settlements if not _settle_alone(tx, each)]


def _settle_alone(tx: Tx, settlement: Settlement) -> bool:
    """One of a batch in which something cannot be stored: it must not hold up the others."""
    try:
        with tx.part():
            return _settle_one(tx, settlement)
    except _UNSTORABLE as refused:
        outcome = _storable(settlement.outcome, refused)
        return _settle_one(tx, msgspec.structs.replace(settlement, outcome=outcome))


def _storable(outcome: Outcome, refused: Exception) -> Outcome:
    """The same outcome without its own words; a result that cannot be kept must not look like success."""
    error = Error(
        Reason.EXCEPTION, "Unstorable", f"what the attempt left behind could not be stored: {refused}"
    )
    if isinstance(outcome, Done):
        return Dead(error)
    return (
        outcome
        if isinstance(outcome, Snoozed)
        else msgspec.structs.replace(outcome, error=error, output=None)
    )


def _settle_one(tx: Tx, settlement: Settlement) -> bool:
    """Write one outcome, fenced by the lease's token; False if the lease was lost."""
    lease, outcome = settlement.lease, settlement.outcome
    if not isinstance(outcome, Done):
        standing = tx.row("standing_request", seq=lease.job.seq, token=lease.token)
        if standing is not None and standing["request"] is not None:
            outcome = _carried_out(outcome, Request(standing["request"]))
    if _write(tx, lease, outcome, settlement.ran):
        return True
    return tx.row("settled_before", seq=lease.job.seq, token=lease.token) is not None


def _carried_out(outcome: Outcome, request: Request) -> Outcome:
    """A job that would run again although somebody asked to stop it is stopped now."""
    if not isinstance(outcome, (Again, Snoozed, Released)):
        return outcome
    error = getattr(outcome, "error", None) or Error(
        Reason.CANCELLED, message="stopped by an operator's request"
    )
    output = getattr(outcome, "output", None)
    match request:
        case Request.CANCEL:
            return Cancelled(error, output)
        case Request.BURY:
            return Dead(error, output=output)
        case _:
            assert_never(request)


def _write(tx: Tx, lease: Lease, outcome: Outcome, ran: timedelta | None) -> bool:
    match outcome:
        case Done(value, output):
            history = _history(tx, lease, "completed", ran, output=output)
            return _finish(tx, lease, "completed", history, result=value)
        case Cancelled(error, output):
            history = _history(tx, lease, "cancelled", ran, error, output)
            return _finish(tx, lease, "cancelled", history, error=error)
        case Dead(error, why, output):
            history = _history(tx, lease, "dead", ran, error, output)
            return _bury(tx, lease, history, why or error, lost=error.reason in _LOST)
        case Again(delay, error, output):
            history = _history(tx, lease, "retry", ran, error, output)
            return _put_back(tx, lease, history, delay=delay, error=error, lost=error.reason in _LOST)
        case Snoozed(delay):
            return _put_back(tx, lease, lease.job.history, delay=delay, given_back=True, snoozed=True)
        case Released(None, _):
            return _put_back(tx, lease, lease.job.history, given_back=True)
        case Released(error, output):
            history = _history(tx, lease, "released", ran, error, output)
            return _put_back(tx, lease, history, error=error, given_back=True, interrupted=True)
        case _:
            assert_never(outcome)


def _finish(
    tx: Tx,
    lease: Lease,
    state: str,
    history: Sequence[Attempt],
    *,
    error: Error | None = None,
    result: bytes | None = None,
) -> bool:
    moved = tx.change(
        "finish",
        seq=lease.job.seq,
        token=lease.token,
        last_token=_last_token(lease, error),
        state=state,
        reason=error.reason.value if error else None,
        error=rows.error_text(error) if error else None,
        result=result.decode() if result is not None else None,
        history=rows.history_text(history),
        now=tx.now,
    )
    return bool(moved) and bool(tx.change("remove_finished", seq=lease.job.seq, token=lease.token))


def _bury(tx: Tx, lease: Lease, history: Sequence[Attempt], error: Error, *, lost: bool) -> bool:
    return bool(
        tx.change(
            "bury_running",
            seq=lease.job.seq,
            token=lease.token,
            last_token=None if lost else lease.token,
            lost=int(lost),
            reason=error.reason.value,
            error=rows.error_text(error),
            history=rows.history_text(history),
            now=tx.now,
        )
    )


def _put_back(  # noqa: PLR0913 - a row's worth of facts
    tx: Tx,
    lease: Lease,
    history: Sequence[Attempt],
    *,
    delay: timedelta = timedelta(0),
    error: Error | None = None,
    given_back: bool = False,
    snoozed: bool = False,
    interrupted: bool = False,
    lost: bool = False,
) -> bool:
    wait = span(delay)
    return bool(
        tx.change(
            "put_back",
            seq=lease.job.seq,
            token=lease.token,
            due=int(wait <= 0),
            run_at=min(tx.now + wait, END_OF_TIME),
            given_back=int(given_back),
            snoozed=int(snoozed),
            interrupted=int(interrupted),
            last_token=_last_token(lease, error),
            lost=int(lost),
            reason=error.reason.value if error else None,
            error=rows.error_text(error) if error else None,
            history=rows.history_text(history) if history else None,
            now=tx.now,
        )
    )


def _history(
    tx: Tx,
    lease: Lease,
    outcome: str,
    ran: timedelta | None,
    error: Error | None = None,
    output: Output | None = None,
) -> tuple[Attempt, ...]:
    """The job's attempts with this one behind them; only a lease's holder can have added any meanwhile."""
    job = lease.job
    finished = from_micros(tx.now)
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
    )
    return (*job.history, attempt)


def extend(tx: Tx, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
    """Move the leases' end: (kept with their new end, lost)."""
    until = tx.now + span(by)
    end = from_micros(until)
    kept: list[Lease] = []
    lost: list[Lease] = []
    for lease in leases:
        if tx.change("extend", seq=lease.job.seq, token=lease.token, until=until):
            kept.append(msgspec.structs.replace(lease, until=end))
        else:
            lost.append(lease)
    return kept, lost


def held_by(tx: Tx, worker: str) -> list[Lease]:
    """Every lease in a worker's name."""
    return [rows.lease_from(row) for row in tx.rows("held_by", worker=worker)]


def orphans(tx: Tx, limit: int) -> list[Lease]:
    """Leases of workers that are not alive."""
    return [rows.lease_from(row) for row in tx.rows("orphans", limit=limit)]


def expired(tx: Tx, limit: int) -> list[Lease]:
    """Leases past their end."""
    return [rows.lease_from(row) for row in tx.rows("expired", now=tx.now, limit=limit)]
