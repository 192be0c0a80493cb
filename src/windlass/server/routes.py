"""What is a route? What matches a request, what it needs, and what the contract says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from windlass.job import MAX_PAYLOAD
from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.reply import Reply
from windlass.server.schemas import WhyForm
from windlass.server.schemas.jobs import MOST_JOBS

Answer = Callable[[Call], Awaitable[Reply]]

# What one request takes at most as it is sent: a payload, and as much again for the words around it.
BODY_LIMIT = 2 * MAX_PAYLOAD
BATCH_LIMIT = MOST_JOBS * MAX_PAYLOAD + BODY_LIMIT
BULK_LIMIT = 64 * 2**20
# The query of every route that names a job.
NAMED = {"tenant": "The tenant whose key it is, where several tenants have the same one."}
# The query of every list.
PAGE = {
    "limit": "How many, 1 to 1000; fewer come, with a `next`, if they are large or not found in time.",
    "cursor": "The `next` of the page before.",
}


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    answer: Answer
    need: Need
    # What it does, in a line.
    summary: str
    takes: type[msgspec.Struct] | None = None
    # By status.
    gives: Mapping[int, type[msgspec.Struct] | None] = {}
    # Names of the query with what they mean.
    query: Mapping[str, str] = {}
    # What the body is: one document, or many, one a line.
    accepts: str = "application/json"
    body_limit: int = BODY_LIMIT
    # Problems that it may answer with, besides those that any route may.
    refuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    # About all tenants at once: not for a key that is bound to one of them.
    whole: bool = False

    @property
    def name(self) -> str:
        """What the contract calls it."""
        return self.answer.__name__


def look(
    path: str,
    answer: Answer,
    summary: str,
    gives: type[msgspec.Struct],
    *,
    need: Need = Need.SEE,
    whole: bool = True,
    **more: Any,
) -> Route:
    """Something that is shown."""
    return Route(
        method="GET",
        path=f"/api/v1/{path}",
        answer=answer,
        need=need,
        summary=summary,
        gives={200: gives},
        whole=whole,
        **more,
    )


def verb(  # noqa: PLR0913 - a row of a table
    path: str,
    answer: Answer,
    summary: str,
    takes: type[msgspec.Struct] | None = WhyForm,
    gives: Mapping[int, type[msgspec.Struct]] = {},
    *,
    method: str = "POST",
    need: Need = Need.OPERATE,
    refuses: tuple[int, ...] = (404, 409, 413, 415),
    whole: bool = True,
    **more: Any,
) -> Route:
    """Something that is done."""
    return Route(
        method=method,
        path=f"/api/v1/{path}",
        answer=answer,
        need=need,
        summary=summary,
        takes=takes,
        gives=gives,
        refuses=refuses,
        whole=whole,
        **more,
    )
