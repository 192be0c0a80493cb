"""The calls that actors make: real verbs of the real store, as workers, operators and producers make them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
from psycopg import errors

from tests.interleaving.turns import Actor, Deed
from windlass.errors import JobNotFound, Refused, WrongState
from windlass.job import Error, Lease, NewJob, Reason
from windlass.outcome import Again, Dead, Done, Outcome, Released, Snoozed
from windlass.store.chains import NewBatch
from windlass.store.engine import Enqueued, Settlement, Want
from windlass.store.flow import Restriction
from windlass.store.jobs import Edit
from windlass.store.operations import Carried, Reached, State
from windlass.store.upkeep import Retention

LEASE = timedelta(minutes=1)
KEPT = Retention(ended=timedelta(hours=1), dead=timedelta(hours=1))
LEVELS = ("read committed", "repeatable read", "serializable")
# What a caller answers by running its transaction again.
PASSING = (errors.SerializationFailure, errors.DeadlockDetected)
ERROR = Error(Reason.EXCEPTION, message="bad luck")
_NOW = timedelta(0)


# --- workers ---


def wanting(
    worker: str,
    *types: str,
    limit: int = 20,
    restricted: Mapping[str, Restriction] | None = None,
    mark: str | None = None,
) -> Want:
    """What a worker asks for."""
    return Want(
        worker=worker,
        types=dict.fromkeys(types or ("plain",), 1),
        limit=limit,
        lease=LEASE,
        restricted=restricted or {},
        slots=limit,
        mark=mark,
    )


def claim(want: Want, *, found: int = 0) -> Deed:
    """Take due jobs; `found` is what the worker remembers of its last claim, which decides on the way."""

    def run(actor: Actor) -> Any:
        if found and actor.store._recent is not None:  # noqa: SLF001
            actor.store._recent.found[tuple(want.types)] = found  # noqa: SLF001
        claimed = actor.store.claim(want)
        actor.leases += claimed.leases
        return claimed

    return Deed("claim", run, {"want": want})


def settle(how: str, *follow: NewJob) -> Deed:
    """Settle all leases that the actor has."""

    def run(actor: Actor) -> Any:
        leases, actor.leases = actor.leases, []
        outcome = {each.token: _outcome(how, each) for each in leases}
        given = [
            Settlement(each, outcome[each.token], enqueues=follow if number == 0 and how == "done" else ())
            for number, each in enumerate(leases)
        ]
        return _settled(actor, given)

    return Deed(f"settle as {how}", run, {"follow": [each.id for each in follow]})


def _outcome(how: str, lease: Lease) -> Outcome:
    if how == "retry" and lease.job.attempts >= lease.job.max_attempts:
        how = "dead"
    outcomes: dict[str, Outcome] = {
        "done": Done(),
        "retry": Again(_NOW, ERROR),
        "dead": Dead(ERROR),
        "snooze": Snoozed(timedelta(seconds=1)),
        "release": Released(),
    }
    return outcomes[how]


def _settled(actor: Actor, given: Sequence[Settlement]) -> Any:
    actor.call.tokens = frozenset(each.lease.token for each in given)
    return given, {lease.token for lease in actor.store.settle(given)}


def transact() -> Deed:
    """Complete the first lease within the handler's own transaction."""

    def run(actor: Actor) -> Any:
        if not actor.leases:
            return None
        lease = actor.leases.pop(0)
        actor.call.tokens = frozenset({lease.token})
        block = actor.store.handlers().transaction(
            lambda: Settlement(lease, Done()), within=timedelta(hours=1)
        )
        with block as connection:
            connection.execute("insert into effects values (%s)", [lease.id])
        return lease.id

    return Deed("complete in a transaction", run, {})


def extend() -> Deed:
    """Move the end of the actor's leases."""
    return Deed("extend", lambda actor: actor.store.extend(actor.leases, LEASE), {})


def reap() -> Deed:
    """Settle leases that have run out."""

    def run(actor: Actor) -> Any:
        return _reaped(actor, actor.store.expired(limit=10), Reason.LEASE_EXPIRED)

    return Deed("reap", run, {})


def declare_dead(worker: str, beat: int) -> Deed:
    """Declare a worker dead whose beat is where it was, and settle what it held."""

    def run(actor: Actor) -> Any:
        if not actor.store.declare_dead(worker, beat):
            return None
        return _reaped(actor, actor.store.orphans(limit=10), Reason.WORKER_LOST)

    return Deed("declare dead", run, {})


def _reaped(actor: Actor, leases: Sequence[Lease], reason: Reason) -> Any:
    given = []
    for lease in leases:
        error = Error(reason)
        tired = lease.job.attempts >= lease.job.max_attempts
        given.append(Settlement(lease, Dead(error) if tired else Again(_NOW, error)))
    return _settled(actor, given)


# --- producers ---


def enqueue(*drafts: NewJob) -> Deed:
    """Store jobs."""
    return Deed("enqueue", lambda actor: actor.store.enqueue(drafts), {"drafts": drafts})


def enqueue_batch(batch: NewBatch, *drafts: NewJob) -> Deed:
    """Store jobs as a batch, or add them to one."""
    return Deed(
        "extend a batch" if batch.extends else "enqueue a batch",
        lambda actor: actor.store.enqueue_batch(batch, drafts),
        {"drafts": drafts},
    )


def guest(level: str, *drafts: NewJob, commits: bool = True, looks: bool = False) -> Deed:
    """Store jobs within the caller's own transaction; with `looks` its snapshot is older than the call."""

    def run(actor: Actor) -> list[Enqueued]:
        for tried in range(4):
            try:
                return _in_transaction(actor)
            except PASSING:
                if tried == 3:
                    raise
        return []

    def _in_transaction(actor: Actor) -> list[Enqueued]:
        actor.guest.execute(f"begin isolation level {level}".encode())
        try:
            if looks:
                actor.guest.execute("select count(*) from windlass.jobs")
            done = actor.store.enqueue_on(actor.guest, drafts)
            actor.guest.execute("commit" if commits else "rollback")
        except Exception:
            with contextlib.suppress(psycopg.Error):
                actor.guest.execute("rollback")
            raise
        return done if commits else []

    asked = {"drafts": drafts if commits else (), "absent": () if commits else drafts, "level": level}
    return Deed(f"enqueue as a guest, {level}", run, asked)


# --- operators ---


def operate(verb: str, job: str, **options: Any) -> Deed:
    """Cancel, bury, replay or discard a job."""
    asked = {"job": job, "action": verb, **options}
    return Deed(verb, lambda actor: getattr(actor.store, verb)(job, by=actor.name, **options), asked)


def edit(job: str, change: Edit) -> Deed:
    """Change a pending job's priority or time."""
    verb = "edit the priority" if change.run_at is None else "edit the time"
    return Deed(
        verb, lambda actor: actor.store.edit(job, change, by=actor.name), {"job": job, "action": "edit"}
    )


def steer(operation: str, state: State) -> Deed:
    """Pause an operation, let it run again, or stop it."""
    asked = {"operation": operation, "state": state}
    return Deed(
        f"let an operation be {state}",
        lambda actor: actor.store.steer_operation(operation, state, by=actor.name),
        asked,
    )


def switch(verb: str, name: str) -> Deed:
    """Pause or resume a type or a schedule, or run a schedule now."""
    return Deed(
        verb.replace("_", " a "),
        lambda actor: getattr(actor.store, verb)(name, by=actor.name),
        {"switch": verb, "name": name},
    )


def set_setting(name: str, value: str) -> Deed:
    """Store a setting."""
    return Deed(
        "set",
        lambda actor: actor.store.set_setting(name, value, by=actor.name),
        {"set": name, "value": value},
    )


# --- upkeep ---


def fire() -> Deed:
    """Deal with every fire time that has come."""
    return Deed("fire", lambda actor: actor.store.fire(), {})


def prune() -> Deed:
    """Delete what is past its retention."""
    return Deed("prune", lambda actor: actor.store.prune(KEPT, by="retention"), {})


def carry(operation: str) -> Deed:
    """Carry an operation to its end, in chunks of one job; others may take it at any moment."""

    def run(actor: Actor) -> Any:
        carried = actor.store.take_operation(actor.name, _NOW, operation)
        reached = Reached() if carried is None else carried.operation.reached
        while carried is not None and carried.operation.state is State.RUNNING:
            if not carried.chunk:
                chunk, place = actor.store.next_jobs(carried, 1)
                carried = msgspec.structs.replace(carried, chunk=chunk, place=place)
                over = not chunk and place >= carried.last
                carried = actor.store.advance_operation(
                    carried, reached, _NOW, ends=State.DONE if over else None
                )
            else:
                carried, reached = _act(actor, carried, reached)
        return None if carried is None else carried.operation

    return Deed("carry", run, {"operation": operation})


def _act(actor: Actor, carried: Carried, reached: Reached) -> tuple[Carried | None, Reached]:
    counts = {name: getattr(reached, name) for name in ("matched", "done", "asked", "moved_on", "refused")}
    operation = carried.operation
    for job in carried.chunk:
        counts["matched"] += 1
        try:
            acted = getattr(actor.store, operation.action)(job, by=operation.by, request_id=operation.id)
            counts["done" if acted.done else "asked"] += 1
        except (WrongState, JobNotFound):
            counts["moved_on"] += 1
        except Refused:
            counts["refused"] += 1
    reached = Reached(**counts)
    empty = msgspec.structs.replace(carried, chunk=())
    return actor.store.advance_operation(empty, reached, _NOW), reached
