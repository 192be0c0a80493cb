"""How does a worker in any language claim jobs, keep them, and say what became of them?

Every write is fenced by the lease's token, as for our own workers: who has lost a lease is told so and has
written nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from windlass.duration import parse_duration
from windlass.errors import InvalidValue, JobNotFound, LeaseLost, must_be
from windlass.job import MAX_RESULT, Error, JobState, Keep, Lease, Reason
from windlass.outcome import Again, Done, Failed, Interrupted, Result, Returned, Unstarted, clean, clean_end
from windlass.payload.codec import parse_value
from windlass.server.call import Call
from windlass.server.claims import claim
from windlass.server.identity import Need
from windlass.server.problems import Problem
from windlass.server.remote import belongs_to
from windlass.server.reply import Reply
from windlass.server.routes import BATCH_LIMIT, Answer, Route, verb
from windlass.server.schemas import NOTHING
from windlass.server.schemas.leases import (
    BeatDocument,
    BeatForm,
    ClaimedDocument,
    ClaimForm,
    CompleteForm,
    ExtendedDocument,
    ExtendForm,
    FailForm,
    ReleaseForm,
    SettledDocument,
    lease_name,
    lease_span,
    split_lease,
    worker_name,
)
from windlass.server.settling import settle
from windlass.spans import LONGEST_DELAY

_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 8_000

# --- settling -----------------------------------------------------------------------------------


async def complete(call: Call) -> Reply:
    """A job is done."""
    form = await call.body(CompleteForm)
    return await _settle(call, partial(_returned, form.result), form.version, completes=True)


def _returned(result: msgspec.Raw, keep: Keep) -> Returned:
    """What is kept of a result: the work is done, whether or not it can be kept."""
    if result == NOTHING or keep is False:
        return Returned()
    try:
        return Returned(_bounded(msgspec.json.encode(parse_value(bytes(result), "result"))))
    except InvalidValue as error:
        if keep == "required":
            raise
        return Returned(missing=clean(str(error), _LONGEST_MESSAGE))


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_RESULT:
        raise must_be("result", f"{len(data)} bytes", f"at most {MAX_RESULT} bytes as JSON")
    return data


async def fail(call: Call) -> Reply:
    """An attempt failed: another one follows by the type's policy, or none."""
    form = await call.body(FailForm)
    error = Error(
        Reason.EXCEPTION,
        None if form.kind is None else clean(form.kind, _LONGEST_MESSAGE),
        clean(form.message, _LONGEST_MESSAGE),
        None if form.traceback is None else clean_end(form.traceback, _LONGEST_TRACEBACK),
    )
    delay = None if form.delay is None else parse_duration(form.delay, "delay", LONGEST_DELAY)
    failed = Failed(error, "retry" if form.retryable else "fatal", (), delay)
    return await _settle(call, lambda _: failed, form.version)


async def release(call: Call) -> Reply:
    """A job is given back; the attempt is not counted."""
    form = await call.body(ReleaseForm)
    return await _settle(call, lambda _: Interrupted() if form.started else Unstarted())


async def _settle(
    call: Call, result: Callable[[Keep], Result], app: str = "", *, completes: bool = False
) -> Reply:
    lease = await _lease(call)
    outcome = await call.run(settle, call.parts, lease, result, app)
    if outcome is None:
        job = await call.run(call.parts.store.get, lease.id, caller=None)
        completed = job is None or job.state is JobState.COMPLETED
        if job is not None and completes != completed:
            how = "was completed" if completed else "was failed or given back"
            raise Problem(409, "wrong-state", f"job {lease.id} {how} by this lease before", job=lease.id)
        return Reply(200, SettledDocument(id=lease.id, outcome="repeated"))
    delay = outcome.delay.total_seconds() if isinstance(outcome, Again) else None
    missing = outcome.missing if isinstance(outcome, Done) else None
    told = type(outcome).__name__.lower()
    return Reply(200, SettledDocument(id=lease.id, outcome=told, delay=delay, result_missing=missing))


# --- keeping ------------------------------------------------------------------------------------


async def extend(call: Call) -> Reply:
    """A job takes longer; the answer tells what an operator asks of it."""
    form = await call.body(ExtendForm)
    span = lease_span(form.lease)
    lease = await _lease(call)
    kept, _ = await call.run(call.parts.store.extend, [lease], span)
    if not kept:
        raise LeaseLost(lease.id)
    return Reply(200, _extended(kept[0]))


async def beat(call: Call) -> Reply:
    """A worker is alive, and keeps these leases."""
    form = await call.body(BeatForm)
    return Reply(200, await call.run(_beaten, call, worker_name(call.path["id"]), form))


def _beaten(call: Call, name: str, form: BeatForm) -> dict[str, Any]:
    store, remote = call.parts.store, call.parts.remote
    row = remote.beat(store, call.identity, name, form.busy)
    if row is None:
        detail = (
            f"no worker {name!r} of {call.identity.told} is alive; what it ran is others' by now: claim anew"
        )
        raise Problem(409, "worker-lost", detail)
    span = lease_span(form.lease)
    named = {split_lease(each)[1]: each for each in form.leases}
    held = store.held_by(row)
    mine = [lease for lease in held if lease.token in named and call.identity.takes(lease.job.type)]
    if form.stopping and not all(call.identity.takes(lease.job.type) for lease in held):
        detail = (
            f"worker {name!r} runs jobs of types that this key may not use; use the key that claimed them"
        )
        raise Problem(403, "not-allowed", detail)
    kept = store.extend(mine, span)[0] if mine else []
    tokens = {lease.token for lease in kept}
    if form.stopping:
        store.leave(row)
        remote.forget(call.identity, name)
    return {
        "worker": row,
        "drain": remote.is_draining(store, row),
        "kept": [_extended(lease) for lease in kept],
        "lost": [each for token, each in named.items() if token not in tokens],
    }


def _extended(lease: Lease) -> ExtendedDocument:
    return ExtendedDocument(
        lease=lease_name(lease.id, lease.token), until=lease.until, request=lease.job.request
    )


# --- shared -------------------------------------------------------------------------------------


async def _lease(call: Call) -> Lease:
    """The lease that the path names. Its token is the fence; whether it still holds, the store says."""
    job_id, token = split_lease(call.path["lease"])
    job = await call.run(call.parts.store.get, job_id, caller=None)
    if job is None or not call.identity.takes(job.type):
        raise JobNotFound(job_id)
    if job.worker is not None and not belongs_to(job.worker, call.identity):
        raise LeaseLost(job_id)
    return Lease(job, token, job.worker or "", job.lease_until or job.updated_at)


def _route(path: str, answer: Answer, summary: str, takes: Any, gives: Any, **more: Any) -> Route:
    # A claim takes whatever is due, of any tenant: all of it is about the whole.
    return verb(path, answer, summary, takes, {200: gives}, need=Need.WORK, **more)


ROUTES = (
    _route("leases", claim, "Claim jobs", ClaimForm, ClaimedDocument),
    _route(
        "leases/{lease}/complete",
        complete,
        "Say that a job is done",
        CompleteForm,
        SettledDocument,
        # A result that is too large to be kept must not keep a job from being completed.
        body_limit=BATCH_LIMIT,
    ),
    _route("leases/{lease}/fail", fail, "Say that an attempt failed", FailForm, SettledDocument),
    _route("leases/{lease}/extend", extend, "Keep a job for longer", ExtendForm, ExtendedDocument),
    _route("leases/{lease}/release", release, "Give a job back", ReleaseForm, SettledDocument),
    _route("workers/{id}/beat", beat, "Say that a worker is alive", BeatForm, BeatDocument),
)
