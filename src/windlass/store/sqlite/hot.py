"""The hot path on SQLite: enqueue, claim and settle jobs, by as few statements as it takes."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from windlass.checks import check_moment
from windlass.clock import END_OF_TIME, from_micros, span, to_micros
from windlass.errors import LeaseLost, Refused, StoreUnavailable, must_be
from windlass.job import JobState, Request
from windlass.outcome import Done
from windlass.store import chains, keys, limits, oncall, rows, running
from windlass.store.engine import Claimed, Enqueued, Unstorable, Want
from windlass.store.keys import existing, found, of_batch
from windlass.store.lanes import Lanes, claimable, in_order, next_due
from windlass.store.rows import Kind, Write, attempts, carried_out, storable_settlement, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windlass.job import NewJob
    from windlass.store.engine import Row
    from windlass.store.sqlite.connection import SqliteTx

    _Row = tuple[object, ...]
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from windlass.job import Attempt, Lease
    from windlass.outcome import Outcome
    from windlass.store.engine import Settlement, Tx
    from windlass.store.lanes import Candidate
    from windlass.store.limits import LimitState


# So few are written faster one by one; and so many at once, that nobody needs much memory for them.
_FEWEST_TOGETHER = 3
_STRETCH = 100
# Of as many rows, or fewer than the smaller one: each number is a statement of its own.
_ROWS = (100, 10)


def enqueue(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Insert all jobs, or raise and (by the transaction) insert none."""
    if any(new.unique is not None for new in jobs):
        return keys.enqueue_unique(tx, jobs, enqueue)
    if len(jobs) < _FEWEST_TOGETHER or not all(_is_plain(new) for new in jobs):
        return _enqueue_each(tx, jobs)
    stretches = [jobs[start : start + _STRETCH] for start in range(0, len(jobs), _STRETCH)]
    return [done for stretch in stretches for done in _enqueue_stretch(tx, stretch)]


def enqueue_by_end(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """The same for jobs that are enqueued by another one's end: also when nobody else may any more."""
    tx.change("pass_seal", passing=1)
    done = enqueue(tx, jobs)
    tx.change("pass_seal", passing=0)
    return done


def enqueue_alone(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
    """One job for which `goes_alone`, by one statement; None: its id is known after all."""
    [new], now = jobs, tx.now
    run_at = _run_at(tx, new)
    row = (now, now, now, int(run_at <= now), run_at, *rows.new_values(new))
    if not tx.insert("enqueue_alone", [row]):
        return None
    return [Enqueued(new.id, None, created=True, due=run_at <= now)]


def goes_alone(jobs: Sequence[NewJob]) -> bool:
    """Whether all that is to be written is one row, which nobody can have sent before."""
    if len(jobs) != 1:
        return False
    [new] = jobs
    plain = new.key is None and not new.own_id and not new.depends_on
    return new.fresh and new.unique is None and plain


def _is_plain(new: NewJob) -> bool:
    """Whether nothing but its row is to be written."""
    return new.key is None and not new.own_id and not new.depends_on


def _enqueue_stretch(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """All with one statement; if one is known or cannot be stored, one after the other tells which."""
    times = [_run_at(tx, new) for new in jobs]
    try:
        with tx.part():
            _insert_together(tx, jobs, times)
    except (_Known, Unstorable, UnicodeError, OverflowError):
        return _enqueue_each(tx, jobs)
    return [
        Enqueued(new.id, None, created=True, due=run_at <= tx.now)
        for new, run_at in zip(jobs, times, strict=True)
    ]


class _Known(Exception):
    """A job was sent before."""


def _insert_together(tx: SqliteTx, jobs: Sequence[NewJob], times: Sequence[int]) -> None:
    now, highest = tx.now, tx.row("highest_seq")
    numbers = count(_after(highest))
    values = [
        (seq, now, now, now, int(run_at <= now), run_at, *rows.new_values(new))
        for seq, new, run_at in zip(numbers, jobs, times, strict=False)
    ]
    if sum(tx.insert("enqueue_together", some) for some in _in_rows(values)) < len(jobs):
        raise _Known
    repeatable = [new.id for new in jobs if not new.fresh]
    if repeatable and tx.row("any_ended", ids=rows.json_text(repeatable)) is not None:
        raise _Known


def _after(highest: Row | None) -> int:
    return 1 + ((highest["seq"] if highest else None) or 0)


def _in_rows(values: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    """As many at a time as there are statements for."""
    start = 0
    while start < len(values):
        left = len(values) - start
        step = next((rows for rows in _ROWS if rows <= left), left)
        yield values[start : start + step]
        start += step


def _enqueue_each(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    done: list[Enqueued] = []
    for new in jobs:
        with of_batch(jobs, new):
            done.append(_enqueue_one(tx, new))
    return done


def _enqueue_one(tx: SqliteTx, new: NewJob) -> Enqueued:
    if new.key is not None:
        holder = keys.take(tx, new)
        if holder is not None:
            return found(holder)
    run_at = _run_at(tx, new)
    row = tx.row(
        "enqueue",
        due=int(run_at <= tx.now),
        run_at=run_at,
        now=tx.now,
        **dict(zip(rows.NEW, rows.new_values(new), strict=True)),
    )
    if row is None:
        return existing(new, keys.get_by_id(tx, new.id))
    ended = None if new.fresh else tx.row("by_id_ended", id=new.id)
    if ended is not None:
        # Sent again after its job has ended: it must not run a second time.
        tx.change("remove_new", id=new.id)
        return existing(new, rows.ended_job(ended))
    if new.depends_on:
        return chains.attach(tx, new)
    return Enqueued(new.id, new.key, created=True, due=run_at <= tx.now)


def _run_at(tx: SqliteTx, new: NewJob) -> int:
    if new.run_at is not None:
        # A time that has passed means now; since then it waits.
        return max(to_micros(check_moment("at", new.run_at)), tx.now)
    run_at = tx.now + (span(new.delay) if new.delay is not None else 0)
    if run_at >= END_OF_TIME:
        raise must_be("delay", new.delay, "within the calendar, which ends with the year 9999")
    return run_at


_PROMOTED_AT_ONCE = 1000


def claim_once(tx: SqliteTx, want: Want, limit_state: LimitState | None) -> Claimed:
    """Claim, once for each request, from the file that knows the worker and from no other.

    `limit_state`: how the limits stood at the look before, where some of the types are restricted.
    """
    if want.generation is not None and want.generation != tx.generation:
        raise StoreUnavailable(
            f"the store's file was replaced, and worker {want.worker} has not joined the new file yet; "
            "nothing was claimed: ask again"
        )
    if want.mark is not None and (claimed := running.claimed_before(tx, want)):
        return claimed
    return claim(tx, want) if limit_state is None else claim_within_limits(tx, want, limit_state)


def claim(tx: Tx, want: Want) -> Claimed:
    """Take up to `want.limit` due jobs, at a cost that does not depend on what is not claimable."""
    if want.reader:
        _offer_unread(tx, want)
    picked: list[Candidate] = []
    for name, known in want.types.items():
        tx.change("promote_type", type=name, now=tx.now, limit=_PROMOTED_AT_ONCE)
        picked += Lanes(tx, name, known, after=want.turns.get(name, "")).first(want.limit)
    picked = in_order(picked, want.turns)[: want.limit]
    if not picked:
        return Claimed([], next_due(tx, want.types))
    place: dict[int, int] = {}
    for candidate in picked:
        place[candidate.seq] = len(place)
    seqs, lease = rows.json_text([*place]), span(want.lease)
    tx.change("claim", picked=seqs, worker=want.worker, mark=want.mark, lease=lease, now=tx.now)
    [told] = tx.rows("claimed", picked=seqs)
    taken = rows.taken_from(told["taken"])
    if len(taken) > 1:
        taken.sort(key=lambda each: place[each.seq])
    leases = rows.leases_of(taken, worker=want.worker, now=tx.now, until=tx.now + lease)
    return Claimed(leases, next_due(tx, want.types))


def claim_within_limits(tx: Tx, want: Want, limit_state: LimitState) -> Claimed:
    """The same where some of the types are restricted; what was seen before only tells where to look."""
    if want.reader:
        _offer_unread(tx, want)
        # What was just offered was not due when somebody looked.
        limit_state = limits.look(tx, want)
    return limits.claim(tx, want, limit_state, promote=_promote, plain=claim)


def nothing_to_claim(tx: Tx, want: Want) -> Claimed | None:
    """The answer to a claim that would find nothing, without a write; None if it may find something."""
    if want.mark is not None and (claimed := running.claimed_before(tx, want)):
        return claimed
    return None if want.reader or claimable(tx, want.types) else Claimed([], next_due(tx, want.types))


def nothing_within_limits(tx: Tx, want: Want) -> Claimed | LimitState:
    """The same where some of the types are restricted; how their limits stand, if it may find something."""
    if want.mark is not None and (claimed := running.claimed_before(tx, want)):
        return claimed
    free = {name: version for name, version in want.types.items() if name not in want.restricted}
    limit_state = limits.look(tx, want)
    outlook = limits.Outlook(want, limit_state, tx.now)
    if want.reader or outlook.ready or claimable(tx, free):
        return limit_state
    return Claimed([], next_due(tx, free), outlook.wait.time, held_back=outlook.held_back)


def _offer_unread(tx: Tx, want: Want) -> None:
    """Jobs that others could not read become due, and are claimed in the same transaction."""
    types = rows.json_text(list(want.types))
    found = tx.rows("unread_for", types=types, reader=want.reader, limit=want.limit)
    seqs = rows.json_text([row["seq"] for row in found])
    tx.change("unread_due", seqs=seqs, now=tx.now)
    tx.change("show_unread", seqs=seqs)


def _promote(tx: Tx, types: Iterable[str]) -> None:
    for job_type in types:
        tx.change("promote_type", type=job_type, now=tx.now, limit=_PROMOTED_AT_ONCE)


# What cannot be stored, or even be written as text, such as half a character; and jobs to be enqueued with a
# completion that stand against what exists.
_REFUSED = (Unstorable, UnicodeError, msgspec.MsgspecError, Refused)
# So few are written faster one by one; so much of what many leave behind is written at once, to save memory.
_FEWEST_SETTLED = 3
_MOST_BYTES_TOGETHER = 1_000_000
# About what an attempt before it left in the job's history: it failed, mostly with a traceback.
_ATTEMPT_BYTES = 5_000


def settle(tx: SqliteTx, settlements: Sequence[Settlement]) -> list[Lease]:
    """Record outcomes; answers the leases that were lost (one settled before is not lost).

    One that cannot be stored fails alone: its job goes to the dead letters, and says why.
    """
    for each in settlements:
        if each.held:
            tx.change("hold_permits", seq=each.lease.job.seq, token=each.lease.token)
    lost: list[Lease] = []
    try:
        with tx.part():
            left = settlements
            if len(settlements) >= _FEWEST_SETTLED:
                left = _complete_together(tx, settlements)
            for each in left:
                if not _settle_one(tx, each):
                    lost.append(each.lease)  # noqa: PERF401 - one frame less for each batch
    except _REFUSED:
        return [each.lease for each in settlements if not _settle_alone(tx, each)]
    return lost


def _complete_together(tx: SqliteTx, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
    """Complete whatever ended well and concerns nobody else, many in two statements; answers the rest."""
    plain = [each for each in settlements if isinstance(each.outcome, Done) and each.plain]
    if len(plain) < _FEWEST_SETTLED:
        return settlements
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
    return result, attempts(told, "completed", output=done.output, missing=done.missing)


def complete(tx: SqliteTx, settlement: Settlement) -> None:
    """Record a completion within a handler's own transaction, or raise: then nothing of it is written."""
    lease = settlement.lease
    moment = from_micros(tx.now)
    write = written(lease, settlement.outcome, settlement.ran, moment, settlement.app)
    if not _WRITES[write.kind](tx, lease, write):
        raise LeaseLost(lease.id)
    if not settlement.plain:
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
        asked = tx.row("standing_request", seq=lease.job.seq, token=lease.token)
        if asked is not None and asked["request"] is not None:
            outcome = carried_out(outcome, Request(asked["request"]))
    write = written(lease, outcome, settlement.ran, from_micros(tx.now), settlement.app)
    if _WRITES[write.kind](tx, lease, write):
        if settlement.enqueues or settlement.check_in is not None:
            _write_beside(tx, settlement)
        if settlement.tokens:
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
            run_at=_put_back_at(tx, write),
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
        run_at=_put_back_at(tx, write),
        now=tx.now,
    )
    return True


def _put_back_at(tx: SqliteTx, write: Write) -> int:
    return min(tx.now + span(write.delay), END_OF_TIME)


_WRITES: dict[Kind, Callable[[SqliteTx, Lease, Write], bool]] = {
    Kind.FINISH: _finish,
    Kind.BURY: _bury,
    Kind.PUT_BACK: _put_back,
    Kind.LEAVE: _leave,
}
