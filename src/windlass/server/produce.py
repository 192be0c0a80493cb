"""Enqueue jobs. The answer leaves after the durable commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid5

import msgspec

from windlass import errors
from windlass.checks import Problems, Wrong, check_text, read_moment
from windlass.clock import uuid7
from windlass.errors import InvalidValue, JobNotFound, WindlassError, must_be
from windlass.job import MAX_BATCH_NAME, JobState, NewJob
from windlass.observe import names, tracing
from windlass.ops.actions import Need, Option
from windlass.queue.jobs import TRACEPARENT, choose
from windlass.queue.producer import NotAtHand
from windlass.registry import SENT_SHELL, SHELL
from windlass.server import problems
from windlass.server.call import NDJSON, Call
from windlass.server.forms import MOST_PROBLEMS
from windlass.server.group_commit import Make, Stored, standing
from windlass.server.identity import check_own_batch, check_type_allowed
from windlass.server.problems import Problem
from windlass.server.routes import BATCH_LIMIT, BODY_LIMIT, BULK_LIMIT, Reply, route
from windlass.server.schemas import MOST_BULK, UUID_PATTERN, Accepted, AcceptedBatch, BatchForm, JobForm
from windlass.store.chains import NewBatch
from windlass.store.engine import Enqueued

Draft = Callable[[str, bytes, Mapping[str, Any]], NewJob]
# What is read and checked within a moment. More is left to the thread: the loop has others to answer.
_SMALL = 32 * 1024


_produce = partial(route, need=Need.PRODUCE, refuses=(404, 409, 413, 415, 429))


@_produce("POST jobs", "Enqueue a job", {201: Accepted, 200: Accepted}, takes=JobForm)
async def enqueue(call: Call) -> Reply:
    """Store one job; the answer leaves after the durable commit."""
    wrong = Problems()
    form = await call.body(JobForm, wrong)
    await _check_form(call, [form], [problems.of(each) for each in wrong.found])
    refusal = _over_rate(call, [form])
    with _span(call, [form]) as trace:
        make = await _maker(call, [form], refusal, trace=trace)
        stored = await call.parts.commits.accept(make, call.is_gone)
    _note(call, stored)
    [job] = _accepted([form], stored)
    headers = {b"location": f"/api/v1/jobs/{job.id}".encode()}
    return Reply(201 if job.created else 200, job, headers=headers)


_BATCH = {201: AcceptedBatch, 200: AcceptedBatch}


@_produce(
    "POST jobs/batch", "Enqueue up to 100 jobs, all or none", _BATCH, takes=BatchForm, body_limit=BATCH_LIMIT
)
async def enqueue_batch(call: Call) -> Reply:
    """Store up to 100 jobs, all or none."""
    wrong = Problems()
    form = await call.body(BatchForm, wrong)
    with wrong:
        if form.batch is None and form.batch_id is not None and not wrong.knows("batch"):
            raise must_be("batch_id", form.batch_id, "given together with batch, the name")
    await _check_form(call, form.jobs, [problems.of(each) for each in wrong.found], batch=True)
    return await _enqueue_all(call, form)


@_produce(
    "POST jobs/bulk",
    "Enqueue up to 10,000 jobs, all or none",
    _BATCH,
    takes=JobForm,
    accepts=NDJSON,
    body_limit=BULK_LIMIT,
)
async def enqueue_bulk(
    call: Call,
    *,
    batch: Annotated[
        str | None, Option("Make them one batch of this name, whose progress can be asked for.")
    ] = None,
    batch_id: Annotated[
        str | None, Option("A UUID of your own for a new batch, or the id of one that has not ended.")
    ] = None,
) -> Reply:
    """Store up to 10,000 jobs, all or none: one job (JobForm) a line. A refusal names the line.

    Sent again with the same Idempotency-Key, keys or ids, it makes no second job. With `batch` the jobs are
    one batch; with the `batch_id` of a batch that has not ended they are added to it.
    """
    refused: list[Problem] = []
    if batch_id is not None and not re.fullmatch(UUID_PATTERN, batch_id):
        refused.append(problems.of(must_be("batch_id", batch_id, "a UUID in lower case")))
    forms = await call.lines(JobForm, refused, most=MOST_BULK, longest=BODY_LIMIT)
    await _check_form(call, forms, refused, batch=True)
    form = BatchForm(jobs=tuple(filter(None, forms)), batch=batch, batch_id=batch_id)
    try:
        return await _enqueue_all(call, form, bulk=True)
    except errors.Refused as error:
        raise problems.of(error, line=True) from error


async def _check_form(
    call: Call, forms: Sequence[JobForm | None], refused: list[Problem], *, batch: bool = False
) -> None:
    """Refuse a request of which something was refused already, with all else that is wrong with its jobs."""
    if refused:
        await call.run_long(_drafts, call, forms, batch=batch, trace=None, refused=refused)


async def _enqueue_all(call: Call, form: BatchForm, *, bulk: bool = False) -> Reply:
    refusal = _over_rate(call, form.jobs)
    batch: NewBatch | None = None
    with _span(call, form.jobs) as trace:
        make = await _maker(call, form.jobs, refusal, batch=True, trace=trace)
        if form.batch is not None or form.batch_id is not None:
            name = check_text("batch", form.batch or "", MAX_BATCH_NAME, least=0)
            batch = NewBatch(id=_batch_id(call, form), name=name, extends=bulk)
        if bulk or batch is not None:
            stored = await call.run(_store, call, make, batch, is_new=form.batch is not None)
        else:
            stored = await call.parts.commits.accept(make, call.is_gone, len(form.jobs))
    _note(call, stored)
    status = 201 if any(each.created for each in stored.done) else 200
    jobs = _accepted(form.jobs, stored)
    return Reply(status, AcceptedBatch(jobs=jobs, batch=None if batch is None else batch.id))


def _note(call: Call, stored: Stored) -> None:
    """Count the jobs that came in from a service, if they came with its key."""
    service = call.parts.keyring.label(call.identity)
    if service:
        created = sum(each.created for each in stored.done)
        call.parts.flow.ledger.count(names.of_service(service, names.ENQUEUED), created)


def _store(call: Call, make: Make, batch: NewBatch | None, *, is_new: bool) -> Stored:
    """Store jobs by themselves, as a new batch, or together with those of a batch that is there."""
    store, drafts = call.parts.store, make()
    done: Sequence[Enqueued] | None = None
    if batch is None:
        done = store.enqueue(drafts)
    elif store.batch(batch.id) is None:
        if not is_new:
            raise JobNotFound(batch.id, "batch")
        try:
            done = store.enqueue_batch(batch, drafts)
        except Exception:  # wall: sent again while the first one was under way, perhaps to another server
            if store.batch(batch.id) is None:
                raise
    if batch is not None and done is None:
        done = _store_into_known(call, batch, drafts)
    if batch is not None or any(each.due for each in done or ()):
        call.parts.queue.wakeup.notify()
    return Stored(done or (), standing(store, done or ()))


def _store_into_known(call: Call, batch: NewBatch, drafts: Sequence[NewJob]) -> Sequence[Enqueued]:
    """Add jobs to a batch of the caller; if it takes no more, the same jobs again are found by id or key."""
    store = call.parts.store
    if batch.extends:
        check_own_batch(call, batch.id)
        return store.enqueue_batch(batch, drafts)
    # A unique name may have been answered with another job.
    if not store.accepted([draft for draft in drafts if draft.unique is None]):
        detail = f"batch {batch.id} is there already, without these jobs; a new one needs another id"
        raise Problem(409, "id-conflict", detail)
    return store.enqueue(drafts)


def _batch_id(call: Call, form: BatchForm) -> str:
    """The batch's own id, or one made of the keys: the same keys again mean the same batch."""
    if form.batch_id is not None:
        return form.batch_id
    header = call.request_key()
    keys = [job.key for job in form.jobs]
    if header is None and None in keys:
        return uuid7()
    # The request's key is no job's: the two kinds are kept apart, also where they read the same.
    scope: list[object] = [call.identity.name, header if header is not None else keys]
    tenants = sorted({_tenant(call, job, None) or "" for job in form.jobs})
    if tenants != [""]:
        scope.append(tenants)
    return str(uuid5(_BATCHES, msgspec.json.encode(scope).decode()))


def _span(call: Call, forms: Sequence[JobForm]) -> AbstractContextManager[str | None]:
    """A span for the request, if this server traces: part of the producer's trace."""
    if not tracing.on():
        return _NO_SPAN
    given = next((form.traceparent for form in forms if form.traceparent), None)
    parent = given if given is not None and TRACEPARENT.fullmatch(given) else _traceparent(call)
    return tracing.serving(call.route.method, call.route.path, parent)


def _over_rate(call: Call, forms: Sequence[JobForm]) -> Problem | None:
    """Count jobs against a rate; too many are refused, unless all have keys or ids, as repeats do."""
    try:
        call.parts.rates.spend(call.identity, len(forms))
    except Problem as refusal:
        if call.request_key() is None and any(form.key is None and form.id is None for form in forms):
            raise
        return refusal
    return None


async def _maker(
    call: Call,
    forms: Sequence[JobForm],
    refusal: Problem | None,
    *,
    batch: bool = False,
    trace: str | None = None,
) -> Make:
    """What makes the jobs of a request, where the store may be waited for: a type may be news.

    Most need nothing that is not known here. They are made at once, while the store is busy with those before
    them, and only the queue's depth is left to be looked at. Large ones are made on a thread of their own, or
    all others would wait behind them. With a `refusal` nothing is made: jobs that were accepted before are
    answered with, and others are refused.
    """
    queue = call.parts.queue
    if call.size > _SMALL:
        large = await call.run_long(_drafts, call, forms, batch=batch, trace=trace)
        return partial(_admitted, call, large, refusal)
    if not any(form.depends_on for form in forms):
        # What is refused here is looked at once more below, where everything that is wrong is found.
        with suppress(NotAtHand, WindlassError):
            drafts = [
                _draft(call, form, queue.draft_at_hand, index if batch else None, trace)
                for index, form in enumerate(forms)
            ]
            return partial(_admitted, call, drafts, refusal)
    return lambda: _admitted(call, _drafts(call, forms, batch=batch, trace=trace), refusal)


def _admitted(call: Call, drafts: Sequence[NewJob], refusal: Problem | None) -> Sequence[NewJob]:
    if refusal is None:
        call.parts.queue.admit(drafts)
    elif not call.parts.store.accepted(drafts):
        raise refusal
    return drafts


def _drafts(
    call: Call,
    forms: Sequence[JobForm | None],
    *,
    batch: bool,
    trace: str | None,
    refused: Sequence[Problem] = (),
) -> Sequence[NewJob]:
    """The jobs as they will be stored, or a refusal that lists what is wrong with any of them.

    With what was `refused` already: the forms are without that, and None if nothing of it could be read.
    """
    draft = call.parts.queue.draft_sent
    drafts: list[NewJob] = []
    refusals, before = list(refused), Problems()
    before.known = {each.field for problem in refused for each in problem.document.errors}
    for index, form in enumerate(forms):
        place = index if batch else None
        if form is None:
            continue
        try:
            drafts.append(_draft(call, form, draft, place, trace))
        except errors.StoreError:
            # About the store, and not about this job.
            raise
        except WindlassError as error:
            found = _problems(form, draft, error)
            line = call.route.accepts == NDJSON
            wrong = [problems.of(_as_sent(each), index=place, line=line) for each in found]
            refusals += [
                each for each in wrong if not any(before.knows(said.field) for said in each.document.errors)
            ]
            if len(refusals) >= MOST_PROBLEMS:
                break
    if refusals:
        raise problems.together(refusals)
    return drafts


def _problems(form: JobForm, draft: Draft, first: WindlassError) -> list[WindlassError]:
    """What is wrong with a job: each of its options is tried alone, and so is its payload."""
    if not isinstance(first, Wrong):
        return [first]
    others = Problems()
    said = {name: value for name, value in _said(form).items() if name not in ("depends_on", "unique")}
    checks: list[Callable[[], object]] = [
        partial(lambda each: choose(_in_words(each)), {name: said[name]}) for name in said
    ]
    if isinstance(first, InvalidValue):
        # Read once more and not for each option: a large payload holds up everybody's.
        checks.append(partial(draft, form.type, bytes(form.payload), {}))
    for check in checks:
        # What is refused for another reason is no problem of a value.
        with suppress(WindlassError), others:
            check()
    return list({str(error): error for error in (first, *others.found)}.values())


def _as_sent(error: WindlassError) -> WindlassError:
    """The error in the words of the form, where those of the library are others."""
    if isinstance(error, InvalidValue) and error.field == "at":
        message = str(error).replace("at= and delay=", "at and delay").replace("at", "run_at", 1)
        return InvalidValue(message, field="run_at", value=error.value, allowed=error.allowed)
    return error


def _draft(call: Call, form: JobForm, draft: Draft, index: int | None, trace: str | None) -> NewJob:
    who = call.identity
    if form.type:
        check_type_allowed(call, form.type, index)
    options = _in_words(_said(form))
    key, tenant = _key(call, form, index), _tenant(call, form, index)
    trace = form.traceparent or trace or _traceparent(call)
    if key is not None:
        options["key"] = key
    if tenant is not None:
        options["tenant"] = tenant
    if trace is not None:
        options["traceparent"] = trace
    if form.depends_on is not None:
        options["depends_on"] = _parents(call, form, tenant or "")
    made = draft(form.type, bytes(form.payload), options)
    if form.type == SHELL:
        made = msgspec.structs.replace(made, schema_version=SENT_SHELL)
    return msgspec.structs.replace(made, caller=who.name) if who.name else made


def _said(form: JobForm) -> dict[str, Any]:
    """What a form says of its job. Most say nothing, and that is seen in one look."""
    said = msgspec.structs.astuple(form)[_OPTIONS]
    if said == _UNSAID:
        return {}
    names = zip(JobForm.__struct_fields__[_OPTIONS], said, _UNSAID, strict=True)
    return {name: value for name, value, unsaid in names if value != unsaid}


def _in_words(said: dict[str, Any]) -> dict[str, Any]:
    """The same in the words of the library."""
    if "run_at" in said:
        said["at"] = read_moment(said.pop("run_at"), "run_at")
    return said


def _key(call: Call, form: JobForm, index: int | None) -> str | None:
    """The job's key: its own, or the request's, with the job's place in a batch behind it."""
    header = call.request_key()
    if header is None:
        return form.key
    if index is not None:
        return form.key or f"{header}:{index}"
    if form.key not in (None, header):
        raise must_be("key", form.key, f"the same as Idempotency-Key, which is {header!r}")
    return header


def _tenant(call: Call, form: JobForm, index: int | None) -> str | None:
    """The job's tenant: the one that the caller is bound to, or else any."""
    bound = call.identity.tenant
    if bound is None:
        return form.tenant
    if form.tenant not in (None, bound):
        detail = f"tenant must be {bound!r} for this key, got {form.tenant!r}"
        raise Problem(403, "not-allowed", detail, index=index)
    return bound


def _parents(call: Call, form: JobForm, tenant: str) -> tuple[str, ...] | None:
    """What a job waits for. Others' jobs are not there for who may not see them."""
    who = call.identity
    if form.depends_on and (who.tenant is not None or not who.may(Need.SEE)):
        for name in form.depends_on:
            # One of the same batch is not there yet, and the caller's own.
            jobs = call.parts.store.named(name, caller=who.name, tenant=tenant)
            if jobs and not any(who.sees(job) for job in jobs):
                raise JobNotFound(name)
    return form.depends_on


def _traceparent(call: Call) -> str | None:
    """The trace in the header. One that is malformed is ignored: tracing must not cost a job."""
    header = call.header(b"traceparent")
    return header if header is not None and TRACEPARENT.fullmatch(header) else None


def _accepted(forms: Sequence[JobForm], stored: Stored) -> list[Accepted]:
    """What is stored; of what was there before, its state now."""
    found: list[Accepted] = []
    for form, each in zip(forms, stored.done, strict=True):
        job = stored.before.get(each.id)
        kind, state = (form.type, JobState.PENDING) if job is None else (job.type, job.state)
        found.append(Accepted(id=each.id, type=kind, state=state, key=each.key, created=each.created))
    return found


# Of a form's fields, those behind type and payload; and their values if nothing is said.
_OPTIONS = slice(2, None)
_UNSAID = msgspec.structs.astuple(JobForm(type="any"))[_OPTIONS]
# Where the ids of batches come from that are named by keys.
_BATCHES = UUID("6c1f1f0e-8f0b-4f8e-9d57-2b7d9a1c5e42")
_NO_SPAN = nullcontext()
