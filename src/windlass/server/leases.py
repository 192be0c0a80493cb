"""Leases for workers in any language: claim jobs, extend them, and report how they ended.

Every write is fenced by the lease's token, as for our own workers: a worker that has lost its lease gets an
error, and nothing is written. Outcomes are decided as for our own workers, by what the catalogue says.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from windlass import outcome as ends
from windlass import settings
from windlass.checks import Problems
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, JobNotFound, LeaseLost, UnknownType, must_be
from windlass.job import MAX_RESULT, Error, Job, JobState, Keep, Lease, Reason, TypeInfo
from windlass.ops.actions import Need
from windlass.ops.document import job_document
from windlass.payload.codec import parse_value
from windlass.policy import check_in
from windlass.queue.jobs import happens
from windlass.registry import SHELL
from windlass.server import problems
from windlass.server import schemas as forms
from windlass.server.call import Call, HungUp, read_wait
from windlass.server.limits import Doing
from windlass.server.problems import Problem
from windlass.server.remote import belongs_to
from windlass.server.routes import BATCH_LIMIT, Reply, route
from windlass.server.schemas import NOTHING, ClaimForm, SettledDocument, lease_span, split_lease
from windlass.server.waiting import WaitingWorker
from windlass.spans import LONGEST_DELAY
from windlass.store.engine import Claimed, Settlement, Want
from windlass.worker.admission import policy_of

if TYPE_CHECKING:
    from windlass.server.parts import Parts

# The result of a run, by what its type keeps of it.
_ResultFor = Callable[[Keep], ends.Result]


def settle(parts: Parts, lease: Lease, result_for: _ResultFor, app: str = "") -> ends.Outcome | None:
    """The outcome; None if this lease was settled before. `app` is the release of the program that ran it."""
    store = parts.store
    now, job = store.now(), lease.job
    known = store.types().get(job.type)
    result = result_for(True if known is None else known.options.get("result", True))
    held = job.state is JobState.PROCESSING and lease.token in {
        each.token for each in store.held_by(lease.worker)
    }
    if job.request is not None and not isinstance(result, ends.Returned):
        # An operator's request holds: whatever ended the run, it is carried out.
        result = ends.Stopped(job.request)
    policy = policy_of(job.type, known, settings.read(store.settings()))
    outcome = ends.decide(job, result, policy, now=now, chance=random.random)
    ran = None if job.started_at is None or isinstance(result, ends.Unstarted) else now - job.started_at
    # Whichever worker ran it, one that knows the type checks what came of it.
    check = check_in(known.options, job.id) if known is not None and isinstance(outcome, ends.Done) else None
    flow = parts.flow
    tokens = flow.tokens(job.type) if isinstance(result, ends.Unstarted) else ()
    settlement = Settlement(lease, outcome, ran, check_in=check, app=app, tokens=tokens)
    if store.settle([settlement]):
        raise LeaseLost(job.id)
    if held:
        flow.settled(settlement)
    if not isinstance(outcome, ends.Done) or flow.admission.limited(job.type):
        parts.queue.wakeup.notify()
    return outcome if held else None


def end_leases(parts: Parts, leases: Sequence[Lease], result: ends.Result) -> None:
    """Settle leases whose worker is gone."""
    now, policy = parts.store.now(), _policies(parts)
    unstarted = isinstance(result, (ends.Unstarted, ends.Overdue))
    settled = []
    for lease in leases:
        outcome = ends.decide(lease.job, result, policy(lease.job), now=now, chance=random.random)
        tokens = parts.flow.tokens(lease.job.type) if unstarted else ()
        settled.append(Settlement(lease, outcome, tokens=tokens))
    parts.store.settle(settled)
    parts.queue.wakeup.notify()


def _policies(parts: Parts) -> Callable[[Job], ends.Policy]:
    """The policy of each job: what its type's code says in the catalogue, under what operators have set."""
    types, held = parts.store.types(), settings.read(parts.store.settings())
    return lambda job: policy_of(job.type, types.get(job.type), held)


# A waiting worker is kept alive by its open request, and looks at least so often.
_LOOK_SECONDS = 1.0
_AT_ONCE = timedelta(0)
# A worker over HTTP does not say what it can read: it is offered whatever others have left.
_READER = "http"
# A claim takes whatever is due, of any tenant: all of it is about the whole.
_work = partial(route, need=Need.WORK)
# What may be claimed now; asked with every query.
_Wanting = Callable[[], Want | None]


@_work("POST leases", "Claim jobs", forms.ClaimedDocument, takes=ClaimForm)
async def claim(call: Call) -> Reply:
    """Take due jobs, waiting for some if there are none."""
    wrong = Problems()
    form = await call.body(ClaimForm, wrong)
    with wrong:
        wait = read_wait(form.wait)
    with wrong:
        lease = lease_span(form.lease)
    wrong.check()
    catalogue, types, row, generation, drain = await call.run(_attend, call, form)
    fence = {"mark": _mark(row, form.request), "generation": generation}
    want = partial(call.parts.flow.want, types, limit=form.limit, worker=row, lease=lease, **fence)
    end = monotonic() + wait
    async with call.parts.remote.turn(row, form.request, max(wait, _LOOK_SECONDS)) as ours:
        if call.is_gone():
            # The caller has hung up: this must not count as an answer that was given.
            raise HungUp
        leases = await call.run(_known_before, call, form, row) if ours else []
        if ours and not leases and not drain:
            leases = await _wait_for_jobs(call, row, frozenset(types), want, end)
    documents = await call.run(_documents, call, leases, catalogue)
    return Reply(200, {"worker": row, "drain": drain, "leases": documents})


def _attend(call: Call, form: ClaimForm) -> tuple[dict[str, TypeInfo], dict[str, int], str, int, bool]:
    """The catalogue, the wanted types, the worker's row, the file that has it, and whether to drain."""
    store, parts = call.parts.store, call.parts
    catalogue = store.types()
    types = _wanted(call, form, catalogue)
    parts.flow.learn(catalogue)
    # Read first: if the file is replaced in between, the claim is refused and the worker asks again.
    generation = store.generation
    row = parts.remote.attend(
        store, call.identity, form.worker, form.types, slots=form.limit, host=call.address
    )
    return catalogue, types, row, generation, parts.remote.is_draining(store, row)


def _wanted(call: Call, form: ClaimForm, catalogue: dict[str, TypeInfo]) -> dict[str, int]:
    known = catalogue.keys() - {SHELL}
    unknown = [problems.of(UnknownType(name, known)) for name in form.types if name not in known]
    if unknown:
        raise problems.together(unknown)
    for name in form.types:
        if not call.identity.takes(name):
            raise Problem(403, "not-allowed", f"{call.identity.shown} may not use jobs of type {name!r}")
    return {name: catalogue[name].schema_version for name in form.types}


def _known_before(call: Call, form: ClaimForm, row: str) -> list[Lease]:
    """Leases of an answer that was lost: of the same request, or in the worker's name and not known to it."""
    if form.request is None and form.holding is None:
        return []
    # Another key of the service may have used this worker's name, for types that this key may not use.
    held = [lease for lease in call.parts.store.held_by(row) if call.identity.takes(lease.job.type)]
    mark = _mark(row, form.request)
    found = [lease for lease in held if mark is not None and _bare(lease.token).endswith(mark)]
    if not found and form.holding is not None:
        named = {_bare(split_lease(each)[1]) for each in form.holding}
        found = [lease for lease in held if _bare(lease.token) not in named][: form.limit]
    again = [lease for lease in found if call.parts.remote.may_repeat(lease)]
    if len(again) < len(found):
        kept = {lease.token for lease in again}
        worn = [lease for lease in found if lease.token not in kept]
        end_leases(call.parts, worn, ends.Lost(Reason.WORKER_LOST))
    return again


def _mark(row: str, request: str | None) -> str | None:
    """How the tokens of a request's leases end: any server finds them by that when it is sent again."""
    return None if request is None else sha256(f"{row}\0{request}".encode()).hexdigest()[:16]


def _bare(token: str) -> str:
    return token.replace("-", "")


async def _wait_for_jobs(
    call: Call, worker: str, types: frozenset[str], want: _Wanting, end: float
) -> list[Lease]:
    found = await call.run(_claimed, call, want)
    if found.leases or monotonic() >= end:
        return found.leases
    async with call.parts.waiting_workers.place(types, worker) as place:
        with call.waiting(Doing.CLAIMING, place.woken.set):
            return await _look_again(call, want, end, place, found)


async def _look_again(
    call: Call, want: _Wanting, end: float, place: WaitingWorker, found: Claimed
) -> list[Lease]:
    """Look whenever it is our turn, until there are jobs, the time is over, or the caller interrupts."""
    while not (call.is_interrupted() or place.lost or call.parts.stopping.is_set()):
        if (left := end - monotonic()) <= 0:
            break
        due = _LOOK_SECONDS if found.again is None else max(found.again.total_seconds(), 0.01)
        await happens(place.woken, min(left, _LOOK_SECONDS, due) if place.first else left)
        place.woken.clear()
        if call.is_interrupted() or not place.first:
            continue
        found = await call.run(_claimed, call, want)
        if found.leases:
            if call.is_gone() and not found.repeated:
                # The caller has hung up. What another server claimed was sent to the caller there.
                await call.parts.run(end_leases, call.parts, found.leases, ends.Unstarted())
                raise HungUp
            return found.leases
    if call.is_gone():
        raise HungUp
    return []


def _claimed(call: Call, want: _Wanting) -> Claimed:
    """Take what is due, as far as nothing holds it back at this moment; what is too old to run ends here."""
    wanted, store, flow = want(), call.parts.store, call.parts.flow
    if wanted is None:
        return Claimed([])
    began = monotonic()
    found = store.claim(wanted)
    if found.repeated:
        # The leases of an earlier request of that name, which another key of the service may have sent.
        allowed = [lease for lease in found.leases if call.identity.takes(lease.job.type)]
        return msgspec.structs.replace(found, leases=allowed)
    if not found.leases and store.has_unread(wanted.types, _READER):
        found = store.claim(msgspec.structs.replace(wanted, reader=_READER))
    flow.claimed(wanted, found.leases, monotonic() - began)
    aging = [lease for lease in found.leases if flow.ages(lease.job.type)]
    if not aging:
        return found
    now, policy = store.now(), _policies(call.parts)
    late = [lease for lease in aging if ends.is_overdue(lease.job, policy(lease.job), now)]
    if not late:
        return found
    end_leases(call.parts, late, ends.Overdue())
    return Claimed([lease for lease in found.leases if lease not in late], _AT_ONCE)


def _documents(call: Call, leases: Sequence[Lease], catalogue: dict[str, TypeInfo]) -> list[dict[str, Any]]:
    if not leases:
        return []
    now = call.parts.store.now()
    held = settings.read(call.parts.store.settings())

    def timeout(name: str) -> float:
        options = catalogue[name].options if name in catalogue else {}
        return held.of_type(name, options).run.timeout.total_seconds()

    return [
        {
            "lease": f"{lease.id}.{lease.token}",
            "until": lease.until,
            "timeout": timeout(lease.job.type),
            # As it is stored: a worker needs what people may not see.
            "job": msgspec.structs.replace(job_document(lease.job, now), payload=lease.job.payload),
        }
        for lease in leases
    ]


_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 8_000

# --- settling -----------------------------------------------------------------------------------


# A result that is too large to be kept must not keep a job from being completed.
@_work(
    "POST leases/{lease}/complete",
    "Say that a job is done",
    SettledDocument,
    takes=forms.CompleteForm,
    body_limit=BATCH_LIMIT,
)
async def complete(call: Call) -> Reply:
    """A job is done."""
    form = await call.body(forms.CompleteForm)
    return await _settle(call, partial(_returned, form.result), form.version, completes=True)


def _returned(result: msgspec.Raw, keep: Keep) -> ends.Returned:
    """What is kept of a result: the work is done, whether or not it can be kept."""
    if result == NOTHING or keep is False:
        return ends.Returned()
    try:
        data = msgspec.json.encode(parse_value(bytes(result), "result"))
        if len(data) > MAX_RESULT:
            raise must_be("result", f"{len(data)} bytes", f"at most {MAX_RESULT} bytes as JSON")
        return ends.Returned(data)
    except InvalidValue as error:
        if keep == "required":
            raise
        return ends.Returned(missing=ends.clean(str(error), _LONGEST_MESSAGE))


@_work("POST leases/{lease}/fail", "Say that an attempt failed", SettledDocument, takes=forms.FailForm)
async def fail(call: Call) -> Reply:
    """An attempt failed: another one follows by the type's policy, or none."""
    form = await call.body(forms.FailForm)
    error = Error(
        Reason.EXCEPTION,
        None if form.kind is None else ends.clean(form.kind, _LONGEST_MESSAGE),
        ends.clean(form.message, _LONGEST_MESSAGE),
        None if form.traceback is None else ends.clean_end(form.traceback, _LONGEST_TRACEBACK),
    )
    delay = None if form.delay is None else parse_duration(form.delay, "delay", LONGEST_DELAY)
    failed = ends.Failed(error, "retry" if form.retryable else "fatal", (), delay)
    return await _settle(call, lambda _: failed, form.version)


@_work("POST leases/{lease}/release", "Give a job back", SettledDocument, takes=forms.ReleaseForm)
async def release(call: Call) -> Reply:
    """A job is given back; the attempt is not counted."""
    form = await call.body(forms.ReleaseForm)
    return await _settle(call, lambda _: ends.Interrupted() if form.started else ends.Unstarted())


async def _settle(call: Call, result: _ResultFor, app: str = "", *, completes: bool = False) -> Reply:
    lease = await _lease(call)
    outcome = await call.run(settle, call.parts, lease, result, app)
    if outcome is None:
        job = await call.run(call.parts.store.get, lease.id, caller=None)
        completed = job is None or job.state is JobState.COMPLETED
        if job is not None and completes != completed:
            how = "was completed" if completed else "was failed or given back"
            raise Problem(409, "wrong-state", f"job {lease.id} {how} by this lease before", job=lease.id)
        return Reply(200, SettledDocument(id=lease.id, outcome="repeated"))
    delay = outcome.delay.total_seconds() if isinstance(outcome, ends.Again) else None
    missing = outcome.missing if isinstance(outcome, ends.Done) else None
    name = type(outcome).__name__.lower()
    return Reply(200, SettledDocument(id=lease.id, outcome=name, delay=delay, result_missing=missing))


# --- keeping ------------------------------------------------------------------------------------


@_work("POST leases/{lease}/extend", "Keep a job for longer", forms.ExtendedDocument, takes=forms.ExtendForm)
async def extend(call: Call) -> Reply:
    """A job takes longer; the answer says what an operator asks of it."""
    form = await call.body(forms.ExtendForm)
    span = lease_span(form.lease)
    lease = await _lease(call)
    kept, _ = await call.run(call.parts.store.extend, [lease], span)
    if not kept:
        raise LeaseLost(lease.id)
    return Reply(200, _extended(kept[0]))


@_work("POST workers/{id}/beat", "Say that a worker is alive", forms.BeatDocument, takes=forms.BeatForm)
async def beat(call: Call) -> Reply:
    """A worker is alive, and keeps these leases."""
    form = await call.body(forms.BeatForm)
    name = call.path["id"]
    if not re.fullmatch(forms.WORKER, name):
        raise must_be("worker", name, "up to 64 letters, digits, _, . or -, a letter or digit first")
    return Reply(200, await call.run(_beaten, call, name, form))


def _beaten(call: Call, name: str, form: forms.BeatForm) -> dict[str, Any]:
    store, remote = call.parts.store, call.parts.remote
    row = remote.beat(store, call.identity, name, form.busy)
    if row is None:
        detail = f"no worker {name!r} of {call.identity.shown} is alive; claim again"
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


def _extended(lease: Lease) -> forms.ExtendedDocument:
    name = f"{lease.id}.{lease.token}"
    return forms.ExtendedDocument(lease=name, until=lease.until, request=lease.job.request)


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
