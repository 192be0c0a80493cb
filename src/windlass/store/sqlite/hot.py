"""The hot path on SQLite: enqueue, claim and settle jobs, by as few statements as it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count

import msgspec

from windlass.clock import END_OF_TIME, from_micros, span
from windlass.errors import LeaseLost, Refused, StoreUnavailable
from windlass.job import Job, JobState, Lease, NewJob, Request
from windlass.outcome import Done, Outcome
from windlass.store import chains, keys, limits, oncall, rows, running
from windlass.store.engine import Claimed, Enqueued, Settlement, Tx, Unstorable, Want
from windlass.store.keys import existing, found, of_batch
from windlass.store.lanes import Candidate, Lanes, claimable, in_order, next_due
from windlass.store.limits import LimitState
from windlass.store.rows import Kind, attempts, carried_out, storable_settlement, written
from windlass.store.sqlite.connection import SqliteTx

_Completion = tuple[Settlement, Done]


# So few are written faster one by one; and so many at once, that nobody needs much memory for them.
_FEWEST_TOGETHER = 3
_STRETCH = 100
# Rows of a statement for less than a stretch: each number of rows is a statement of its own.
_ROWS = 10


def enqueue(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Insert all jobs, or raise and (by the transaction) insert none."""
    if any(new.unique is not None for new in jobs):
        return keys.enqueue_unique(tx, jobs, enqueue)
    if len(jobs) < _FEWEST_TOGETHER or not all(map(is_plain, jobs)):
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
    """A fresh job that `is_plain`, by one statement; None: its id is known after all."""
    [new], now = jobs, tx.now
    run_at = rows.run_at(tx.now, new)
    row = (now, now, now, int(run_at <= now), run_at, *rows.new_values(new))
    if not tx.insert("enqueue_alone", [row]):
        return None
    return [Enqueued(new.id, None, created=True, due=run_at <= now)]


def is_plain(new: NewJob) -> bool:
    """Whether nothing but its row is to be written."""
    return new.key is None and new.unique is None and not new.own_id and not new.depends_on


def _enqueue_stretch(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """All with one statement; if one is known or cannot be stored, one after the other tells which."""
    times = [rows.run_at(tx.now, new) for new in jobs]
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
    numbers = count(1 + ((highest and highest["seq"]) or 0))
    values = [
        (seq, now, now, now, int(run_at <= now), run_at, *rows.new_values(new))
        for seq, new, run_at in zip(numbers, jobs, times, strict=False)
    ]
    step = _STRETCH if len(values) == _STRETCH else _ROWS
    some = (values[start : start + step] for start in range(0, len(values), step))
    if sum(tx.insert("enqueue_together", each) for each in some) < len(jobs):
        raise _Known
    repeatable = [new.id for new in jobs if not new.fresh]
    if repeatable and tx.row("any_ended", ids=rows.json_text(repeatable)) is not None:
        raise _Known


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
    run_at = rows.run_at(tx.now, new)
    values = dict(zip(rows.NEW, rows.new_values(new), strict=True))
    row = tx.row("enqueue", due=int(run_at <= tx.now), run_at=run_at, now=tx.now, **values)
    if row is None:
        return existing(new, keys.get_by_id(tx, new.id))
    ended = None if new.fresh else tx.row("by_id_ended", id=new.id)
    if ended is not None:
        # Sent again after its job has ended: it must not run a second time.
        tx.change("remove_new", id=new.id)
        return existing(new, rows.read(Job, ended))
    if new.depends_on:
        return chains.attach(tx, new)
    return Enqueued(new.id, new.key, created=True, due=run_at <= tx.now)


_PROMOTED_AT_ONCE = 1000


def claim_once(tx: SqliteTx, want: Want, limit_state: LimitState | None) -> Claimed:
    """Claim, once for each request, from the file that knows the worker and from no other.

    `limit_state`: how the limits stood at the look before, where some of the types are restricted.
    """
    if want.generation is not None and want.generation != getattr(tx.connection, "generation", 0):
        raise StoreUnavailable(
            f"the store's file was replaced, and worker {want.worker} has not joined the new file yet; "
            "nothing was claimed: ask again"
        )
    if want.mark is not None and (claimed := running.claimed_before(tx, want)):
        return claimed
    if limit_state is None:
        return claim(tx, want)
    if want.reader:
        _offer_unread(tx, want)
        # What was just offered was not due when somebody looked.
        limit_state = limits.look(tx, want)
    return limits.claim(tx, want, limit_state, promote=_promote, plain=claim)


def claim(tx: Tx, want: Want) -> Claimed:
    """Take up to `want.limit` due jobs, at a cost that does not depend on what is not claimable."""
    if want.reader:
        _offer_unread(tx, want)
    picked: list[Candidate] = []
    for name, known in want.types.items():
        tx.change("promote_type", type=name, now=tx.now, limit=_PROMOTED_AT_ONCE)
        picked += Lanes(tx, name, known, want.turns.get(name, "")).first(want.limit)
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
        taken.sort(key=lambda each: place[each[1]])
    leases = rows.leases_of(taken, worker=want.worker, now=tx.now, until=tx.now + lease)
    return Claimed(leases, next_due(tx, want.types))


def look(tx: Tx, want: Want) -> Claimed | LimitState | None:
    """The answer to a claim that would find nothing, without a write.

    Else how the limits stand where some of the types are restricted, or None.
    """
    if want.mark is not None and (claimed := running.claimed_before(tx, want)):
        return claimed
    if not want.restricted and not want.lowest:
        return None if want.reader or claimable(tx, want.types) else Claimed([], next_due(tx, want.types))
    free = {name: version for name, version in want.types.items() if name not in want.restricted}
    limit_state = limits.look(tx, want)
    outlook = limits.Outlook(want, limit_state, tx.now)
    if want.reader or outlook.ready or claimable(tx, free):
        return limit_state
    return Claimed([], next_due(tx, free), outlook.wait, held_back=outlook.held_back)


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
    plain = [(each, each.outcome) for each in settlements if isinstance(each.outcome, Done) and each.plain]
    if len(plain) < _FEWEST_SETTLED:
        return settlements
    settled: set[str] = set()
    for stretch in _stretches(plain):
        settled |= _completed(tx, stretch)
    return [each for each in settlements if each.lease.token not in settled]


def _stretches(settlements: Sequence[_Completion]) -> Iterator[Sequence[_Completion]]:
    """As many at a time as leave about so many bytes behind."""
    begun = left = 0
    for number, (each, done) in enumerate(settlements):
        left += len(done.value or b"") + _ATTEMPT_BYTES * len(each.lease.job.history)
        left += 0 if done.output is None else len(done.output.stdout) + len(done.output.stderr)
        if left > _MOST_BYTES_TOGETHER:
            yield settlements[begun : number + 1]
            begun, left = number + 1, 0
    if begun < len(settlements):
        yield settlements[begun:]


def _completed(tx: SqliteTx, settlements: Sequence[_Completion]) -> set[str]:
    """The tokens of those that are completed, now or before; not of jobs whose end concerns others."""
    moment = from_micros(tx.now)
    tokens, kept = [], []
    for each, done in settlements:
        fence = (each.lease.job.seq, each.lease.token)
        told = (moment, each.lease, each.ran, each.app)
        result = None if done.value is None else done.value.decode()
        tokens.append(fence)
        kept.append((*fence, result, attempts(told, "completed", output=done.output, missing=done.missing)))
    moved = tx.change("finish_together", done=rows.json_text(kept), now=tx.now)
    ended = rows.json_text(tokens)
    tx.change("remove_finished_together", done=ended)
    if moved == len(settlements):
        return {token for _, token in tokens}
    return {row["last_token"] for row in tx.rows("finished_among", done=ended)}


def complete(tx: SqliteTx, settlement: Settlement) -> None:
    """Record a completion within a handler's own transaction, or raise: then nothing of it is written."""
    if not _record(tx, settlement, settlement.outcome):
        raise LeaseLost(settlement.lease.id)


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
    if _record(tx, settlement, outcome):
        return True
    return tx.row("settled_before", seq=lease.job.seq, token=lease.token) is not None


def _record(tx: SqliteTx, settlement: Settlement, outcome: Outcome, *, marked: bool = False) -> bool:
    """Write an outcome and what belongs to it, fenced by the lease's token; False: not such a lease."""
    lease, now = settlement.lease, tx.now
    write = written(lease, outcome, settlement.ran, from_micros(now), settlement.app)
    fence = {"seq": lease.job.seq, "token": lease.token}
    run_at = min(now + span(write.delay), END_OF_TIME)
    told = msgspec.structs.asdict(write) | {"run_at": run_at, "due": run_at <= now, "marked": marked}
    if not tx.change(_STATEMENTS[write.kind], now=now, **fence, **told):
        # Lost, or a job whose end concerns others. Most jobs never come here.
        marks = None if marked or write.kind not in _ENDS else tx.row("marks_of", **fence)
        if marks is None or not _record(tx, settlement, outcome, marked=True):
            return False
        ended = chains.Ended(lease.id, JobState(write.state or "dead"), marks)
        chains.all_ended(tx, [ended], partial(enqueue_by_end, tx))
        return True
    if write.kind is Kind.FINISH:
        tx.change("remove_finished", **fence)
    if write.left is not None:
        left = msgspec.structs.asdict(write.left)
        tx.change("note_unread", seq=lease.job.seq, type=lease.job.type, run_at=run_at, now=now, **left)
    if settlement.enqueues:
        enqueue_by_end(tx, settlement.enqueues)
    if settlement.check_in is not None:
        oncall.add_check(tx, lease.id, lease.job.type, settlement.check_in)
    if settlement.tokens:
        limits.return_tokens(tx, settlement.tokens)
    return True


_ENDS = (Kind.FINISH, Kind.BURY)
_STATEMENTS = {
    Kind.FINISH: "finish",
    Kind.BURY: "bury_running",
    Kind.PUT_BACK: "put_back",
    Kind.LEAVE: "put_back",
}
