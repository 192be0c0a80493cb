"""How are jobs put in? The answer leaves after the durable commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import msgspec

from windlass.clock import uuid7
from windlass.errors import InvalidValue, JobNotFound, WindlassError
from windlass.job import JobState, NewJob
from windlass.observe import tracing
from windlass.server import problems
from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.rights import check_type_allowed
from windlass.server.routes import BATCH_LIMIT, verb
from windlass.server.schemas.jobs import Accepted, AcceptedBatch, BatchForm, JobForm
from windlass.store.batches import NewBatch
from windlass.store.protocol import Enqueued, Filter


async def enqueue(call: Call) -> Reply:
    """Store one job; the answer leaves after the durable commit."""
    form = await call.body(JobForm)
    call.parts.rates.spend(call.identity, 1)
    with _span(call, [form]) as trace:
        [done] = await call.parts.intake.accept(partial(_drafts, call, [form], trace=trace))
    [told] = await _told(call, [form.type], [done])
    headers = {b"location": f"/api/v1/jobs/{done.id}".encode()}
    return Reply(201 if done.created else 200, told, headers=headers)


async def enqueue_batch(call: Call) -> Reply:
    """Store up to 100 jobs, all or none."""
    form = await call.body(BatchForm)
    count = len(form.jobs)
    call.parts.rates.spend(call.identity, count)
    batch_id = None
    if form.batch is None and form.batch_id is not None:
        raise InvalidValue("batch_id", form.batch_id, "given together with batch, the name")
    with _span(call, form.jobs) as trace:
        make = partial(_drafts, call, form.jobs, batch=True, trace=trace)
        if form.batch is None:
            done = await call.parts.intake.accept(make, count)
        else:
            batch = NewBatch(id=form.batch_id or uuid7(), name=_batch_name(form.batch))
            batch_id = batch.id
            done = await call.run(_store_batch, call, batch, make)
    told = await _told(call, [job.type for job in form.jobs], done)
    status = 201 if any(each.created for each in done) else 200
    return Reply(status, AcceptedBatch(jobs=told, batch=batch_id))


def _store_batch(call: Call, batch: NewBatch, make: Callable[[], Sequence[NewJob]]) -> list[Enqueued]:
    store, drafts = call.parts.store, make()
    if store.batch(batch.id) is not None:
        return _sent_again(call, batch, drafts)
    try:
        done = store.enqueue_batch(batch, drafts)
    except Exception:  # wall: sent again while the first one was under way, perhaps to another server
        if store.batch(batch.id) is None:
            raise
        return _sent_again(call, batch, drafts)
    call.parts.queue.wakeup.notify()
    return done


def _sent_again(call: Call, batch: NewBatch, drafts: Sequence[NewJob]) -> list[Enqueued]:
    """The jobs of a batch that is known, by their ids or keys; a batch takes no others later on."""
    store = call.parts.store
    for draft in drafts:
        known = None if draft.key is None else store.get(draft.key, caller=draft.caller)
        # A unique name may have been answered with another job.
        if known is None and draft.unique is None and store.get(draft.id) is None:
            detail = f"batch {batch.id} is there already, without these jobs; a new one needs another id"
            raise Problem(409, "id-conflict", detail)
    return store.enqueue(drafts)


def _batch_name(name: str) -> str:
    if "\0" in name:
        raise InvalidValue("batch", name, "without NUL")
    return name


def _span(call: Call, forms: Sequence[JobForm]) -> AbstractContextManager[str | None]:
    """A span for the request, if this server traces: part of the producer's trace."""
    given = next((form.traceparent for form in forms if form.traceparent), None)
    parent = given if given is not None and _TRACEPARENT.fullmatch(given) else _traceparent(call)
    return tracing.serving(call.route.method, call.route.path, parent)


def _drafts(
    call: Call, forms: Sequence[JobForm], *, batch: bool = False, trace: str | None = None
) -> list[NewJob]:
    """The jobs as they will be stored. Runs where the store may be waited for: a type may be news."""
    drafts: list[NewJob] = []
    for index, form in enumerate(forms):
        try:
            drafts.append(_draft(call, form, index if batch else None, trace))
        except WindlassError as error:
            raise problems.of(_as_sent(error), index=index if batch else None) from error
    call.parts.queue.admit(drafts)
    return drafts


def _as_sent(error: WindlassError) -> WindlassError:
    """The error in the words of the form, where those of the library are others."""
    if isinstance(error, InvalidValue) and error.field == "at":
        return InvalidValue("run_at", error.value, error.allowed)
    return error


def _draft(call: Call, form: JobForm, index: int | None, trace: str | None) -> NewJob:
    who = call.identity
    check_type_allowed(call, form.type, index)
    tenant = form.tenant
    if who.tenant is not None:
        if tenant not in (None, who.tenant):
            raise Problem(
                403, "not-allowed", f"tenant must be {who.tenant!r} for this key, got {tenant!r}", index=index
            )
        tenant = who.tenant
    options = {name: value for name in _ALIKE if (value := getattr(form, name)) is not None}
    options["at"] = form.run_at
    options["key"] = _key(call, form, index)
    options["tenant"] = tenant
    options["traceparent"] = form.traceparent or trace or _traceparent(call)
    if form.depends_on is not None:
        options["depends_on"] = _parents(call, form)
    draft = call.parts.queue.draft_sent(form.type, bytes(form.payload), options)
    return msgspec.structs.replace(draft, caller=who.name) if who.name else draft


def _key(call: Call, form: JobForm, index: int | None) -> str | None:
    """The job's key: its own, or the request's, with the job's place in a batch behind it."""
    header = call.header(b"idempotency-key")
    if header is None:
        return form.key
    if index is not None:
        return form.key or f"{header}:{index}"
    if form.key not in (None, header):
        raise InvalidValue("key", form.key, f"the same as Idempotency-Key, which is {header!r}")
    return header


def _parents(call: Call, form: JobForm) -> tuple[str, ...] | None:
    """What a job waits for. Others' jobs are not there for who may not see them."""
    who = call.identity
    if form.depends_on and (who.tenant is not None or not who.may(Need.SEE)):
        for name in form.depends_on:
            # One of the same batch is not there yet, and the caller's own.
            job = call.parts.store.get(name, caller=who.name) if "\0" not in name else None
            if job is not None and not who.sees(job):
                raise JobNotFound(name)
    return form.depends_on


def _traceparent(call: Call) -> str | None:
    """A header that is not a trace context is nobody's error: tracing must not cost a job."""
    header = call.header(b"traceparent")
    return header if header is not None and _TRACEPARENT.fullmatch(header) else None


async def _told(call: Call, types: Sequence[str], done: Sequence[Enqueued]) -> list[Accepted]:
    """What is stored; of what was there before, how it stands now."""
    known = {} if all(each.created for each in done) else await _standing(call, done)
    told: list[Accepted] = []
    for sent, each in zip(types, done, strict=True):
        kind, state = known.get(each.id, (sent, JobState.PENDING))
        told.append(Accepted(id=each.id, type=kind, state=state, key=each.key, created=each.created))
    return told


async def _standing(call: Call, done: Sequence[Enqueued]) -> dict[str, tuple[str, JobState]]:
    before = tuple({each.id for each in done if not each.created})
    page = await call.run(call.parts.store.find, Filter(ids=before), limit=len(before))
    return {job.id: (job.type, job.state) for job in page.jobs}


# What the form and the library call by one name.
_ALIKE = (
    "priority",
    "delay",
    "max_attempts",
    "id",
    "on_conflict",
    "payload_ref",
    "on_dead",
    "unique",
    "until",
    "on_unique",
)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_REFUSES = (404, 409, 413, 415, 429)
ROUTES = (
    verb(
        "jobs",
        enqueue,
        "Enqueue a job",
        JobForm,
        {201: Accepted, 200: Accepted},
        need=Need.PRODUCE,
        refuses=_REFUSES,
        whole=False,
    ),
    verb(
        "jobs/batch",
        enqueue_batch,
        "Enqueue up to 100 jobs, all or none",
        BatchForm,
        {201: AcceptedBatch, 200: AcceptedBatch},
        need=Need.PRODUCE,
        body_limit=BATCH_LIMIT,
        refuses=_REFUSES,
        whole=False,
    ),
)
