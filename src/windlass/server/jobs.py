"""How are jobs put in, looked at and changed by who put them in?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from windlass.clock import uuid7
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, JobNotFound, WindlassError
from windlass.job import Job, JobState, NewJob
from windlass.observe import tracing
from windlass.ops.document import batch_document, page_document, told_document
from windlass.ops.filters import read_filter
from windlass.payload import parse
from windlass.registry import SHELL
from windlass.server import problems
from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.routes import BATCH_LIMIT, Route
from windlass.server.schemas import (
    NOTHING,
    Accepted,
    AcceptedBatch,
    ActedDocument,
    BatchDocument,
    BatchForm,
    CatalogueDocument,
    EditForm,
    JobForm,
    JobPage,
    ToldJob,
    WhyForm,
)
from windlass.store.batches import NewBatch
from windlass.store.protocol import Enqueued, Filter, Page

# --- putting in ---------------------------------------------------------------------------------


async def enqueue(call: Call) -> Reply:
    """Store one job; the answer leaves after the durable commit."""
    form = await call.body(JobForm)
    call.parts.admission.check(call.identity, 1)
    with _span(call, [form]) as trace:
        [done] = await call.parts.intake.accept(partial(_drafts, call, [form], trace=trace))
    call.parts.admission.accepted(1)
    [told] = await _told(call, [form.type], [done])
    headers = {b"location": f"/api/v1/jobs/{done.id}".encode()}
    return Reply(201 if done.created else 200, told, headers=headers)


async def enqueue_batch(call: Call) -> Reply:
    """Store up to 100 jobs, all or none."""
    form = await call.body(BatchForm)
    count = len(form.jobs)
    call.parts.admission.check(call.identity, count)
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
    call.parts.admission.accepted(count)
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
    draft = call.parts.queue.draft(
        form.type,
        parse(bytes(form.payload), "payload"),
        priority=form.priority,
        delay=form.delay,
        at=form.run_at,
        max_attempts=form.max_attempts,
        key=_key(call, form, index),
        id=form.id,
        tenant=tenant,
        on_conflict=form.on_conflict,
        traceparent=form.traceparent or trace or _traceparent(call),
        payload_ref=form.payload_ref,
        depends_on=_parents(call, form),
        on_dead=form.on_dead,
        unique=form.unique,
        until=form.until,
        on_unique=form.on_unique,
    )
    return msgspec.structs.replace(draft, caller=who.name) if who.name else draft


def check_type_allowed(call: Call, job_type: str, index: int | None = None) -> None:
    """Refuse who may not say what jobs of a type do: shell commands above all."""
    who = call.identity
    if not who.takes(job_type):
        raise _not_allowed(who.told, job_type, index)
    if job_type == SHELL and not (call.parts.config.shell and (who.key_id is None or SHELL in who.types)):
        raise _no_shell(index)


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
    before = tuple({each.id for each in done if not each.created})
    known: dict[str, tuple[str, JobState]] = {}
    if before:
        page = await call.run(call.parts.store.find, Filter(ids=before), limit=len(before))
        known = {job.id: (job.type, job.state) for job in page.jobs}
    told: list[Accepted] = []
    for job_type, each in zip(types, done, strict=True):
        kind, state = known.get(each.id, (job_type, JobState.PENDING))
        told.append(Accepted(id=each.id, type=kind, state=state, key=each.key, created=each.created))
    return told


def _not_allowed(who: str, job_type: str, index: int | None) -> Problem:
    return Problem(403, "not-allowed", f"{who} may not use jobs of type {job_type!r}", index=index)


def _no_shell(index: int | None) -> Problem:
    detail = "shell commands need a server with --shell, and a key that is allowed the type shell"
    return Problem(403, "not-allowed", detail, index=index)


# --- looking ------------------------------------------------------------------------------------


async def list_jobs(call: Call) -> Reply:
    """Jobs, newest first."""
    where = await call.run(_filter, call)
    limit = call.whole("limit", 50, 1, 1000)
    page = await call.run(_page, call, where, limit, call.one("cursor"))
    return Reply(200, page_document(page, await call.run(call.parts.store.now)))


def _page(call: Call, where: Filter, limit: int, cursor: str | None) -> Page:
    """So many jobs, or fewer if they are large: what one request asks for must fit into memory."""
    jobs: list[Job] = []
    size = 0
    while len(jobs) < limit and size < _MOST_BYTES:
        page = call.parts.store.find(where, limit=min(_READ_AT_ONCE, limit - len(jobs)), cursor=cursor)
        jobs += page.jobs
        size += sum(_size(job) for job in page.jobs)
        cursor = page.next
        if cursor is None:
            break
    return Page(jobs, cursor)


def _size(job: Job) -> int:
    """About how many bytes a job takes when it is told of; an attempt's error may be long."""
    return len(bytes(job.payload)) + len(bytes(job.result or b"")) + _ATTEMPT_BYTES * len(job.history)


def _filter(call: Call) -> Filter:
    older = call.one("older_than")
    where = read_filter(
        types=call.many("type"),
        states=call.many("state"),
        tenant=call.one("tenant"),
        key=call.one("key"),
        error=call.one("error"),
        older_than=None if older is None else parse_duration(older, "older_than"),
        where=call.query.get("where", ()),
    )
    return own(call, where)


def own(call: Call, where: Filter) -> Filter:
    """The filter, held to the jobs that the caller may see."""
    who = call.identity
    if who.tenant is not None:
        if where.tenant not in (None, who.tenant):
            raise Problem(403, "not-allowed", f"tenant must be {who.tenant!r} for this key")
        where = msgspec.structs.replace(where, tenant=who.tenant)
    return where if who.may(Need.SEE) else msgspec.structs.replace(where, caller=who.name)


async def show_job(call: Call) -> Reply:
    """One job with its attempts; with `wait`, when it has ended or the time is over."""
    wait = call.wait()
    job = await call.parts.endings.wait(await call.job(), wait)

    def tell() -> dict[str, Any]:
        ops = call.parts.ops()
        return told_document(job, ops.ties(job), ops.now())

    return Reply(200, await call.run(tell))


async def show_catalogue(call: Call) -> Reply:
    """Types with the schemas of their payloads, as far as the caller may use them."""

    def read() -> dict[str, Any]:
        types = [info for info in call.parts.store.types().values() if call.identity.takes(info.name)]
        return {"types": types, "settings": call.parts.store.settings()}

    return Reply(200, await call.run(read))


async def show_batch(call: Call) -> Reply:
    """How many jobs of a batch stand in which state."""
    name = call.path["id"]
    batch = await call.run(call.parts.ops().batch, name)
    if call.identity.tenant is not None or not call.identity.may(Need.SEE):
        where = own(call, Filter(batch=batch.id))
        if not await call.run(call.parts.store.count, where, limit=1):
            raise JobNotFound(name, "batch")
    return Reply(200, batch_document(batch))


# --- changing -----------------------------------------------------------------------------------


async def edit_job(call: Call) -> Reply:
    """Change the priority, time or payload of a job that waits."""
    form = await call.body(EditForm)
    job = await call.job()
    if form.run_at is not None and form.delay is not None:
        raise InvalidValue("run_at", form.run_at, "left out when delay is given")
    if form.priority is None and form.run_at is None and form.delay is None and form.payload == NOTHING:
        raise InvalidValue("body", "nothing to change", "an object with priority, run_at, delay or payload")
    payload = sent_payload(call, job.type, form.payload)

    def edit() -> Any:
        ops = call.parts.ops(call.identity)
        run_at = form.run_at
        if form.delay is not None:
            run_at = _after(ops.now(), parse_duration(form.delay, "delay"), form.delay)
        return ops.edit(job.id, priority=form.priority, run_at=run_at, payload=payload, why=form.why)

    return Reply(200, await call.run(edit))


def sent_payload(call: Call, job_type: str, raw: msgspec.Raw) -> dict[str, Any] | None:
    """Another payload for a job, if one was sent: as good as a new job, and not for who may not make one."""
    if raw == NOTHING:
        return None
    check_type_allowed(call, job_type)
    return parse(bytes(raw), "payload")


def _after(now: Any, delay: timedelta, said: object) -> Any:
    if delay > _LATEST:
        raise InvalidValue("delay", said, f"at most {_LATEST.days}d")
    return now + delay


async def cancel_job(call: Call) -> Reply:
    """Cancel a job that waits, or ask the worker of a running one to stop it."""
    form = await call.body(WhyForm)
    job = await call.job()
    return Reply(200, await call.run(call.parts.ops(call.identity).cancel, job.id, why=form.why))


_LATEST = timedelta(days=3650)
_READ_AT_ONCE = 200
_MOST_BYTES = 8 * 2**20
_ATTEMPT_BYTES = 4 * 1024
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
FILTER = {
    "state": "States, or one view (due, scheduled, retrying, waiting, stuck); may be repeated.",
    "type": "Types; may be repeated.",
    "tenant": "The tenant.",
    "key": "The key.",
    "error": "The last error's reason, or a text in it.",
    "older_than": "Enqueued longer ago than this, such as 10m.",
    "where": "A field of the payload, as in payload.user.id=42; may be repeated.",
}
PAGE = {
    "limit": "How many, 1 to 1000; fewer come, with a `next`, if they are large.",
    "cursor": "The `next` of the page before.",
}
ROUTES = (
    Route(
        method="POST",
        path="/api/v1/jobs",
        answer=enqueue,
        need=Need.PRODUCE,
        summary="Enqueue a job",
        takes=JobForm,
        gives={201: Accepted, 200: Accepted},
        refuses=(404, 409, 413, 415, 429),
    ),
    Route(
        method="GET",
        path="/api/v1/jobs",
        answer=list_jobs,
        need=Need.LOOK,
        summary="List jobs",
        gives={200: JobPage},
        query=FILTER | PAGE,
    ),
    Route(
        method="POST",
        path="/api/v1/jobs/batch",
        answer=enqueue_batch,
        need=Need.PRODUCE,
        summary="Enqueue up to 100 jobs, all or none",
        takes=BatchForm,
        gives={201: AcceptedBatch, 200: AcceptedBatch},
        body_limit=BATCH_LIMIT,
        refuses=(404, 409, 413, 415, 429),
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{id}",
        answer=show_job,
        need=Need.LOOK,
        summary="Show a job, by id or key",
        gives={200: ToldJob},
        query={"wait": "Wait so long for its end, such as 20s; a minute at most."},
        refuses=(404,),
    ),
    Route(
        method="PATCH",
        path="/api/v1/jobs/{id}",
        answer=edit_job,
        need=Need.ACT,
        summary="Change a job that waits",
        takes=EditForm,
        gives={200: ActedDocument},
        refuses=(404, 409, 413, 415),
    ),
    Route(
        method="POST",
        path="/api/v1/jobs/{id}/cancel",
        answer=cancel_job,
        need=Need.ACT,
        summary="Cancel a job",
        takes=WhyForm,
        gives={200: ActedDocument},
        refuses=(404, 409, 413, 415),
    ),
    Route(
        method="GET",
        path="/api/v1/catalogue",
        answer=show_catalogue,
        need=Need.LOOK,
        summary="Types with the schemas of their payloads",
        gives={200: CatalogueDocument},
    ),
    Route(
        method="GET",
        path="/api/v1/batches/{id}",
        answer=show_batch,
        need=Need.LOOK,
        summary="Show how far a batch has come",
        gives={200: BatchDocument},
        refuses=(404,),
    ),
)
