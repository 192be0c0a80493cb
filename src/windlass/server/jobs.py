"""How are jobs looked at, and changed by who put them in?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.duration import parse_duration
from windlass.errors import must_be
from windlass.job import Job, TypeInfo
from windlass.ops.actions import Count, Cursor, Limit, Need, Option, Parameter
from windlass.ops.document import (
    CHECK,
    BatchDocument,
    JobPage,
    ToldJob,
    batch_document,
    page_document,
    told_document,
)
from windlass.ops.search import check_conditions, check_states, read_filter, read_query
from windlass.server.call import Call, read_wait
from windlass.server.identity import check_own_batch, own
from windlass.server.routes import Reply, Tenant, route
from windlass.server.schemas import NoForm
from windlass.settings import SECRET
from windlass.store.jobs import Filter, Page

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
        str, Option("All of it in one line: type:mail state:dead payload.user.id:42 error:Timeout older:1h.")
    ],
    "limit": Limit,
    "cursor": Cursor,
}
_QUERY = tuple(Parameter.of(name, kind, 50 if kind is Limit else None) for name, kind in _FILTER.items())


@route("GET jobs", "List jobs", JobPage, need=Need.LOOK, query=_QUERY)
async def list_jobs(
    call: Call, *, q: str | None = None, limit: int = 50, cursor: str | None = None, **said: Any
) -> Reply:
    """Jobs, newest first."""
    if q is not None and said:
        name, value = min((each.field, said[each.name]) for each in _QUERY if each.name in said)
        shown = value if isinstance(value, str | timedelta) else ", ".join(value)
        raise must_be(name, shown, "left out when q is given")
    chosen = own(call, read_filter(**said) if q is None else read_query(q))

    def listed() -> Reply:
        # With the answer as it is sent: a thousand jobs take a while to write down.
        return Reply(200, page_document(_page(call, chosen, limit, cursor), call.parts.store.now()))

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


@route("GET failures", "List the latest failures", JobPage)
async def list_failures(
    call: Call,
    *,
    since: Annotated[datetime | None, Option("Changed after this time, in ISO 8601.")] = None,
    limit: Count = 50,
) -> Reply:
    """Jobs whose last attempt failed, the last to change first."""
    store = call.parts.store
    found = await call.run(store.failures, since=since, limit=limit)
    return Reply(200, page_document(Page(found, None), await call.run(store.now)))


_WAIT = Option("Wait so long for its end, such as 20s; a minute at most.")


@route("GET jobs/{id}", "Show a job, by id or key", ToldJob, need=Need.LOOK, refuses=(404, 409))
async def show_job(
    call: Call, *, tenant: Tenant = None, wait: Annotated[Any, Meta(extra={CHECK: read_wait}), _WAIT] = 0.0
) -> Reply:
    """One job with its attempts; with `wait`, when it has ended or the time is over."""
    job = await call.parts.endings.wait(call, await call.job(tenant), wait)

    def tell() -> ToldJob:
        ops = call.parts.ops()
        return told_document(job, ops.ties(job), ops.now())

    return Reply(200, await call.run(tell))


@route("GET catalogue", "Types with the schemas of their payloads", CatalogueDocument, need=Need.LOOK)
async def show_catalogue(call: Call) -> Reply:
    """Types with the schemas of their payloads, as far as the caller may use them."""

    def read() -> dict[str, Any]:
        types = [info for info in call.parts.store.types().values() if call.identity.takes(info.name)]
        stored = call.parts.store.settings()
        return {"types": types, "settings": {name: stored[name] for name in stored if name not in SECRET}}

    return Reply(200, await call.run(read))


@route("GET batches/{id}", "Show how far a batch has come", BatchDocument, need=Need.LOOK, refuses=(404,))
async def show_batch(call: Call) -> Reply:
    """How many jobs of a batch stand in which state."""
    batch = await call.run(call.parts.ops().batch, call.path["id"])
    await call.run(check_own_batch, call, batch.id)
    return Reply(200, batch_document(batch))


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
