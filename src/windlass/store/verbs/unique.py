"""How is there at most one job of a name, caller and tenant? The job's own row holds it (decision 009)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import span, to_micros
from windlass.errors import UniqueConflict
from windlass.job import NewJob
from windlass.store.protocol import Enqueued
from windlass.store.verbs import keys
from windlass.store.verbs.keys import get_by_id
from windlass.store.verbs.producing import of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windlass.store.transaction import Row, Tx

    Storing = Callable[[Any, Sequence[NewJob]], list[Enqueued]]

# The holder may start or end between two looks, and somebody else has taken the name by the second.
_TRIES = 100


def enqueue(tx: Tx, jobs: Sequence[NewJob], store: Storing) -> list[Enqueued]:
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
    if new.unique is None or _is_repeated(tx, new):
        return store(tx, [plain])[0]
    held = _by_name(tx, new, new.unique)
    if held is None:
        [done] = store(tx, [plain])
        if done.created:
            tx.change("hold_unique", id=new.id, name=new.unique, until=new.unique_until)
        return done
    if new.key is not None:
        # Sent again, the request finds the job that it was answered with.
        keys.answer(tx, new, held.id)
    return held


def _is_repeated(tx: Tx, new: NewJob) -> bool:
    """Whether the very same request was made before: then its own job is the answer, whoever has the name."""
    if get_by_id(tx, new.id) is not None:
        return True
    return new.key is not None and bool(keys.matches(tx, new.key, new.caller, new.tenant))


def _by_name(tx: Tx, new: NewJob, name: str) -> Enqueued | None:
    """What the job that holds a name is to a new one; None: nobody does, and nobody else can take it now."""
    for _ in range(_TRIES):
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
    run_at = _run_at(tx, new)
    replaced = tx.change(
        "replace_unique",
        seq=job["seq"],
        name=new.unique,
        payload=new.payload.decode(),
        schema_version=new.schema_version,
        priority=new.priority,
        max_attempts=new.max_attempts,
        run_at=run_at,
        due=int(run_at <= tx.now),
        now=tx.now,
    )
    return Enqueued(holder["id"], holder["key"], created=False, due=run_at <= tx.now) if replaced else None


def _run_at(tx: Tx, new: NewJob) -> int:
    if new.run_at is not None:
        return max(to_micros(new.run_at), tx.now)
    return tx.now + (span(new.delay) if new.delay is not None else 0)
