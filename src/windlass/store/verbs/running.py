"""How are outcomes recorded, leases moved and lost ones found?"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import msgspec

from windlass.clock import END_OF_TIME, from_micros, span
from windlass.errors import LeaseLost, Refused
from windlass.job import Attempt, Error, JobState, Lease, Output, Reason, Request
from windlass.outcome import Again, Cancelled, Dead, Done, Outcome, Released, Snoozed, stopped
from windlass.store import rows
from windlass.store.transaction import Unstorable
from windlass.store.verbs import chaining, limiting, producing, signalling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from windlass.store.protocol import Settlement
    from windlass.store.transaction import Tx

# Also what cannot even be written as text, such as half a character.
_UNSTORABLE = (Unstorable, UnicodeError, msgspec.MsgspecError)
# Also jobs to be enqueued with a completion that stand against what exists.
_REFUSED = (*_UNSTORABLE, Refused)
# So few are written faster one by one; so much of what many leave behind is written at once, to save memory.
_FEWEST_TOGETHER = 3
_MOST_BYTES_TOGETHER = 1_000_000
# About what an attempt before it left in the job's history: it failed, mostly with a traceback.
_ATTEMPT_BYTES = 5_000
_LOST = frozenset({Reason.WORKER_LOST, Reason.LEASE_EXPIRED})

# What is told of an attempt: when it ended, under which lease, how long it ran, by which release.
Told: TypeAlias = "tuple[datetime, Lease, timedelta | None, str]"


def settle(tx: Tx, settlements: Sequence[Settlement]) -> list[Lease]:
    """Record outcomes; the leases that were lost come back."""
    limiting.hold(tx, (each.lease for each in settlements if each.held))
    try:
        with tx.part():
            left = _complete_together(tx, settlements)
            return [each.lease for each in left if not _settle_one(tx, each)]
    except _REFUSED:
        return [each.lease for each in settlements if not _settle_alone(tx, each)]


def _complete_together(tx: Tx, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Complete whatever ended well and concerns nobody else, many in two statements; answers the rest."""
    plain = [each for each in settlements if isinstance(each.outcome, Done) and each.plain]
    if len(plain) < _FEWEST_TOGETHER:
        return list(settlements)
    settled: set[str] = set()
    for stretch in _stretches(plain):
        settled |= _completed(tx, stretch)
    return [each for each in settlements if each.lease.token not in settled]


def _stretches(settlements: Sequence[Settlement]) -> Iterator[Sequence[Settlement]]:
    begun = left = 0
    for number, each in enumerate(settlements):
        left += _size(each.outcome) + _ATTEMPT_BYTES * len(each.lease.job.history)
        if left > _MOST_BYTES_TOGETHER:
            yield settlements[begun : number + 1]
            begun, left = number + 1, 0
    if begun < len(settlements):
        yield settlements[begun:]


def _size(done: Outcome) -> int:
    """About how many bytes a handler left behind."""
    assert isinstance(done, Done)  # noqa: S101 - the others are written one by one
    said = 0 if done.output is None else len(done.output.stdout) + len(done.output.stderr)
    return said if done.value is None else said + len(done.value)


def _completed(tx: Tx, settlements: Sequence[Settlement]) -> set[str]:
    """The tokens of those that are completed, now or before; not of jobs whose end concerns others."""
    moment = from_micros(tx.now)
    tokens = [(each.lease.job.seq, each.lease.token) for each in settlements]
    done = [(*fence, *_kept(each, moment)) for fence, each in zip(tokens, settlements, strict=True)]
    moved = tx.change("finish_together", done=rows.json_text(done), now=tx.now)
    ended = rows.json_text(tokens)
    tx.change("remove_finished_together", done=ended)
    if moved == len(settlements):
        return {token for _, token in tokens}
    return {row["last_token"] for row in tx.rows("finished_among", done=ended)}


def _kept(settlement: Settlement, moment: datetime) -> tuple[str | None, tuple[Attempt, ...]]:
    """What a completion leaves behind: its result, as text, and the attempts."""
    done = settlement.outcome
    assert isinstance(done, Done)  # noqa: S101 - the others are written one by one
    told = (moment, settlement.lease, settlement.ran, settlement.app)
    result = None if done.value is None else done.value.decode()
    return result, _attempts(told, "completed", output=done.output)


def complete(tx: Tx, settlement: Settlement) -> None:
    """Record a completion within a handler's own transaction, or raise: then nothing of it is written."""
    lease = settlement.lease
    if not _write(tx, lease, _written(tx, settlement, settlement.outcome)):
        raise LeaseLost(lease.id)
    _write_beside(tx, settlement)


def _settle_alone(tx: Tx, settlement: Settlement) -> bool:
    """One of a batch in which something cannot be stored: it must not hold up the others."""
    try:
        with tx.part():
            return _settle_one(tx, settlement)
    except _REFUSED as refused:
        return _settle_one(tx, storable_settlement(settlement, refused))


def storable_settlement(settlement: Settlement, refused: Exception) -> Settlement:
    """The same without what was refused: no completion without the jobs that belong to it."""
    outcome = storable(settlement.outcome, refused)
    return msgspec.structs.replace(settlement, outcome=outcome, enqueues=(), check_in=None)


def storable(outcome: Outcome, refused: Exception) -> Outcome:
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
            outcome = carried_out(outcome, Request(standing["request"]))
    if _write(tx, lease, _written(tx, settlement, outcome)):
        _write_beside(tx, settlement)
        return True
    return tx.row("settled_before", seq=lease.job.seq, token=lease.token) is not None


def _write_beside(tx: Tx, settlement: Settlement) -> None:
    """What belongs to a completion: jobs that follow it, and a check of what it did."""
    if settlement.enqueues:
        producing.enqueue_by_end(tx, settlement.enqueues)
    if settlement.check_in is not None:
        lease = settlement.lease
        signalling.add_check(tx, lease.id, lease.job.type, settlement.check_in)


def _written(tx: Tx, settlement: Settlement, outcome: Outcome) -> Write:
    return written(settlement.lease, outcome, settlement.ran, from_micros(tx.now), settlement.app)


def carried_out(outcome: Outcome, request: Request) -> Outcome:
    """A job that would run again although somebody asked to stop it is stopped now."""
    if not isinstance(outcome, (Again, Snoozed, Released)):
        return outcome
    return stopped(request, getattr(outcome, "output", None), getattr(outcome, "error", None))


class Kind(Enum):
    """What a settle does to a job's row."""

    FINISH = "finish"
    PUT_BACK = "put_back"
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
    lost: bool = False


def written(lease: Lease, outcome: Outcome, ran: timedelta | None, moment: datetime, app: str = "") -> Write:
    """What is to be written for an outcome at a moment; the same for every store."""
    told = (moment, lease, ran, app)
    match outcome:
        case Done(value, output):
            return Write(
                kind=Kind.FINISH,
                state="completed",
                history=_history(told, "completed", output=output),
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
        lost=lost,
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


def _write(tx: Tx, lease: Lease, write: Write) -> bool:
    match write.kind:
        case Kind.FINISH:
            return _finish(tx, lease, write)
        case Kind.BURY:
            return _bury(tx, lease, write)
        case Kind.PUT_BACK:
            return _put_back(tx, lease, write)
        case _:
            assert_never(write.kind)


def _finish(tx: Tx, lease: Lease, write: Write, *, marked: bool = False) -> bool:
    moved = tx.change(
        "finish",
        seq=lease.job.seq,
        token=lease.token,
        last_token=write.last_token,
        state=write.state,
        reason=write.reason,
        error=write.error,
        result=write.result,
        history=write.history,
        now=tx.now,
        marked=marked,
    )
    if moved:
        return bool(tx.change("remove_finished", seq=lease.job.seq, token=lease.token))
    return not marked and _with_marks(tx, lease, write, _finish, JobState(write.state))


def _bury(tx: Tx, lease: Lease, write: Write, *, marked: bool = False) -> bool:
    buried = tx.change(
        "bury_running",
        seq=lease.job.seq,
        token=lease.token,
        last_token=write.last_token,
        lost=int(write.lost),
        reason=write.reason,
        error=write.error,
        history=write.history,
        now=tx.now,
        marked=marked,
    )
    return bool(buried) or (not marked and _with_marks(tx, lease, write, _bury, JobState.DEAD))


def _with_marks(tx: Tx, lease: Lease, write: Write, end: Callable[..., bool], state: JobState) -> bool:
    """Not found among the plain ones: lost, or a job whose end concerns others. Most jobs never come here."""
    marks = tx.row("marks_of", seq=lease.job.seq, token=lease.token)
    if marks is None or not end(tx, lease, write, marked=True):
        return False
    chaining.ended(tx, lease.id, state, marks, producing.enqueue_by_end)
    return True


def _put_back(tx: Tx, lease: Lease, write: Write) -> bool:
    wait = span(write.delay)
    return bool(
        tx.change(
            "put_back",
            seq=lease.job.seq,
            token=lease.token,
            due=int(wait <= 0),
            run_at=min(tx.now + wait, END_OF_TIME),
            given_back=int(write.given_back),
            snoozed=int(write.snoozed),
            interrupted=int(write.interrupted),
            last_token=write.last_token,
            lost=int(write.lost),
            reason=write.reason,
            error=write.error,
            history=write.history,
            now=tx.now,
        )
    )


def _history(told: Told, outcome: str, error: Error | None = None, output: Output | None = None) -> str:
    return rows.json_text(_attempts(told, outcome, error, output))


def _attempts(
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
