"""How does a worker in any language get jobs? It asks, and may wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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
from windlass.server.hints import happens, hints
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.schemas.leases import ClaimForm, lease_name, lease_span, split_lease
from windlass.server.settling import effective, end_leases, policy
from windlass.store.protocol import Claimed, Want

# A waiting worker is kept alive by its open request, and looks at least so often.
_LOOK_SECONDS = 1.0
_BEAT_SECONDS = 2.0
_AT_ONCE = timedelta(0)
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
    want = partial(_want, call, types, row, form, lease)
    drain = await call.run(call.parts.remote.is_draining, call.parts.store, row)
    end = monotonic() + wait
    async with call.parts.remote.turn(row, form.request, max(wait, _LOOK_SECONDS)) as ours:
        if call.broken_off:
            # Nobody would hear the answer: it must not count as one that was given.
            raise HungUp
        leases = await call.run(_known_before, call, form, row) if ours else []
        if ours and not leases and not drain:
            leases = await _wait_for_jobs(call, form.worker, want, end)
    told = await call.run(_told, call, leases, catalogue)
    return Reply(200, {"worker": row, "drain": drain, "leases": told})


def _wanted(call: Call, form: ClaimForm, catalogue: dict[str, TypeInfo]) -> dict[str, int]:
    for name in form.types:
        if name not in catalogue or name == SHELL:
            raise UnknownType(name, (known for known in catalogue if known != SHELL))
        if not call.identity.takes(name):
            raise Problem(403, "not-allowed", f"{call.identity.told} may not use jobs of type {name!r}")
    return {name: catalogue[name].schema_version for name in form.types}


def _want(call: Call, types: dict[str, int], row: str, form: ClaimForm, lease: timedelta) -> Want | None:
    """What it may have at this moment; None if all of it is held back."""
    want = call.parts.flow.want(types, worker=row, limit=form.limit, lease=lease)
    return None if want is None else msgspec.structs.replace(want, mark=_mark(row, form.request))


def _known_before(call: Call, form: ClaimForm, row: str) -> list[Lease]:
    """Leases of an answer that was lost: of the same request, or in the worker's name and not known to it."""
    if form.request is None and form.holding is None:
        return []
    held = call.parts.store.held_by(row)
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


async def _wait_for_jobs(call: Call, worker: str, want: _Wanting, end: float) -> list[Lease]:
    found = await _look(call, want)
    if found.leases or monotonic() >= end:
        return found.leases
    gone = asyncio.create_task(call.gone())
    try:
        async with hints(call.parts) as hint:
            return await _look_again(call, worker, want, end, hint, gone, found)
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
        due = _LOOK_SECONDS if found.again is None else found.again.total_seconds()
        await happens(hint, min(left, _LOOK_SECONDS, max(due, 0.01)))
        hint.clear()
        if gone.done():
            break
        if monotonic() - beaten >= _BEAT_SECONDS:
            beaten = monotonic()
            row = await call.run(call.parts.remote.beat, call.parts.store, call.identity, worker, None)
            if row is None:
                return []
        found = await _look(call, want)
        if found.leases:
            if gone.done() and not found.repeated:
                # Nobody is there to run them. What another server took has been told to whoever asked there.
                await call.run(end_leases, call.parts, found.leases, Unstarted())
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
    began = monotonic()
    found = store.claim(wanted)
    if found.repeated:
        return found
    flow.claimed(wanted, found.leases, monotonic() - began)
    aging = [lease for lease in found.leases if flow.ages(lease.job.type)]
    now = store.now() if aging else None
    late = [lease for lease in aging if now and is_overdue(lease.job, policy(call.parts, lease.job), now)]
    if not late:
        return found
    end_leases(call.parts, late, Overdue())
    return Claimed([lease for lease in found.leases if lease not in late], _AT_ONCE)


def _told(call: Call, leases: Sequence[Lease], catalogue: dict[str, TypeInfo]) -> list[dict[str, Any]]:
    if not leases:
        return []
    now = call.parts.store.now()
    held = settings.read(call.parts.store.settings())
    return [
        {
            "lease": lease_name(lease.id, lease.token),
            "until": lease.until,
            "timeout": effective(catalogue.get(lease.job.type), lease.job.type, held).timeout.total_seconds(),
            # As it is stored: a worker needs what people may not see.
            "job": job_document(lease.job, now) | {"payload": lease.job.payload},
        }
        for lease in leases
    ]
