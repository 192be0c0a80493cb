"""What does the person on call ask over HTTP? Why a job waits, what fails, and how the database is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from windlass.errors import InvalidValue
from windlass.ops.document import database_document, groups_document, page_document
from windlass.ops.explanation import Cause, explanation_document
from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.reply import Reply
from windlass.server.routes import Answer, Route
from windlass.server.schemas.jobs import JobPage
from windlass.store.protocol import Page

# --- what is answered ---------------------------------------------------------------------------


class LinkDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cause can be looked at."""

    kind: Literal["type", "job", "worker", "schedule", "limit", "breaker"]
    name: str


class ExplanationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run, or what became of it."""

    sentence: str
    cause: Cause
    link: LinkDocument | None
    since: datetime | None
    until: datetime | None
    blockers: list[str]
    mend: str | None
    also: list[str]


class GroupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one type that died of one kind of error."""

    type: str
    error: str
    reason: str
    count: int
    first: datetime
    last: datetime
    sample: str
    message: str
    spark: list[int]
    step: float
    # The filter `error` that finds exactly these.
    match: str


class GroupsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters by type and error, the largest group first."""

    groups: list[GroupDocument]
    capped: bool


class TableDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A table of ours."""

    name: str
    rows: int
    dead_rows: int
    size_bytes: int
    vacuumed_at: datetime | None
    analyzed_at: datetime | None


class TransactionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Who has been in a transaction for longest."""

    holder: str
    pid: int
    age: float


class DatabaseSettingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the database; `wanted`: what it should be, if it is not."""

    name: str
    value: str
    wanted: str | None


class DatabaseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How the database is."""

    kind: str
    version: str
    size_bytes: int
    tables: list[TableDocument]
    settings: list[DatabaseSettingDocument]
    notes: list[str]
    oldest: TransactionDocument | None
    sessions: int | None
    most_sessions: int | None
    listeners: int | None
    wal_bytes: int | None
    free_bytes: int | None
    disk_free_bytes: int | None


# --- how ----------------------------------------------------------------------------------------


async def explain_job(call: Call) -> Reply:
    """Why a job does not run, in one sentence."""
    job = await call.job()
    return Reply(200, explanation_document(await call.run(call.parts.ops().explain, job.id)))


async def list_failures(call: Call) -> Reply:
    """Jobs whose last attempt failed, the last to change first."""
    since = call.one("since")
    moment = None if since is None else _moment(since)
    limit = call.whole("limit", 50, 1, 1000)
    ops = call.parts.ops()
    found = await call.run(ops.failures, since=moment, limit=limit)
    return Reply(200, page_document(Page(found, None), await call.run(ops.now)))


async def list_dead_groups(call: Call) -> Reply:
    """The dead letters by type and error."""
    found = await call.run(call.parts.ops().dead_groups, call.many("type"))
    return Reply(200, groups_document(found))


async def show_database(call: Call) -> Reply:
    """Sizes, dead rows and who keeps them, settings, room."""
    return Reply(200, database_document(await call.run(call.parts.ops().database)))


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValue("since", text, "a time in ISO 8601, such as 2030-01-31T09:00:00Z") from None


def _look(path: str, answer: Answer, summary: str, gives: Any, **more: Any) -> Route:
    return Route(
        method="GET",
        path=f"/api/v1/{path}",
        answer=answer,
        need=Need.SEE,
        summary=summary,
        gives={200: gives},
        # They name jobs of every tenant.
        whole=True,
        **more,
    )


ROUTES = (
    _look(
        "jobs/{id}/explain",
        explain_job,
        "Explain why a job does not run",
        ExplanationDocument,
        refuses=(404,),
    ),
    _look(
        "failures",
        list_failures,
        "List the latest failures",
        JobPage,
        query={"since": "Changed after this time, in ISO 8601.", "limit": "How many, 1 to 1000."},
    ),
    _look(
        "dlq/groups",
        list_dead_groups,
        "List dead letters by type and error",
        GroupsDocument,
        query={"type": "Types; may be repeated."},
    ),
    _look("database", show_database, "How the database is", DatabaseDocument),
)
