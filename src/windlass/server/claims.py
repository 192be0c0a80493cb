"""How does a worker in any language get jobs? It asks, and may wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any

import msgspec

from windlass import settings
from windlass.errors import UnknownType
from windlass.job import Lease, Reason, TypeInfo
from windlass.ops.document import job_document
from windlass.outcome import Lost, Overdue, Unstarted, is_overdue
from windlass.registry import SHELL
from windlass.server.call import Call, HungUp, read_wait
from windlass.server.crowd import Doing
from windlass.server.hints import happens
from windlass.server.lines import Place
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.schemas.leases import ClaimForm, lease_name, lease_span, split_lease
from windlass.server.settling import end_leases, policy
from windlass.store.protocol import Claimed, Want

# A waiting worker is kept alive by its open request, and looks at least so often.
_LOOK_SECONDS = 1.0
_AT_ONCE = timedelta(0)
# A worker over HTTP does not say what it can read: it is offered whatever others have left.
_READER = "http"
# What may be claimed is asked anew with every look.
_Wanting = Callable[[], Want | None]


async def claim(call: Call) -> Reply:
    """Take due jobs, waiting for some if there are none."""
    form = await call.body(ClaimForm)
    wait = read_wait(form.wait)
    lease = lease_span(form.lease)
    catalogue = await call.run(call.parts.store.types)
    types = _wanted(call, form, catalogue)
    await call.run(call.parts.flow.learn, catalogue)
    row, generation = await call.run(_attend, call, form)
    want = partial(_want, call, types, row, form, lease, generation)
    drain = await call.run(call.parts.remote.is_draining, call.parts.store, row)
    end = monotonic() + wait
    async with call.parts.remote.turn(row, form.request, max(wait, _LOOK_SECONDS)) as ours:
        if call.is_gone():
            # Nobody would hear the answer: it must not count as one that was given.
            raise HungUp
        leases = await call.run(_known_before, call, form, row) if ours else []
        if ours and not leases and not drain:
            leases = await _wait_for_jobs(call, row, frozenset(types), want, end)
    told = await call.run(_told, call, leases, catalogue)
    return Reply(200, {"worker": row, "drain": drain, "leases": told})


def _attend(call: Call, form: ClaimForm) -> tuple[str, int]:
    """The worker's row, and the file of the store that has it."""
    store = call.parts.store
    # Read first: if the file is replaced in between, the claim is refused and the worker asks again.
    generation = store.generation
    row = call.parts.remote.attend(
        store, call.identity, form.worker, form.types, slots=form.limit, host=call.address
    )
    return row, generation


def _wanted(call: Call, form: ClaimForm, catalogue: dict[str, TypeInfo]) -> dict[str, int]:
    for name in form.types:
        if name not in catalogue or name == SHELL:
            raise UnknownType(name, (known for known in catalogue if known != SHELL))
        if not call.identity.takes(name):
            raise Problem(403, "not-allowed", f"{call.identity.told} may not use jobs of type {name!r}")
    return {name: catalogue[name].schema_version for name in form.types}


def _want(
    call: Call, types: dict[str, int], row: str, form: ClaimForm, lease: timedelta, generation: int
) -> Want | None:
    """What it may have at this moment; None if all of it is held back."""
    want = call.parts.flow.want(types, worker=row, limit=form.limit, lease=lease)
    if want is None:
        return None
    return msgspec.structs.replace(want, mark=_mark(row, form.request), generation=generation)


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
    again = [lease for lease in found if call.parts.remote.tell_again(lease)]
    if len(again) < len(found):
        told = {lease.token for lease in again}
        worn = [lease for lease in found if lease.token not in told]
        end_leases(call.parts, worn, Lost(Reason.WORKER_LOST))
    return again


def _mark(row: str, request: str | None) -> str | None:
    """How the tokens of a request's leases end: any server finds them by that when it is sent again."""
    return None if request is None else sha256(f"{row}\0{request}".encode()).hexdigest()[:16]


def _bare(token: str) -> str:
    return token.replace("-", "")


async def _wait_for_jobs(
    call: Call, worker: str, types: frozenset[str], want: _Wanting, end: float
) -> list[Lease]:
    found = await _look(call, want)
    if found.leases or monotonic() >= end:
        return found.leases
    async with call.parts.lines.place(types, worker) as place:
        with call.waiting(Doing.CLAIMING, place.woken.set):
            return await _look_again(call, want, end, place, found)


async def _look_again(call: Call, want: _Wanting, end: float, place: Place, found: Claimed) -> list[Lease]:
    """Look whenever it is our turn, until there are jobs, the time is over, or the caller interrupts."""
    while not (call.is_interrupted() or place.lost or call.parts.stopping.is_set()):
        if (left := end - monotonic()) <= 0:
            break
        due = _LOOK_SECONDS if found.again is None else max(found.again.total_seconds(), 0.01)
        await happens(place.woken, min(left, _LOOK_SECONDS, due) if place.first else left)
        place.woken.clear()
        if call.is_interrupted() or not place.first:
            continue
        found = await _look(call, want)
        if found.leases:
            if call.is_gone() and not found.repeated:
                # Nobody is there to run them. What another server took has been told to whoever asked there.
                await call.parts.run(end_leases, call.parts, found.leases, Unstarted())
                raise HungUp
            return found.leases
    if call.is_gone():
        raise HungUp
    return []


async def _look(call: Call, want: _Wanting) -> Claimed:
    return await call.run(_claimed, call, want)


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
    now = store.now() if aging else None
    late = [lease for lease in aging if now and is_overdue(lease.job, policy(call.parts, lease.job), now)]
    if not late:
        return found
    end_leases(call.parts, late, Overdue())
    return Claimed([lease for lease in found.leases if lease not in late], _AT_ONCE)


def _timeout(catalogue: Mapping[str, TypeInfo], job_type: str, held: settings.Settings) -> float:
    known = catalogue.get(job_type)
    return held.of_type(job_type, {} if known is None else known.options).run.timeout.total_seconds()


def _told(call: Call, leases: Sequence[Lease], catalogue: dict[str, TypeInfo]) -> list[dict[str, Any]]:
    if not leases:
        return []
    now = call.parts.store.now()
    held = settings.read(call.parts.store.settings())
    return [
        {
            "lease": lease_name(lease.id, lease.token),
            "until": lease.until,
            "timeout": _timeout(catalogue, lease.job.type, held),
            # As it is stored: a worker needs what people may not see.
            "job": job_document(lease.job, now) | {"payload": lease.job.payload},
        }
        for lease in leases
    ]
