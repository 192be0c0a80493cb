"""How are outcomes written, many completions at a time and the rest one by one?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never

import msgspec

from windlass.clock import END_OF_TIME, from_micros, span
from windlass.errors import LeaseLost, Refused
from windlass.job import JobState, Request
from windlass.outcome import Done
from windlass.store import chains, limits, oncall, rows
from windlass.store.engine import Unstorable
from windlass.store.running import Kind, Write, carried_out, completed_attempts, storable_settlement, written
from windlass.store.sqlite.enqueue import enqueue_by_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from windlass.job import Attempt, Lease
    from windlass.outcome import Outcome
    from windlass.store.engine import Settlement
    from windlass.store.sqlite.connection import SqliteTx

# What cannot be stored, or even be written as text, such as half a character; and jobs to be enqueued with a
# completion that stand against what exists.
_REFUSED = (Unstorable, UnicodeError, msgspec.MsgspecError, Refused)
# So few are written faster one by one; so much of what many leave behind is written at once, to save memory.
_FEWEST_TOGETHER = 3
_MOST_BYTES_TOGETHER = 1_000_000
# About what an attempt before it left in the job's history: it failed, mostly with a traceback.
_ATTEMPT_BYTES = 5_000


def settle(tx: SqliteTx, settlements: Sequence[Settlement]) -> list[Lease]:
    """Record outcomes; the leases that were lost come back."""
    limits.hold(tx, (each.lease for each in settlements if each.held))
    try:
        with tx.part():
            left = _complete_together(tx, settlements)
            return [each.lease for each in left if not _settle_one(tx, each)]
    except _REFUSED:
        return [each.lease for each in settlements if not _settle_alone(tx, each)]


def _complete_together(tx: SqliteTx, settlements: Sequence[Settlement]) -> list[Settlement]:
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


def _completed(tx: SqliteTx, settlements: Sequence[Settlement]) -> set[str]:
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
    return result, completed_attempts(told, done)


def complete(tx: SqliteTx, settlement: Settlement) -> None:
    """Record a completion within a handler's own transaction, or raise: then nothing of it is written."""
    lease = settlement.lease
    if not _write(tx, lease, _written(tx, settlement, settlement.outcome)):
        raise LeaseLost(lease.id)
    _write_beside(tx, settlement)


def _settle_alone(tx: SqliteTx, settlement: Settlement) -> bool:
    """One of a batch in which something cannot be stored: it must not hold up the others."""
    try:
        with tx.part():
            return _settle_one(tx, settlement)
    except _REFUSED as refused:
        return _settle_one(tx, storable_settlement(settlement, refused))


def _settle_one(tx: SqliteTx, settlement: Settlement) -> bool:
    """Write one outcome, fenced by the lease's token; False if the lease was lost."""
    lease, outcome = settlement.lease, settlement.outcome
    if not isinstance(outcome, Done):
        standing = tx.row("standing_request", seq=lease.job.seq, token=lease.token)
        if standing is not None and standing["request"] is not None:
            outcome = carried_out(outcome, Request(standing["request"]))
    if _write(tx, lease, _written(tx, settlement, outcome)):
        _write_beside(tx, settlement)
        limits.return_tokens(tx, settlement.tokens)
        return True
    return tx.row("settled_before", seq=lease.job.seq, token=lease.token) is not None


def _write_beside(tx: SqliteTx, settlement: Settlement) -> None:
    """What belongs to a completion: jobs that follow it, and a check of what it did."""
    if settlement.enqueues:
        enqueue_by_end(tx, settlement.enqueues)
    if settlement.check_in is not None:
        lease = settlement.lease
        oncall.add_check(tx, lease.id, lease.job.type, settlement.check_in)


def _written(tx: SqliteTx, settlement: Settlement, outcome: Outcome) -> Write:
    return written(settlement.lease, outcome, settlement.ran, from_micros(tx.now), settlement.app)


def _write(tx: SqliteTx, lease: Lease, write: Write) -> bool:
    match write.kind:
        case Kind.FINISH:
            return _finish(tx, lease, write)
        case Kind.BURY:
            return _bury(tx, lease, write)
        case Kind.PUT_BACK:
            return _put_back(tx, lease, write)
        case Kind.LEAVE:
            return _leave(tx, lease, write)
        case _:
            assert_never(write.kind)


def _finish(tx: SqliteTx, lease: Lease, write: Write, *, marked: bool = False) -> bool:
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


def _bury(tx: SqliteTx, lease: Lease, write: Write, *, marked: bool = False) -> bool:
    buried = tx.change(
        "bury_running",
        seq=lease.job.seq,
        token=lease.token,
        last_token=write.last_token,
        lost=write.lost,
        reason=write.reason,
        error=write.error,
        history=write.history,
        now=tx.now,
        marked=marked,
    )
    return bool(buried) or (not marked and _with_marks(tx, lease, write, _bury, JobState.DEAD))


def _with_marks(tx: SqliteTx, lease: Lease, write: Write, end: Callable[..., bool], state: JobState) -> bool:
    """Not found among the plain ones: lost, or a job whose end concerns others. Most jobs never come here."""
    marks = tx.row("marks_of", seq=lease.job.seq, token=lease.token)
    if marks is None or not end(tx, lease, write, marked=True):
        return False
    chains.ended(tx, lease.id, state, marks, partial(enqueue_by_end, tx))
    return True


def _put_back(tx: SqliteTx, lease: Lease, write: Write) -> bool:
    return bool(
        tx.change(
            "put_back",
            seq=lease.job.seq,
            token=lease.token,
            due=int(span(write.delay) <= 0),
            run_at=_run_at(tx, write),
            given_back=int(write.given_back),
            snoozed=int(write.snoozed),
            interrupted=int(write.interrupted),
            last_token=write.last_token,
            lost=write.lost,
            reason=write.reason,
            error=write.error,
            history=write.history,
            now=tx.now,
        )
    )


def _leave(tx: SqliteTx, lease: Lease, write: Write) -> bool:
    left = write.left
    assert left is not None  # noqa: S101 - this kind has it
    if not _put_back(tx, lease, write):
        return False
    tx.change(
        "note_unread",
        seq=lease.job.seq,
        type=lease.job.type,
        reader=left.reader,
        field=left.field,
        problem=left.problem,
        run_at=_run_at(tx, write),
        now=tx.now,
    )
    return True


def _run_at(tx: SqliteTx, write: Write) -> int:
    return min(tx.now + span(write.delay), END_OF_TIME)
