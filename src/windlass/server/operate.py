"""What operators do over HTTP besides the declared actions: act on many jobs, list settings and workers."""

from __future__ import annotations

import asyncio
import re

import msgspec

from windlass.checks import Problems
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.observe.exposition import MEDIA_TYPE
from windlass.ops import Bulk, SettingValue
from windlass.ops.actions import Need
from windlass.ops.bulk import summed_up
from windlass.ops.document import WorkerDocument, plain, worker_document
from windlass.ops.observing import AlertsDocument
from windlass.ops.search import read_filter
from windlass.queue.jobs import happens
from windlass.server.actions import BulkActionForm, bulk_arguments
from windlass.server.call import Call, HungUp
from windlass.server.identity import own
from windlass.server.limits import Doing
from windlass.server.problems import Problem
from windlass.server.routes import Reply, route
from windlass.server.schemas import UUID_PATTERN, FilterForm
from windlass.settings import SECRET
from windlass.store.jobs import Filter
from windlass.store.operations import Operation, State

_ASYNC = re.compile(r"(^|,)\s*respond-async\s*(,|;|$)", re.IGNORECASE)
# Seconds between two looks at an operation that a caller waits for.
_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5
# In place of what is not shown.
HIDDEN = "(hidden)"


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every run-time setting with its effective value."""

    settings: list[SettingValue]


class WorkersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every worker that has a row, newest first."""

    workers: list[WorkerDocument]


@route(
    "POST jobs/actions",
    "Act on every job that a filter chooses",
    {200: Bulk, 202: Operation},
    takes=BulkActionForm,
    need=Need.OPERATE,
    whole=False,
)
async def act_on_jobs(call: Call) -> Reply:
    """Start an operation: one action for every job that a filter chooses. A dry run only counts them.

    The answer comes when the operation has ended, or with `Prefer: respond-async` at once. It goes on though
    the caller hangs up or the server stops.
    """
    form = await call.body(BulkActionForm)
    problems = Problems()
    arguments = bulk_arguments(form, problems)
    with problems:
        where = _filter(call, form.filter)
    problems.check()
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
        raise Problem(503, "stopping", detail, again=1)
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


def _filter(call: Call, form: FilterForm) -> Filter:
    if form == FilterForm():
        allowed = "an object with at least one condition"
        raise InvalidValue("filter needs at least one condition", field="filter", value="{}", allowed=allowed)
    problems, older = Problems(), None
    for each in form.ids:
        with problems:
            if not re.fullmatch(UUID_PATTERN, each):
                raise must_be("filter.ids", each, "ids of jobs, which are UUIDs")
    with problems:
        older = None if form.older_than is None else parse_duration(form.older_than, "older_than")
    problems.check()
    where = [(tuple(path.split(".")), value) for path, value in form.where.items()]
    said = {name: getattr(form, name) for name in ("ids", "tenant", "key", "error")}
    return own(call, read_filter(types=form.type, states=form.state, older_than=older, where=where, **said))


@route("GET settings", "List run-time settings", SettingsDocument)
async def show_settings(call: Call) -> Reply:
    """Every run-time setting with its effective value; who may not set them is not shown secrets."""
    found = await call.run(call.parts.ops().settings)
    shows = call.identity.may(Need.OPERATE)
    secret = {each.name for each in found if each.name in SECRET and each.value is not None and not shows}
    hidden = [msgspec.structs.replace(each, value=HIDDEN) if each.name in secret else each for each in found]
    return Reply(200, {"settings": plain(hidden)})


@route("GET workers", "List workers", WorkersDocument)
async def list_workers(call: Call) -> Reply:
    """Every worker that has a row, newest first."""
    found = await call.run(call.parts.ops().workers)
    return Reply(200, {"workers": [worker_document(each) for each in found]})


@route("GET alerts", "The alerts that hold", AlertsDocument)
async def alerts(call: Call) -> Reply:
    """The alerts that hold, and which of them fire."""
    return Reply(200, plain(await call.run(call.parts.ops(call.identity).alerts)))


@route("GET /metrics", "Metrics for Prometheus", {200: None}, media_type=MEDIA_TYPE)
async def metrics(call: Call) -> Reply:
    """Everything that is measured, as Prometheus reads it."""
    text = await call.run(call.parts.ops(call.identity).scrape)
    return Reply(200, text.encode(), media_type=MEDIA_TYPE.encode())
