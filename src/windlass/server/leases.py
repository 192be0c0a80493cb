"""How does a worker in any language claim jobs, keep them, and say what became of them?

Every write is fenced by the lease's token, as for our own workers: who has lost a lease is told so and has
written nothing.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from windlass import settings
from windlass.config import LONGEST_LEASE, SHORTEST_LEASE
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, JobNotFound, LeaseLost, UnknownType
from windlass.job import MAX_RESULT, Error, Job, JobState, Lease, Reason, TypeInfo
from windlass.ops.document import job_document
from windlass.outcome import (
    Again,
    Done,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Overdue,
    Policy,
    Result,
    Returned,
    Stopped,
    Unstarted,
    clean,
    clean_end,
    decide,
    is_overdue,
)
from windlass.payload.text import parse_value
from windlass.policy.retry import Retry
from windlass.registry import SHELL
from windlass.server.call import Call, HungUp, read_wait
from windlass.server.hints import happens, hints
from windlass.server.identity import Need
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.routes import Answer, Route
from windlass.server.schemas import (
    NOTHING,
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
)
from windlass.settings import Effective
from windlass.store.protocol import Claimed, Settlement, Want

# A waiting worker is kept alive by its open request, and looks at least so often.
_LOOK_SECONDS = 1.0
_BEAT_SECONDS = 2.0
_AT_ONCE = timedelta(0)
_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 8_000
# What may be claimed is asked anew with every look.
_Wanting = Callable[[], Want | None]


# --- claiming -----------------------------------------------------------------------------------


async def claim(call: Call) -> Reply:
    """Take due jobs, waiting for some if there are none."""
    form = await call.body(ClaimForm)
    wait = read_wait(form.wait)
    lease = _lease_span(form.lease)
    catalogue = await call.run(call.parts.store.types)
    types = _wanted(call, form, catalogue)
    await call.run(call.parts.flow.learn, catalogue)
    client = call.scope.get("client")
    host = client[0] if client else "unknown"
    row = await call.run(
        call.parts.remote.attend,
        call.parts.store,
        call.identity,
        form.worker,
        form.types,
        slots=form.limit,
        host=host,
    )
    want = partial(call.parts.flow.want, types, worker=row, limit=form.limit, lease=lease)
    leases = await call.run(_known_before, call, form, row)
    drain = await call.run(_is_draining, call, row)
    if not leases and not drain:
        leases = await _wait_for_jobs(call, form.worker, want, wait)
        if form.request is not None and leases:
            call.parts.remote.give(row, form.request, leases)
    told = await call.run(_told, call, leases, catalogue)
    return Reply(200, {"worker": row, "drain": drain, "leases": told})


def _wanted(call: Call, form: ClaimForm, catalogue: dict[str, TypeInfo]) -> dict[str, int]:
    for name in form.types:
        if name not in catalogue or name == SHELL:
            raise UnknownType(name, (known for known in catalogue if known != SHELL))
        if not call.identity.takes(name):
            raise Problem(403, "not-allowed", f"{call.identity.told} may not use jobs of type {name!r}")
    return {name: catalogue[name].schema_version for name in form.types}


def _known_before(call: Call, form: ClaimForm, row: str) -> list[Lease]:
    """Leases of an answer that was lost: of the same request, or in the worker's name and not known to it."""
    given = call.parts.remote.given(row, form.request) if form.request is not None else []
    if not given and form.holding is None:
        return []
    held = {lease.token: lease for lease in call.parts.store.held_by(row)}
    if given:
        found = [held[lease.token] for lease in given if lease.token in held]
    else:
        named = {_split(each)[1] for each in form.holding or ()}
        found = [lease for token, lease in held.items() if token not in named][: form.limit]
    again = [lease for lease in found if call.parts.remote.tell_again(lease)]
    if len(again) < len(found):
        told = {lease.token for lease in again}
        _end(call, [lease for lease in found if lease.token not in told], Lost(Reason.WORKER_LOST))
    return again


async def _wait_for_jobs(call: Call, worker: str, want: _Wanting, wait: float) -> list[Lease]:
    found = await _look(call, want)
    if found.leases or wait <= 0:
        return found.leases
    gone = asyncio.create_task(call.gone())
    try:
        async with hints(call.parts) as hint:
            return await _look_again(call, worker, want, monotonic() + wait, hint, gone, found)
    finally:
        gone.cancel()


async def _look_again(
    call: Call,
    worker: str,
    want: _Wanting,
    end: float,
    hint: asyncio.Event,
    gone: asyncio.Task[None],
    found: Claimed,
) -> list[Lease]:
    beaten = monotonic()
    while not gone.done() and not call.parts.stopping.is_set() and (left := end - monotonic()) > 0:
        due = _LOOK_SECONDS if found.next_due is None else found.next_due.total_seconds()
        await happens(hint, min(left, _LOOK_SECONDS, max(due, 0.01)))
        hint.clear()
        if monotonic() - beaten >= _BEAT_SECONDS:
            beaten = monotonic()
            row = await call.run(call.parts.remote.beat, call.parts.store, call.identity, worker, None)
            if row is None:
                return []
        found = await _look(call, want)
        if found.leases:
            if gone.done():
                # Nobody is there to run them.
                await call.run(_end, call, found.leases, Unstarted())
                raise HungUp
            return found.leases
    return []


async def _look(call: Call, want: _Wanting) -> Claimed:
    async with call.parts.looking:
        return await call.run(_claimed, call, want)


def _claimed(call: Call, want: _Wanting) -> Claimed:
    """Take what is due, as far as nothing holds it back at this moment; what is too old to run ends here."""
    wanted, store, flow = want(), call.parts.store, call.parts.flow
    if wanted is None:
        return Claimed([])
    found = store.claim(wanted)
    flow.claimed(wanted, found.leases)
    aging = [lease for lease in found.leases if flow.ages(lease.job.type)]
    now = store.now() if aging else None
    late = [lease for lease in aging if now and is_overdue(lease.job, _policy(call, lease.job), now)]
    if not late:
        return found
    _end(call, late, Overdue())
    return Claimed([lease for lease in found.leases if lease not in late], _AT_ONCE)


def _end(call: Call, leases: Sequence[Lease], result: Result) -> None:
    """Settle leases that nobody is there for."""
    now = call.parts.store.now()
    outcomes = [
        decide(lease.job, result, _policy(call, lease.job), now=now, chance=random.random) for lease in leases
    ]
    call.parts.store.settle(
        [Settlement(lease, outcome) for lease, outcome in zip(leases, outcomes, strict=True)]
    )
    call.parts.queue.wakeup.notify()


def _told(call: Call, leases: Sequence[Lease], catalogue: dict[str, TypeInfo]) -> list[dict[str, Any]]:
    if not leases:
        return []
    now = call.parts.store.now()
    held = settings.read(call.parts.store.settings())
    return [
        {
            "lease": f"{lease.id}.{lease.token}",
            "until": lease.until,
            "timeout": _effective(
                catalogue.get(lease.job.type), lease.job.type, held
            ).timeout.total_seconds(),
            # As it is stored: a worker needs what people may not see.
            "job": job_document(lease.job, now) | {"payload": lease.job.payload},
        }
        for lease in leases
    ]


def _is_draining(call: Call, row: str) -> bool:
    return any(worker.drain for worker in call.parts.store.workers() if worker.id == row)


# --- settling -----------------------------------------------------------------------------------


async def complete(call: Call) -> Reply:
    """A job is done."""
    form = await call.body(CompleteForm)
    value = None if form.result == NOTHING else parse_value(bytes(form.result), "result")
    data = None if form.result == NOTHING else msgspec.json.encode(value)
    if data is not None and len(data) > MAX_RESULT:
        raise InvalidValue("result", f"{len(data)} bytes", f"at most {MAX_RESULT} bytes as JSON")
    return await _settle(call, Returned(data))


async def fail(call: Call) -> Reply:
    """An attempt failed: another one follows by the type's policy, or none."""
    form = await call.body(FailForm)
    error = Error(
        Reason.EXCEPTION,
        None if form.kind is None else clean(form.kind, _LONGEST_MESSAGE),
        clean(form.message, _LONGEST_MESSAGE),
        None if form.traceback is None else clean_end(form.traceback, _LONGEST_TRACEBACK),
    )
    delay = None if form.delay is None else parse_duration(form.delay, "delay")
    return await _settle(call, Failed(error, "retry" if form.retryable else "fatal", (), delay))


async def release(call: Call) -> Reply:
    """A job is given back; the attempt is not counted."""
    form = await call.body(ReleaseForm)
    return await _settle(call, Interrupted() if form.started else Unstarted())


async def _settle(call: Call, result: Result) -> Reply:
    lease = await _lease(call)
    outcome = await call.run(_settled, call, lease, result)
    if outcome is None:
        return Reply(200, SettledDocument(id=lease.id, outcome="repeated"))
    delay = outcome.delay.total_seconds() if isinstance(outcome, Again) else None
    return Reply(200, SettledDocument(id=lease.id, outcome=type(outcome).__name__.lower(), delay=delay))


def _settled(call: Call, lease: Lease, result: Result) -> Outcome | None:
    """What it amounts to; None if this lease was settled before, and nothing is written now."""
    store = call.parts.store
    now, job = store.now(), lease.job
    held = job.state is JobState.PROCESSING and lease.token in {
        each.token for each in store.held_by(lease.worker)
    }
    if job.request is not None and not isinstance(result, Returned):
        # An operator's request stands: whatever ended the run, it is carried out.
        result = Stopped(job.request)
    outcome = decide(job, result, _policy(call, job), now=now, chance=random.random)
    ran = None if job.started_at is None or isinstance(result, Unstarted) else now - job.started_at
    if store.settle([Settlement(lease, outcome, ran)]):
        raise LeaseLost(job.id)
    flow = call.parts.flow
    if held:
        flow.settled(lease, outcome)
    if not isinstance(outcome, Done) or flow.limited(job.type):
        call.parts.queue.wakeup.notify()
    return outcome if held else None


def _policy(call: Call, job: Job) -> Policy:
    """What the type's code has put into the catalogue, under what operators have set."""
    known = call.parts.store.types().get(job.type)
    held = settings.read(call.parts.store.settings())
    max_age = None if known is None else known.options.get("max_age")
    return Policy(
        retry=_effective(known, job.type, held).retry,
        max_age=None if max_age is None else timedelta(seconds=max_age),
    )


def _effective(known: TypeInfo | None, job_type: str, held: settings.Settings) -> Effective:
    options = {} if known is None else known.options
    said = options.get("said", ())
    return held.effective(
        job_type,
        timeout=timedelta(seconds=options["timeout"]) if "timeout" in said else None,
        retry=msgspec.convert(options["retry"], Retry) if "retry" in said else None,
    )


# --- keeping ------------------------------------------------------------------------------------


async def extend(call: Call) -> Reply:
    """A job takes longer; the answer tells what an operator asks of it."""
    form = await call.body(ExtendForm)
    span = _lease_span(form.lease)
    lease = await _lease(call)
    kept, _ = await call.run(call.parts.store.extend, [lease], span)
    if not kept:
        raise LeaseLost(lease.id)
    return Reply(200, _extended(kept[0]))


async def beat(call: Call) -> Reply:
    """A worker is alive, and keeps these leases."""
    form = await call.body(BeatForm)
    name = call.path["id"]
    if not _WORKER.fullmatch(name):
        raise InvalidValue("worker", name, "up to 64 letters, digits, _, . or -, a letter or digit first")
    return Reply(200, await call.run(_beaten, call, name, form))


def _beaten(call: Call, name: str, form: BeatForm) -> dict[str, Any]:
    store, remote = call.parts.store, call.parts.remote
    row = remote.beat(store, call.identity, name, form.busy)
    if row is None:
        detail = (
            f"no worker {name!r} of {call.identity.told} is alive; what it ran is others' by now: claim anew"
        )
        raise Problem(409, "worker-lost", detail)
    span = _lease_span(form.lease)
    named = {_split(each)[1]: each for each in form.leases}
    mine = [lease for lease in store.held_by(row) if lease.token in named]
    kept = store.extend(mine, span)[0] if mine else []
    tokens = {lease.token for lease in kept}
    if form.stopping:
        store.leave(row)
        remote.forget(call.identity, name)
    return {
        "worker": row,
        "drain": _is_draining(call, row),
        "kept": [_extended(lease) for lease in kept],
        "lost": [each for token, each in named.items() if token not in tokens],
    }


def _extended(lease: Lease) -> ExtendedDocument:
    return ExtendedDocument(lease=f"{lease.id}.{lease.token}", until=lease.until, request=lease.job.request)


# --- shared -------------------------------------------------------------------------------------


async def _lease(call: Call) -> Lease:
    """The lease that the path names. Its token is the fence; whether it still holds, the store says."""
    job_id, token = _split(call.path["lease"])
    job = await call.run(call.parts.store.get, job_id)
    if job is None or not call.identity.takes(job.type):
        raise JobNotFound(job_id)
    return Lease(job, token, job.worker or "", job.lease_until or job.updated_at)


def _split(lease: str) -> tuple[str, str]:
    found = _LEASE.fullmatch(lease)
    if found is None:
        raise InvalidValue("lease", lease, "the `lease` of a claimed job, which reads ID.TOKEN")
    return found[1], found[2]


def _lease_span(value: float | str) -> timedelta:
    span = parse_duration(value, "lease")
    if not SHORTEST_LEASE <= span <= LONGEST_LEASE:
        raise InvalidValue("lease", value, "between 60s and 3600s")
    return span


def _route(path: str, answer: Answer, summary: str, takes: Any, gives: Any) -> Route:
    return Route(
        method="POST",
        path=f"/api/v1/{path}",
        answer=answer,
        need=Need.WORK,
        summary=summary,
        takes=takes,
        gives={200: gives},
        refuses=(404, 409, 413, 415),
        # A claim takes whatever is due, of any tenant.
        whole=True,
    )


_LEASE = re.compile(r"([0-9a-f-]{36})\.([0-9a-f-]{32,36})")
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ROUTES = (
    _route("leases", claim, "Claim jobs", ClaimForm, ClaimedDocument),
    _route("leases/{lease}/complete", complete, "Say that a job is done", CompleteForm, SettledDocument),
    _route("leases/{lease}/fail", fail, "Say that an attempt failed", FailForm, SettledDocument),
    _route("leases/{lease}/extend", extend, "Keep a job for longer", ExtendForm, ExtendedDocument),
    _route("leases/{lease}/release", release, "Give a job back", ReleaseForm, SettledDocument),
    _route("workers/{id}/beat", beat, "Say that a worker is alive", BeatForm, BeatDocument),
)
