"""How is work accepted, by as few statements as it takes?"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from windlass.checks import check_moment
from windlass.clock import END_OF_TIME, span, to_micros
from windlass.errors import must_be
from windlass.store import chains, keys, rows
from windlass.store.engine import Enqueued, Unstorable
from windlass.store.keys import existing, found, of_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windlass.job import NewJob
    from windlass.store.engine import Row
    from windlass.store.sqlite.connection import SqliteTx

    _Row = tuple[object, ...]


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
    if not tx.insert("enqueue_alone", [_row(new, run_at, now)]):
        return None
    return [Enqueued(new.id, None, created=True, due=run_at <= now)]


def goes_alone(jobs: Sequence[NewJob]) -> bool:
    """Whether all that is to be written is one row, which nobody can have sent before."""
    return len(jobs) == 1 and jobs[0].fresh and jobs[0].unique is None and _is_plain(jobs[0])


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
    values = [(seq, *_row(new, run_at, now)) for seq, new, run_at in zip(numbers, jobs, times, strict=False)]
    if sum(tx.insert("enqueue_together", some) for some in _in_rows(values)) < len(jobs):
        raise _Known
    repeatable = [new.id for new in jobs if not new.fresh]
    if repeatable and tx.row("any_ended", ids=rows.json_text(repeatable)) is not None:
        raise _Known


def _row(new: NewJob, run_at: int, now: int) -> _Row:
    """What is written of a plain job, in the order of the statements."""
    return (now, now, now, int(run_at <= now), run_at, *rows.new_values(new))


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
