"""Find a job by id, idempotency key or unique name, and answer a request that was sent before.

A key without a tenant is stored under its caller. A key of a tenant is stored under caller and tenant, in a
row that goes with the job's record (`answered`), and under the caller alone as well if that place is free:
the release before looks there for every key, whatever the tenant. A unique name is held by its job's own row
(decision 009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from windlass.checks import check_text, storable
from windlass.errors import AmbiguousKey, Conflict, IdConflict, KeyConflict, Refused, UniqueConflict
from windlass.job import MAX_TENANT, Job, NewJob, scope_of
from windlass.store import rows
from windlass.store.engine import Enqueued, Row, Tx

Storing = Callable[[Any, Sequence[NewJob]], list[Enqueued]]


def found(job: Job | NewJob) -> Enqueued:
    """There was such a job before."""
    return Enqueued(job.id, job.key, created=False, due=False)


def existing(new: NewJob, known: Job | NewJob | None) -> Enqueued:
    """The id is known: the same request sent again finds its job, anything else is refused."""
    same = known is not None and (
        (known.type, bytes(known.payload), known.key, known.caller, known.tenant)
        == (new.type, new.payload, new.key, new.caller, new.tenant)
    )
    if known is None or not same:
        raise IdConflict(new.id)
    return found(known)


@contextmanager
def of_batch(jobs: Sequence[NewJob], new: NewJob) -> Iterator[None]:
    """Let a refusal say which job of a batch it is about."""
    try:
        yield
    except Refused as error:
        if len(jobs) > 1:
            places = {each.id: place for place, each in reversed(list(enumerate(jobs)))}
            error.index = next(place for place, each in enumerate(jobs) if each is new)
            twin = places.get(getattr(error, "job_id", None) or "")
            if isinstance(error, Conflict) and twin not in (None, error.index):
                error.clashes(twin)
        raise


# More than one reader wants to read.
MOST_MATCHES = 20
_MOST_ROWS = 1_000
_TRIES = 5


def get(tx: Tx, name: str, *, caller: str | None = "", tenant: str | None = None) -> Job | None:
    """A job by id or key, live or archived; AmbiguousKey if `named` gives several."""
    found = named(tx, name, caller=caller, tenant=tenant)
    if len(found) > 1:
        raise AmbiguousKey(name, found)
    return found[0] if found else None


def named(tx: Tx, name: str, *, caller: str | None = "", tenant: str | None = None) -> list[Job]:
    """The job of that id, or the jobs that have that key.

    An id of the caller and tenant that are asked for comes first, then a key of theirs, then any other id: a
    key may look like the id of a job that belongs to somebody else.
    """
    if tenant is not None:
        check_text("tenant", tenant, MAX_TENANT, least=0)
    if not storable(name):
        return []
    job = get_by_id(tx, name)
    if job is not None and caller in (None, job.caller) and tenant in (None, job.tenant):
        return [job]
    return matches(tx, name, caller, tenant) or ([] if job is None else [job])


def get_by_id(tx: Tx, job_id: str) -> Job | None:
    """A job by id, live or archived."""
    row = tx.row("by_id", id=job_id)
    if row is not None:
        return rows.read(Job, row)
    row = tx.row("by_id_ended", id=job_id)
    return None if row is None else rows.read(Job, row)


def matches(tx: Tx, key: str, caller: str | None, tenant: str | None) -> list[Job]:
    """The jobs that have a key, oldest first. Without a caller: of all callers; without a tenant: of all."""
    if caller is None:
        found = tx.rows("key_matches_anywhere", key=key, limit=_MOST_ROWS)
    elif tenant is None:
        first, beyond = scope_of(caller, "\0")[:-1], f"{caller} "
        found = tx.rows("key_matches", caller=caller, first=first, beyond=beyond, key=key, limit=_MOST_ROWS)
    else:
        places = dict.fromkeys((scope_of(caller, tenant), caller))
        held = (tx.row("key_holder", scope=scope, key=key) for scope in places)
        return _of_tenant(tx, (row["job_id"] for row in held if row is not None), tenant)[:1]
    return sorted(_of_tenant(tx, {row["job_id"] for row in found}, tenant), key=lambda job: job.seq)


def _of_tenant(tx: Tx, ids: Iterable[str], tenant: str | None) -> list[Job]:
    found: list[Job] = []
    for job_id in ids:
        job = get_by_id(tx, job_id)
        # A key that was left behind by a job whose record is gone says nothing.
        if job is not None and tenant in (None, job.tenant):
            found.append(job)
        if len(found) >= MOST_MATCHES:
            break
    return found


def accepted(tx: Tx, jobs: Iterable[NewJob]) -> bool:
    """Whether each of these was accepted before: its key has a job, or there is a job of its id."""
    return all(
        matches(tx, new.key, new.caller, new.tenant)
        if new.key is not None
        else not new.fresh and get_by_id(tx, new.id) is not None
        for new in jobs
    )


class Holder(NamedTuple):
    """The job that has a key, and what the key was sent with."""

    job: Job
    digest: str


def take(tx: Tx, new: NewJob) -> Job | None:
    """Take the key for a new job, or give the job that has it; KeyConflict if that one is other work."""
    holder = _take(tx, new, new.id, answered=0)
    return None if holder is None else checked(new, holder)


def checked(new: NewJob, holder: Holder) -> Job:
    """The job that has the key, if it is the same work or any will do."""
    if holder.digest != new.digest() and not new.take_existing:
        raise KeyConflict(str(new.key), holder.job.id)
    return holder.job


def _take(tx: Tx, new: NewJob, job_id: str, *, answered: int) -> Holder | None:
    if not new.tenant:
        return _take_within(tx, new, new.caller, job_id, answered)
    holder = _take_within(tx, new, new.scope, job_id, 1)
    if holder is not None:
        return holder
    earlier = _take_within(tx, new, new.caller, job_id, answered)
    if earlier is None or earlier.job.tenant != new.tenant:
        return None
    belongs_to(tx, new, job_id, earlier)
    return earlier


def _take_within(tx: Tx, new: NewJob, scope: str, job_id: str, answered: int) -> Holder | None:
    place: dict[str, object] = {"scope": scope, "key": new.key}
    ours: dict[str, object] = {"job_id": job_id, "digest": new.digest(), "answered": answered}
    for _ in range(_TRIES):
        if tx.row("take_key", **place, **ours) is not None:
            return None
        row = tx.row("key_holder", **place)
        if row is None:
            continue
        job = get_by_id(tx, row["job_id"])
        if job is None:
            # The record is gone and its key was left behind: the key is free.
            tx.change("free_key", **place, job_id=row["job_id"])
            continue
        holder = Holder(job, row["digest"])
        if new.tenant or not job.tenant:
            return holder
        if taken_over(tx, new, holder, job_id=job_id, answered=answered):
            return None
    raise KeyConflict(str(new.key), "unknown")


def belongs_to(tx: Tx, new: NewJob, job_id: str, earlier: Holder) -> None:
    """A job of the same tenant has the key from the release before: it gets the place within the scope."""
    theirs = {"job_id": earlier.job.id, "digest": earlier.digest, "answered": 1}
    tx.change("hand_key", scope=new.scope, key=new.key, holder=job_id, **theirs)


def taken_over(tx: Tx, new: NewJob, holder: Holder, *, job_id: str, answered: int) -> bool:
    """Take the place under the caller alone from a tenant's job, which keeps its key within its own scope."""
    theirs = {"job_id": holder.job.id, "digest": holder.digest, "answered": 1}
    tx.row("take_key", scope=scope_of(new.caller, holder.job.tenant), key=new.key, **theirs)
    ours = {"job_id": job_id, "digest": new.digest(), "answered": answered}
    return bool(tx.change("hand_key", scope=new.caller, key=new.key, holder=holder.job.id, **ours))


# The holder may start or end between two looks, and somebody else has taken the name by the second.
_LOOKS = 100


def enqueue_unique(tx: Tx, jobs: Sequence[NewJob], store: Storing) -> list[Enqueued]:
    """Store jobs of which some shall be the only one of their name; `store` is how any other is stored."""
    # Sorted, so that two batches with the same names do not wait for each other.
    for name in sorted({new.unique for new in jobs if new.unique is not None}):
        tx.row("lock_unique", name=name)
    done: list[Enqueued] = []
    for new in jobs:
        with of_batch(jobs, new):
            done.append(_enqueue_one(tx, new, store))
    return done


def _enqueue_one(tx: Tx, new: NewJob, store: Storing) -> Enqueued:
    plain = msgspec.structs.replace(new, unique=None)
    # The very same request was made before: then its own job is the answer, whoever has the name.
    repeated = new.unique is not None and (
        get_by_id(tx, new.id) is not None
        or (new.key is not None and bool(matches(tx, new.key, new.caller, new.tenant)))
    )
    if new.unique is None or repeated:
        return store(tx, [plain])[0]
    held = _by_name(tx, new, new.unique)
    if held is None:
        [done] = store(tx, [plain])
        if done.created:
            tx.change("hold_unique", id=new.id, name=new.unique, until=new.unique_until)
        return done
    if new.key is not None:
        # Sent again, the request finds the job that it was answered with.
        _take(tx, new, held.id, answered=1)
    return held


def _by_name(tx: Tx, new: NewJob, name: str) -> Enqueued | None:
    """What the job that holds a name is to a new one; None: nobody does, and nobody else can take it now."""
    for _ in range(_LOOKS):
        holder = tx.row("unique_holder", name=name, caller=new.caller, tenant=new.tenant)
        if holder is None:
            return None
        if holder["type"] != new.type or new.on_unique == "error":
            # Answering with a job of another type would lose work.
            raise UniqueConflict(name, holder["id"], holder["state"])
        if new.on_unique == "skip":
            return Enqueued(holder["id"], holder["key"], created=False, due=False)
        answer = _replace(tx, new, holder)
        if answer is not None:
            return answer
    raise UniqueConflict(name, "unknown", "unknown")


def _replace(tx: Tx, new: NewJob, holder: Row) -> Enqueued | None:
    """Put new work into a job that waits; None: it has started or ended meanwhile, look again."""
    job = tx.row("lock_job", id=holder["id"])
    if job is None:
        return None
    if job["state"] == "processing" and job["unique_until"] == "done":
        raise UniqueConflict(str(new.unique), holder["id"], "processing")
    run_at = rows.run_at(tx.now, new)
    told = rows.columns(new, run_at=run_at, due=int(run_at <= tx.now))
    replaced = tx.change("replace_unique", seq=job["seq"], name=new.unique, now=tx.now, **told)
    return Enqueued(holder["id"], holder["key"], created=False, due=run_at <= tx.now) if replaced else None
