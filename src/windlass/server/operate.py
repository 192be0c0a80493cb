"""Look at jobs, settings, workers and alerts over HTTP, confirm jobs, and act on many at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.checks import Problems
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.job import Job, TypeInfo
from windlass.observe.exposition import MEDIA_TYPE
from windlass.ops import Bulk, SettingValue, document
from windlass.ops.actions import Count, Cursor, Limit, Need, Option, Parameter
from windlass.ops.bulk import summed_up
from windlass.ops.document import CHECK, BatchDocument, plain
from windlass.ops.search import check_conditions, check_query, check_states, read_filter, read_query
from windlass.queue.jobs import happens
from windlass.server.actions import BulkActionForm, bulk_arguments
from windlass.server.call import Call, HungUp, read_wait
from windlass.server.identity import check_own_batch, own
from windlass.server.limits import Doing
from windlass.server.problems import Problem
from windlass.server.routes import Reply, Tenant, route
from windlass.server.schemas import UUID_PATTERN, FilterForm, NoForm
from windlass.settings import SECRET
from windlass.store.jobs import Filter, Page, check_cursor
from windlass.store.operations import Operation, State

_ASYNC = re.compile(r"(^|,)\s*respond-async\s*(,|;|$)", re.IGNORECASE)
# Seconds between two looks at an operation that a caller waits for.
_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5
# In place of what is not shown.
HIDDEN = "(hidden)"
_READ_AT_ONCE = 200
_MOST_BYTES = 8 * 2**20
_ATTEMPT_BYTES = 4 * 1024


class CatalogueDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer must know: types with their schemas, and what operators have set."""

    # A payload need fit only one of a type's live releases.
    types: list[TypeInfo]
    settings: dict[str, str]


class ConfirmedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The acknowledgement of a job's effect is counted; `first` is false if it had been before."""

    id: str
    first: bool


# --- looking ------------------------------------------------------------------------------------


_FILTER: dict[str, Any] = {
    "states": Annotated[
        Sequence[str],
        Meta(extra={CHECK: check_states}),
        Option(
            "States, or one view (due, scheduled, retrying, waiting, unreadable, stuck); may be repeated.",
            field="state",
        ),
    ],
    "types": Annotated[Sequence[str], Option("Types; may be repeated.", field="type")],
    "tenant": Annotated[str, Option("The tenant.")],
    "key": Annotated[str, Option("The key.")],
    "error": Annotated[str, Option("The last error's reason, or a text in it.")],
    "older_than": Annotated[
        Any, Meta(extra={CHECK: parse_duration}), Option("Enqueued longer ago than this, such as 10m.")
    ],
    "where": Annotated[
        list[str],
        Meta(extra={CHECK: check_conditions}),
        Option("A field of the payload, as in payload.user.id=42; may be repeated."),
    ],
    "q": Annotated[
        str,
        Meta(extra={CHECK: check_query}),
        Option("All of it in one line: type:mail state:dead payload.user.id:42 error:Timeout older:1h."),
    ],
    "limit": Limit,
    "cursor": Annotated[Cursor, Meta(extra={CHECK: check_cursor})],
}
_QUERY = tuple(Parameter.of(name, kind, 50 if kind is Limit else None) for name, kind in _FILTER.items())


@route("GET jobs", "List jobs", document.JobPage, need=Need.LOOK, query=_QUERY)
async def list_jobs(
    call: Call, *, q: str | None = None, limit: int = 50, cursor: str | None = None, **said: Any
) -> Reply:
    """Jobs, newest first."""
    problems = Problems()
    for each in _QUERY if q is not None else ():
        with problems:
            if each.name in said:
                value = said[each.name]
                shown = value if isinstance(value, str | timedelta) else ", ".join(value)
                raise must_be(each.field, shown, "left out when q is given")
    problems.check()
    chosen = own(call, read_filter(**said) if q is None else read_query(q))

    def listed() -> Reply:
        # With the answer as it is sent: a thousand jobs take a while to write down.
        return Reply(200, document.page_document(_page(call, chosen, limit, cursor), call.parts.store.now()))

    return await call.run_long(listed)


def _page(call: Call, where: Filter, limit: int, cursor: str | None) -> Page:
    """So many jobs, or fewer if they are large or not found in time: a request must end, and fit memory."""
    ops = call.parts.ops()
    jobs: list[Job] = []
    size = 0
    while len(jobs) < limit and size < _MOST_BYTES:
        asked = min(_READ_AT_ONCE, limit - len(jobs))
        page = ops.find(where, limit=asked, cursor=cursor)
        jobs += page.jobs
        # About what they take as they are sent; an attempt's error may be long.
        size += sum(len(bytes(job.payload)) + len(bytes(job.result or b"")) for job in page.jobs)
        size += sum(_ATTEMPT_BYTES * len(job.history) for job in page.jobs)
        cursor = page.next
        if cursor is None or len(page.jobs) < asked:
            break
    return Page(jobs, cursor)


@route("GET failures", "List the latest failures", document.JobPage)
async def list_failures(
    call: Call,
    *,
    since: Annotated[datetime | None, Option("Changed after this time, in ISO 8601.")] = None,
    limit: Count = 50,
) -> Reply:
    """Jobs whose last attempt failed, the last to change first."""
    store = call.parts.store
    found = await call.run(store.failures, since=since, limit=limit)
    return Reply(200, document.page_document(Page(found, None), await call.run(store.now)))


_WAIT = Option("Wait so long for its end, such as 20s; a minute at most.")


@route("GET jobs/{id}", "Show a job, by id or key", document.ToldJob, need=Need.LOOK, refuses=(404, 409))
async def show_job(
    call: Call, *, tenant: Tenant = None, wait: Annotated[Any, Meta(extra={CHECK: read_wait}), _WAIT] = 0.0
) -> Reply:
    """One job with its attempts; with `wait`, when it has ended or the time is over."""
    job = await call.parts.endings.wait(call, await call.job(tenant), wait)

    def tell() -> document.ToldJob:
        ops = call.parts.ops()
        return document.told_document(job, ops.ties(job), ops.now())

    return Reply(200, await call.run(tell))


@route("GET catalogue", "Types with the schemas of their payloads", CatalogueDocument, need=Need.LOOK)
async def show_catalogue(call: Call) -> Reply:
    """Types with the schemas of their payloads, as far as the caller may use them."""

    def read() -> dict[str, Any]:
        types = [info for info in call.parts.store.types().values() if call.identity.takes(info.name)]
        stored = call.parts.store.settings()
        return {"types": types, "settings": {name: stored[name] for name in stored if name not in SECRET}}

    return Reply(200, await call.run(read))


@route(
    "GET batches/{id}",
    "Show how far a batch has come",
    BatchDocument,
    need=Need.LOOK,
    refuses=(404,),
)
async def show_batch(call: Call) -> Reply:
    """How many jobs of a batch stand in which state."""
    batch = await call.run(call.parts.ops().batch, call.path["id"])
    await call.run(check_own_batch, call, batch.id)
    return Reply(200, document.batch_document(batch))


# --- changing -----------------------------------------------------------------------------------


@route(
    "POST jobs/{id}/confirm",
    "Report that the effect of a job arrived",
    ConfirmedDocument,
    takes=NoForm,
    need=Need.ACT,
)
async def confirm_job(call: Call, *, tenant: Tenant = None) -> Reply:
    """Report that the effect of a job arrived; counted once for each job."""
    await call.body(NoForm)
    job = await call.job(tenant)
    return Reply(200, {"id": job.id, "first": await call.run(call.parts.store.confirm, job.id)})


# --- operating -------------------------------------------------------------------------------------


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every run-time setting with its effective value."""

    settings: list[SettingValue]


class WorkersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every worker that has a row, newest first."""

    workers: list[document.WorkerDocument]


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
    problems = Problems()
    form = await call.body(BulkActionForm, problems)
    arguments = bulk_arguments(form, problems)
    with problems:
        where = _filter(call, form.filter, whole=not problems.known)
    problems.check()
    operations = call.ops(form).operations
    if form.dry_run:
        counted = await call.run(operations.count, form.action, where, limit=form.limit, **arguments)
        return Reply(200, counted)
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


def _filter(call: Call, form: FilterForm, *, whole: bool) -> Filter:
    """The filter that a form asks for; not `whole`: something of it may have been refused already."""
    if whole and form == FilterForm():
        allowed = "an object with at least one condition"
        raise InvalidValue("filter needs at least one condition", field="filter", value="{}", allowed=allowed)
    problems, older = Problems(), None
    for each in form.ids:
        with problems:
            if not re.fullmatch(UUID_PATTERN, each):
                raise must_be("filter.ids", each, "ids of jobs, which are UUIDs")
    with problems:
        older = None if form.older_than is None else parse_duration(form.older_than, "older_than")
    where = [(tuple(path.split(".")), value) for path, value in form.where.items()]
    said = {name: getattr(form, name) for name in ("ids", "tenant", "key", "error")}
    with problems:
        chosen = read_filter(types=form.type, states=form.state, older_than=older, where=where, **said)
    problems.check()
    return own(call, chosen)


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
    return Reply(200, {"workers": [document.worker_document(each) for each in found]})


@route("GET /metrics", "Metrics for Prometheus", {200: None}, media_type=MEDIA_TYPE)
async def metrics(call: Call) -> Reply:
    """Everything that is measured, as Prometheus reads it."""
    text = await call.run(call.parts.ops(call.identity).scrape)
    return Reply(200, text.encode(), media_type=MEDIA_TYPE.encode())
