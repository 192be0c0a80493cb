"""What can operators do over HTTP? Every verb of ops, translated; a test keeps the two equal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.checks import check_limit_key, check_type
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.ops import Bulk, Overview
from windlass.ops.bulk import summed_up
from windlass.ops.document import audit_document, plain, worker_document
from windlass.ops.filters import read_filter
from windlass.server.actions import BulkActionForm, bulk_arguments
from windlass.server.call import Call, HungUp
from windlass.server.identity import Need, check_own_operation, is_own, own
from windlass.server.limits import Doing
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.routes import NAMED, PAGE, look, verb
from windlass.server.schemas import WhyForm
from windlass.server.schemas.access import AuditDocument
from windlass.server.schemas.actions import FilterForm, OperationsDocument
from windlass.server.schemas.stats import DrainedDocument, WorkersDocument
from windlass.server.schemas.types import (
    BreakerForm,
    ResumedDocument,
    SettingsDocument,
    SettingsForm,
    SettingText,
    TypeForm,
    TypesDocument,
)
from windlass.server.waiting import happens
from windlass.settings import ALL, KEY, SECRET
from windlass.store.flow import Breaker, Pause
from windlass.store.jobs import Filter
from windlass.store.operations import Operation, State

# --- jobs ---------------------------------------------------------------------------------------


async def act_on_jobs(call: Call) -> Reply:
    """Start an operation: one action for every job that a filter chooses. A dry run only counts them.

    The answer comes when the operation has ended, or with `Prefer: respond-async` at once. It goes on though
    the caller hangs up or the server stops.
    """
    form = await call.body(BulkActionForm)
    arguments = bulk_arguments(form)
    where = _filter(call, form.filter)
    operations = call.ops(form).operations
    if form.dry_run:
        return Reply(200, await call.run(operations.count, form.action, where, limit=form.limit))
    begun = await call.run(
        operations.start, form.action, where, limit=form.limit, rate=form.rate, why=form.why, **arguments
    )
    call.parts.carrier.loop.wake()
    if _ASYNC.search(call.header(b"prefer") or ""):
        place = f"/api/v1/operations/{begun.id}".encode()
        return Reply(202, begun, headers={b"location": place, b"preference-applied": b"respond-async"})
    ended = await _until_ended(call, begun)
    if ended.state is State.FAILED:
        raise Problem(500, "internal", f"operation {ended.id} failed: {ended.error}")
    if not ended.state.ended:
        detail = f"the server stops: operation {ended.id} goes on in another process, or when it is back"
        raise Problem(503, "stopping", detail, headers={b"retry-after": b"1"})
    return Reply(200, summed_up(ended))


async def _until_ended(call: Call, begun: Operation) -> Operation:
    """The operation when it has ended, or as it is when the server stops."""
    found, pause, over = begun, _FIRST_LOOK, asyncio.Event()

    def look() -> None:
        if call.is_gone():
            over.set()

    with call.waiting(Doing.WAITING, look):
        while not found.state.ended and not call.parts.stopping.is_set():
            if await happens(over, pause):
                raise HungUp
            pause = min(2 * pause, _LAST_LOOK)
            found = await call.run(call.parts.store.operation, begun.id)
    return found


async def list_operations(call: Call) -> Reply:
    """The newest operations; a key that belongs to a tenant sees those on that tenant's jobs."""
    found = await call.run(call.parts.ops().operations.list, limit=call.whole("limit", 50, 1, 1000))
    return Reply(200, OperationsDocument(operations=[each for each in found if is_own(call, each)]))


async def show_operation(call: Call) -> Reply:
    """One operation and how far it has come."""
    return Reply(200, await call.run(check_own_operation, call))


def _filter(call: Call, form: FilterForm) -> Filter:
    if form == FilterForm():
        allowed = "an object with at least one condition"
        raise InvalidValue("filter needs at least one condition", field="filter", value="{}", allowed=allowed)
    for each in form.ids:
        if not _UUID.fullmatch(each):
            raise must_be("filter.ids", each, "ids of jobs, which are UUIDs")
    return own(
        call,
        read_filter(
            ids=form.ids,
            types=form.type,
            states=form.state,
            tenant=form.tenant,
            key=form.key,
            error=form.error,
            older_than=None if form.older_than is None else parse_duration(form.older_than, "older_than"),
            where=[(tuple(path.split(".")), value) for path, value in form.where.items()],
        ),
    )


# --- types, settings, workers -------------------------------------------------------------------


async def show_stats(call: Call) -> Reply:
    """One look at jobs, types and workers, with what is wrong in words."""
    return Reply(200, plain(await call.run(call.parts.ops().status)))


async def list_types(call: Call) -> Reply:
    """Every type that is registered or has jobs."""
    return Reply(200, {"types": plain(await call.run(call.parts.ops().types))})


async def set_type(call: Call) -> Reply:
    """Set what holds for a type, over its code."""
    form = await call.body(TypeForm)
    name = _held(call.path["type"])
    changes = {f"{name}.{each}": value for each, value in form.settings.items()}
    return await _set(call, changes, form.why)


def _held(name: str) -> str:
    """A type, what shares a key (`key:crm`), or all jobs together (`*`)."""
    if name == ALL:
        return name
    return KEY + check_limit_key(name.removeprefix(KEY)) if name.startswith(KEY) else check_type(name)


async def pause_type(call: Call) -> Reply:
    """Start no more jobs of a type; they are still accepted, and those that run go on."""
    form = await call.body(WhyForm)
    return Reply(200, await call.run(call.parts.ops(call.identity).pause, call.path["type"], why=form.why))


async def resume_type(call: Call) -> Reply:
    """Start jobs of a paused type again."""
    form = await call.body(WhyForm)
    name = call.path["type"]
    resumed = await call.run(call.parts.ops(call.identity).resume, name, why=form.why)
    return Reply(200, {"type": name, "resumed": resumed})


async def set_breaker(call: Call) -> Reply:
    """Open or close the circuit breaker before a type by hand, or let outcomes decide again (`auto`)."""
    form = await call.body(BreakerForm)
    ops = call.parts.ops(call.identity)
    return Reply(200, await call.run(ops.set_breaker, call.path["type"], form.state, why=form.why))


async def show_settings(call: Call) -> Reply:
    """Every run-time setting with its effective value; who may not set them is not shown secrets."""
    found = await call.run(call.parts.ops().settings)
    if not call.identity.may(Need.OPERATE):
        found = [msgspec.structs.replace(each, value=_hidden(each.name, each.value)) for each in found]
    return Reply(200, {"settings": plain(found)})


def _hidden(name: str, value: Any) -> Any:
    return HIDDEN if name in SECRET and value is not None else value


async def put_settings(call: Call) -> Reply:
    """Set run-time settings; they hold until they are set again, or reset by null."""
    form = await call.body(SettingsForm)
    return await _set(call, form.settings, form.why)


async def _set(call: Call, said: Mapping[str, SettingText | None], why: str) -> Reply:
    changes = {name: None if value is None else str(value) for name, value in said.items()}
    for name, value in changes.items():
        if "\0" in f"{name}{value}":
            raise must_be("settings", name, "without NUL")

    def change() -> Any:
        ops = call.parts.ops(call.identity)
        ops.set_settings(changes, why=why)
        return ops.settings()

    return Reply(200, {"settings": plain(await call.run(change))})


async def list_workers(call: Call) -> Reply:
    """Every worker that has a row, newest first."""
    found = await call.run(call.parts.ops().workers)
    return Reply(200, {"workers": [worker_document(each) for each in found]})


async def drain_worker(call: Call) -> Reply:
    """Ask a worker to finish what runs and exit."""
    form = await call.body(WhyForm)
    drained = await call.run(call.parts.ops(call.identity).drain, call.path["id"], why=form.why)
    return Reply(200, {"worker": drained})


async def show_audit(call: Call) -> Reply:
    """Who did what, newest first."""
    page = await call.run(
        call.parts.ops().audit,
        target=call.one("target") or "",
        tenant=call.one("tenant"),
        who=call.one("who") or "",
        verb=call.one("verb") or "",
        limit=call.whole("limit", 50, 1, 1000),
        cursor=call.one("cursor"),
    )
    return Reply(200, audit_document(page))


_ASYNC = re.compile(r"(^|,)\s*respond-async\s*(,|;|$)", re.IGNORECASE)
# Seconds between two looks at an operation that a caller waits for.
_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5
_LIMIT = {"limit": "How many, 1 to 1000."}
# In place of what is not shown.
HIDDEN = "(hidden)"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SET = {200: SettingsDocument}
ROUTES = (
    verb(
        "jobs/actions",
        act_on_jobs,
        "Act on every job that a filter chooses",
        BulkActionForm,
        {200: Bulk, 202: Operation},
        whole=False,
    ),
    look("operations", list_operations, "List operations", OperationsDocument, whole=False, query=_LIMIT),
    look("operations/{id}", show_operation, "Show an operation", Operation, whole=False, refuses=(404,)),
    look("stats", show_stats, "How things stand", Overview),
    look("types", list_types, "List types", TypesDocument),
    verb(
        "types/{type}",
        set_type,
        "Set limits and the like for a type",
        TypeForm,
        _SET,
        method="PUT",
        refuses=(413, 415),
    ),
    verb("types/{type}/pause", pause_type, "Pause a type", gives={200: Pause}),
    verb("types/{type}/resume", resume_type, "Resume a type", gives={200: ResumedDocument}),
    verb(
        "types/{type}/breaker",
        set_breaker,
        "Set the circuit breaker of a type",
        BreakerForm,
        {200: Breaker},
    ),
    look("settings", show_settings, "List run-time settings", SettingsDocument),
    verb(
        "settings",
        put_settings,
        "Change run-time settings",
        SettingsForm,
        _SET,
        method="PUT",
        refuses=(413, 415),
    ),
    look("workers", list_workers, "List workers", WorkersDocument),
    verb("workers/{id}/drain", drain_worker, "Let a worker finish and exit", gives={200: DrainedDocument}),
    look(
        "audit",
        show_audit,
        "Who did what",
        AuditDocument,
        need=Need.OPERATE,
        query={
            "target": "A job (id or key), type, schedule, setting, worker or API key.",
            "tenant": NAMED["tenant"],
            "who": "What this one did.",
            "verb": "Such as cancel, replay, pause, set, drain, create, revoke.",
        }
        | PAGE,
    ),
)
