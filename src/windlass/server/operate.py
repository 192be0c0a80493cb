"""What can operators do over HTTP? Every verb of ops, translated; a test keeps the two equal."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.ops import Bulk, SettingValue
from windlass.ops.bulk import summed_up
from windlass.ops.document import plain, worker_document
from windlass.ops.search import read_filter
from windlass.server.actions import BulkActionForm, bulk_arguments
from windlass.server.call import Call, HungUp
from windlass.server.identity import Need, is_own, own
from windlass.server.limits import Doing
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.routes import look, verb
from windlass.server.schemas.actions import FilterForm, OperationsDocument
from windlass.server.schemas.stats import WorkersDocument
from windlass.server.waiting import happens
from windlass.settings import SECRET
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


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every run-time setting with its effective value."""

    settings: list[SettingValue]


async def show_settings(call: Call) -> Reply:
    """Every run-time setting with its effective value; who may not set them is not shown secrets."""
    found = await call.run(call.parts.ops().settings)
    if not call.identity.may(Need.OPERATE):
        found = [msgspec.structs.replace(each, value=_hidden(each.name, each.value)) for each in found]
    return Reply(200, {"settings": plain(found)})


def _hidden(name: str, value: Any) -> Any:
    return HIDDEN if name in SECRET and value is not None else value


async def list_workers(call: Call) -> Reply:
    """Every worker that has a row, newest first."""
    found = await call.run(call.parts.ops().workers)
    return Reply(200, {"workers": [worker_document(each) for each in found]})


_ASYNC = re.compile(r"(^|,)\s*respond-async\s*(,|;|$)", re.IGNORECASE)
# Seconds between two looks at an operation that a caller waits for.
_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5
_LIMIT = {"limit": "How many, 1 to 1000."}
# In place of what is not shown.
HIDDEN = "(hidden)"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
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
    look("settings", show_settings, "List run-time settings", SettingsDocument),
    look("workers", list_workers, "List workers", WorkersDocument),
)
