"""What does the person on call ask over HTTP? Why a job waits, what fails, and how the database is."""

from __future__ import annotations

from datetime import UTC, datetime

from windlass.errors import must_be
from windlass.ops.document import JobPage, page_document, plain
from windlass.ops.explain import Explanation
from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.reply import Reply
from windlass.server.routes import NAMED, look
from windlass.store.jobs import Page


async def explain_job(call: Call) -> Reply:
    """Why a job does not run, in one sentence."""
    job = await call.job()
    ops = call.parts.ops()
    sees_all = call.identity.may(Need.SEE) and call.identity.tenant is None
    return Reply(200, plain(await call.run(ops.explain if sees_all else ops.explain_own, job.id)))


async def list_failures(call: Call) -> Reply:
    """Jobs whose last attempt failed, the last to change first."""
    since = call.one("since")
    moment = None if since is None else _moment(since)
    limit = call.whole("limit", 50, 1, 1000)
    ops = call.parts.ops()
    found = await call.run(call.parts.store.failures, since=moment, limit=limit)
    return Reply(200, page_document(Page(found, None), await call.run(ops.now)))


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise must_be("since", text, "a time in ISO 8601, such as 2030-01-31T09:00:00Z") from None


ROUTES = (
    look(
        "jobs/{id}/explain",
        explain_job,
        "Explain why a job does not run",
        Explanation,
        need=Need.LOOK,
        query=NAMED,
        refuses=(404, 409),
        whole=False,
    ),
    look(
        "failures",
        list_failures,
        "List the latest failures",
        JobPage,
        query={"since": "Changed after this time, in ISO 8601.", "limit": "How many, 1 to 1000."},
    ),
)
