"""How are jobs looked at, and changed by who put them in?"""

from __future__ import annotations

from typing import Any

from windlass.duration import parse_duration
from windlass.errors import must_be
from windlass.job import Job
from windlass.ops.document import (
    BatchDocument,
    JobPage,
    ToldJob,
    batch_document,
    page_document,
    told_document,
)
from windlass.ops.search import read_filter, read_query
from windlass.server.call import Call
from windlass.server.identity import Need, check_own_batch, own
from windlass.server.reply import Reply
from windlass.server.routes import NAMED, PAGE, look, verb
from windlass.server.schemas import NoForm
from windlass.server.schemas.jobs import (
    CatalogueDocument,
    ConfirmedDocument,
)
from windlass.settings import SECRET
from windlass.store.jobs import Filter, Page

# --- looking ------------------------------------------------------------------------------------


async def list_jobs(call: Call) -> Reply:
    """Jobs, newest first."""
    limit = call.whole("limit", 50, 1, 1000)

    def listed() -> Reply:
        # With the answer as it is sent: a thousand jobs take a while to write down.
        page = _page(call, _filter(call), limit, call.one("cursor"))
        return Reply(200, page_document(page, call.parts.store.now()))

    return await call.run(listed)


def _page(call: Call, where: Filter, limit: int, cursor: str | None) -> Page:
    """So many jobs, or fewer if they are large or not found in time: a request must end, and fit memory."""
    ops = call.parts.ops()
    jobs: list[Job] = []
    size = 0
    while len(jobs) < limit and size < _MOST_BYTES:
        asked = min(_READ_AT_ONCE, limit - len(jobs))
        page = ops.find(where, limit=asked, cursor=cursor)
        jobs += page.jobs
        size += sum(_size(job) for job in page.jobs)
        cursor = page.next
        if cursor is None or len(page.jobs) < asked:
            break
    return Page(jobs, cursor)


def _size(job: Job) -> int:
    """About how many bytes a job takes when it is told of; an attempt's error may be long."""
    return len(bytes(job.payload)) + len(bytes(job.result or b"")) + _ATTEMPT_BYTES * len(job.history)


def _filter(call: Call) -> Filter:
    line = call.one("q")
    if line is not None:
        if others := sorted(set(call.query) & set(FILTER) - {"q"}):
            raise must_be(others[0], ", ".join(call.query[others[0]]), "left out when q is given")
        return own(call, read_query(line))
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


async def show_job(call: Call) -> Reply:
    """One job with its attempts; with `wait`, when it has ended or the time is over."""
    wait = call.wait()
    job = await call.parts.endings.wait(call, await call.job(), wait)

    def tell() -> ToldJob:
        ops = call.parts.ops()
        return told_document(job, ops.ties(job), ops.now())

    return Reply(200, await call.run(tell))


async def show_catalogue(call: Call) -> Reply:
    """Types with the schemas of their payloads, as far as the caller may use them."""

    def read() -> dict[str, Any]:
        types = [info for info in call.parts.store.types().values() if call.identity.takes(info.name)]
        stored = call.parts.store.settings()
        return {"types": types, "settings": {name: stored[name] for name in stored if name not in SECRET}}

    return Reply(200, await call.run(read))


async def show_batch(call: Call) -> Reply:
    """How many jobs of a batch stand in which state."""
    name = call.path["id"]
    batch = await call.run(call.parts.ops().batch, name)
    await call.run(check_own_batch, call, batch.id)
    return Reply(200, batch_document(batch))


# --- changing -----------------------------------------------------------------------------------


async def confirm_job(call: Call) -> Reply:
    """Report that the effect of a job arrived; counted once for each job."""
    await call.body(NoForm)
    job = await call.job()
    return Reply(200, {"id": job.id, "first": await call.run(call.parts.store.confirm, job.id)})


_READ_AT_ONCE = 200
_MOST_BYTES = 8 * 2**20
_ATTEMPT_BYTES = 4 * 1024
FILTER = {
    "state": "States, or one view (due, scheduled, retrying, waiting, unreadable, stuck); may be repeated.",
    "type": "Types; may be repeated.",
    "tenant": "The tenant.",
    "key": "The key.",
    "error": "The last error's reason, or a text in it.",
    "older_than": "Enqueued longer ago than this, such as 10m.",
    "where": "A field of the payload, as in payload.user.id=42; may be repeated.",
    "q": "All of it in one line: type:mail state:dead payload.user.id:42 error:Timeout older:1h.",
}
ROUTES = (
    look("jobs", list_jobs, "List jobs", JobPage, need=Need.LOOK, query=FILTER | PAGE, whole=False),
    look(
        "jobs/{id}",
        show_job,
        "Show a job, by id or key",
        ToldJob,
        need=Need.LOOK,
        query=NAMED | {"wait": "Wait so long for its end, such as 20s; a minute at most."},
        refuses=(404, 409),
        whole=False,
    ),
    verb(
        "jobs/{id}/confirm",
        confirm_job,
        "Report that the effect of a job arrived",
        NoForm,
        {200: ConfirmedDocument},
        need=Need.ACT,
        query=NAMED,
        whole=False,
    ),
    look(
        "catalogue",
        show_catalogue,
        "Types with the schemas of their payloads",
        CatalogueDocument,
        need=Need.LOOK,
        whole=False,
    ),
    look(
        "batches/{id}",
        show_batch,
        "Show how far a batch has come",
        BatchDocument,
        need=Need.LOOK,
        refuses=(404,),
        whole=False,
    ),
)
