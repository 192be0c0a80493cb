"""How is work accepted, thousands in a statement, each once and all or none?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.checks import check_moment
from windlass.clock import END_OF_TIME, SystemClock, span, to_micros
from windlass.errors import KeyConflict, must_be
from windlass.store import chains, keys, rows
from windlass.store.engine import Enqueued
from windlass.store.keys import existing, found, of_batch
from windlass.store.postgres.arrays import numbers, sparse, texts, words
from windlass.store.postgres.listener import CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windlass.job import Job, NewJob
    from windlass.store.postgres.session import PostgresTx

_TRIES = 5
_STRETCH = 2_000
_FEW = 10
_UNTOLD = {"channel": None, "hint": None}

_Key = tuple[str, str]


def is_plain(jobs: Sequence[NewJob]) -> bool:
    """Whether nobody can know these ids yet, so that one statement is enough."""
    return not any(new.own_id or new.depends_on or new.unique for new in jobs)


def may_be_first(jobs: Sequence[NewJob]) -> bool:
    """Whether a worker may be told of these before they are durable.

    It may even claim them: its claim then waits for the disk, and they stand there before it. But nobody else
    may be answered with them, so they have no keys; and it is only worth while for few.
    """
    return len(jobs) <= _FEW and all(new.key is None and _is_due(new) for new in jobs)


def enqueue_first(tx: PostgresTx, jobs: Sequence[NewJob], hint: str) -> list[Enqueued]:
    """Insert jobs that may be first, and tell whoever listens with the commit. Not durable before a flush."""
    tx.change("enqueue_new", now=tx.given, channel=CHANNEL, hint=hint, **_columns(jobs))
    # Nobody has to be told any more.
    return [Enqueued(new.id, None, created=True, due=False) for new in jobs]


def flush(tx: PostgresTx) -> None:
    """Wait until all that was committed before is durable."""
    # Without a row nothing would be written, and nothing waited for.
    [_] = tx.rows("flush")


def enqueue_new(tx: PostgresTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Insert jobs whose keys and ids are new; the statement fails if one is not."""
    if any(new.key is not None for new in jobs):
        tx.change("enqueue_keyed", now=tx.given, **_columns(jobs))
    elif len(jobs) <= _STRETCH:
        tx.change("enqueue_new", now=tx.given, **_UNTOLD, **_columns(jobs))
    else:
        _enqueue_stretches(tx, jobs)
    return [_created(new) for new in jobs]


def _enqueue_stretches(tx: PostgresTx, jobs: Sequence[NewJob]) -> None:
    """All in one transaction; while the server inserts one stretch, the next is written down here."""
    with tx.pipeline(), tx.part():
        for start in range(0, len(jobs), _STRETCH):
            tx.sent("enqueue_new", {"now": tx.given, **_UNTOLD, **_columns(jobs[start : start + _STRETCH])})


def enqueue(tx: PostgresTx, jobs: Sequence[NewJob], *, repeated: bool) -> list[Enqueued]:
    """The same within a transaction, with a closer look at what is known already.

    `repeated`: the very same call may have been written before, so ids of our own may have ended, too.
    """
    if any(new.unique is not None for new in jobs):
        return keys.enqueue_unique(tx, jobs, lambda _, plain: enqueue(tx, plain, repeated=repeated))
    answers = _by_key(tx, jobs)
    fresh = _first_of_each(jobs, answers)
    inserted = {row["id"] for row in tx.rows("enqueue_missing", now=tx.given, **_columns(fresh))}
    doubtful = [new.id for new in fresh if new.id in inserted and (new.own_id or repeated)]
    ended = _ended(tx, doubtful) if doubtful else {}
    for job_id in ended:
        tx.change("remove_new", id=job_id)
    known = _jobs(tx, [new.id for new in fresh if new.id not in inserted]) | ended
    if known or len(fresh) < len(jobs):
        # Known is not yet safe: what is answered with must be on the replica as well, and what we ourselves
        # wrote before may not even be on the disk.
        if repeated:
            flush(tx)
        else:
            tx.rows("confirm")
    for new in fresh:
        made = new.id in inserted and new.id not in known
        with of_batch(jobs, new):
            answers[id(new)] = _created(new) if made else existing(new, known.get(new.id))
            if made and new.depends_on:
                answers[id(new)] = chains.attach(tx, new)
    return _in_order(jobs, answers, {_name(new): new for new in fresh})


def enqueue_jobs(tx: PostgresTx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """As it is asked for within a transaction of another verb."""
    return enqueue(tx, jobs, repeated=False)


def _first_of_each(jobs: Sequence[NewJob], answered: Mapping[int, Enqueued]) -> list[NewJob]:
    """Each id or key that is new once; a key that stands twice must stand for the same work."""
    first: dict[object, NewJob] = {}
    for new in jobs:
        if id(new) in answered:
            continue
        twin = first.setdefault(_name(new), new)
        if new.key is not None and twin.digest() != new.digest() and not new.take_existing:
            with of_batch(jobs, new):
                raise KeyConflict(new.key, twin.id)
    return list(first.values())


def _in_order(
    jobs: Sequence[NewJob], answers: dict[int, Enqueued], first: dict[object, NewJob]
) -> list[Enqueued]:
    """The answers to a batch; what stands in it twice was made once."""
    told: set[int] = set()
    answered: list[Enqueued] = []
    for new in jobs:
        answer = answers.get(id(new))
        if answer is None or (answer.created and id(new) in told):
            twin = first[_name(new)]
            with of_batch(jobs, new):
                answer = existing(new, twin) if new.key is None else found(twin)
        told.add(id(new))
        answered.append(answer)
    return answered


def _name(new: NewJob) -> object:
    return new.id if new.key is None else (new.scope, new.key)


# --- keys ---------------------------------------------------------------------------------------


def _by_key(tx: PostgresTx, jobs: Sequence[NewJob]) -> dict[int, Enqueued]:
    """Take the keys of a batch, or answer with the jobs that have them, by the rules of `keys.py`."""
    wanted: dict[_Key, NewJob] = {}
    for new in jobs:
        if new.key is not None:
            wanted.setdefault((new.scope, new.key), new)
    of_tenants = {place: new for place, new in wanted.items() if new.tenant}
    held = _take(tx, of_tenants, 1)
    held |= _held_before(tx, {place: new for place, new in of_tenants.items() if place not in held})
    held |= _take(tx, {place: new for place, new in wanted.items() if not new.tenant}, 0)
    answers: dict[int, Enqueued] = {}
    for new in jobs:
        holder = None if new.key is None else held.get((new.scope, new.key))
        if holder is not None:
            with of_batch(jobs, new):
                answers[id(new)] = found(keys.checked(new, holder))
    return answers


def _held_before(tx: PostgresTx, taken: dict[_Key, NewJob]) -> dict[_Key, keys.Holder]:
    """Keys of tenants that were taken just now, though a job has them from the release before."""
    shared: dict[_Key, NewJob] = {}
    for (_, key), new in taken.items():
        shared.setdefault((new.caller, key), new)
    holders = _take(tx, shared, 0)
    before: dict[_Key, keys.Holder] = {}
    for (scope, key), new in taken.items():
        holder = holders.get((new.caller, key))
        if holder is not None and holder.job.tenant == new.tenant:
            keys.belongs_to(tx, new, new.id, holder)
            before[scope, key] = holder
    return before


def _take(tx: PostgresTx, wanted: dict[_Key, NewJob], answered: int) -> dict[_Key, keys.Holder]:
    """Take keys, each within the scope that it stands under; those that other jobs have."""
    holders: dict[_Key, keys.Holder] = {}
    for _ in range(_TRIES):
        wanted = _refused(tx, wanted, answered)
        if not wanted:
            return holders
        for place, holder in _holders(tx, wanted).items():
            new = wanted[place]
            if new.tenant or not holder.job.tenant:
                holders[place] = holder
                del wanted[place]
            elif keys.taken_over(tx, new, holder, job_id=new.id, answered=answered):
                del wanted[place]
        # A key whose holder is gone by now is free: it is tried again.
    [(_, key), *_] = wanted
    raise KeyConflict(key, "unknown")


def _refused(tx: PostgresTx, wanted: dict[_Key, NewJob], answered: int) -> dict[_Key, NewJob]:
    if not wanted:
        return {}
    taken = tx.rows(
        "take_keys",
        scopes=texts(scope for scope, _ in wanted),
        keys=texts(key for _, key in wanted),
        ids=words(new.id for new in wanted.values()),
        digests=words(new.digest() for new in wanted.values()),
        answered=answered,
    )
    ours = {(row["scope"], row["key"]) for row in taken}
    return {key: new for key, new in wanted.items() if key not in ours}


def _holders(tx: PostgresTx, wanted: Iterable[_Key]) -> dict[_Key, keys.Holder]:
    places = list(wanted)
    scopes, names = texts(scope for scope, _ in places), texts(key for _, key in places)
    held = tx.rows("key_holders", scopes=scopes, keys=names)
    jobs = _jobs(tx, [row["job_id"] for row in held])
    left = [row for row in held if row["job_id"] not in jobs]
    if left:
        # The record is gone and its key was left behind.
        tx.change(
            "free_keys",
            scopes=texts(row["scope"] for row in left),
            keys=texts(row["key"] for row in left),
            ids=words(row["job_id"] for row in left),
        )
    return {
        (row["scope"], row["key"]): keys.Holder(jobs[row["job_id"]], row["digest"])
        for row in held
        if row["job_id"] in jobs
    }


# --- rows ---------------------------------------------------------------------------------------


def _jobs(tx: PostgresTx, ids: Sequence[str]) -> dict[str, Job]:
    """Jobs by id. First the live ones: a job only ever moves from there to the archive."""
    if not ids:
        return {}
    found = {row["id"]: rows.shown_job(row) for row in tx.rows("by_ids", ids=words(ids))}
    return _ended(tx, [job_id for job_id in ids if job_id not in found]) | found


def _ended(tx: PostgresTx, ids: Sequence[str]) -> dict[str, Job]:
    return {row["id"]: rows.ended_job(row) for row in tx.rows("by_ids_ended", ids=words(ids))}


def _created(new: NewJob) -> Enqueued:
    # Whether a time that was named has come is the server's to say; its next look finds out.
    return Enqueued(new.id, new.key, created=True, due=_is_due(new))


def _is_due(new: NewJob) -> bool:
    return new.run_at is None and not new.delay


def _columns(jobs: Sequence[NewJob]) -> dict[str, Any]:
    values = zip(*map(rows.new_values, jobs), strict=True) if jobs else [()] * len(rows.NEW)
    columns = zip(rows.NEW.items(), values, strict=True)
    return {name: sparse(_SPELLED[kind], each) for (name, kind), each in columns} | {
        "delay": sparse(numbers, (_delay(new) for new in jobs)),
        "at": sparse(numbers, (_at(new) for new in jobs)),
        "digest": sparse(words, (None if new.key is None else new.digest() for new in jobs)),
        "scope": sparse(texts, (None if new.key is None else new.scope for new in jobs)),
    }


# How a column's values are written, by its type.
_SPELLED: dict[str, Callable[[Iterable[Any]], str]] = {
    "uuid": words,
    "text": texts,
    "json": texts,
    "smallint": numbers,
    "integer": numbers,
}


def _at(new: NewJob) -> int | None:
    return None if new.run_at is None else to_micros(check_moment("at", new.run_at))


def _delay(new: NewJob) -> int | None:
    if new.delay is None:
        return None
    wait = span(new.delay)
    if SystemClock().micros() + wait >= END_OF_TIME:
        raise must_be("delay", new.delay, "within the calendar, which ends with the year 9999")
    return wait
