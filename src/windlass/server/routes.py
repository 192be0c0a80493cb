"""Routes: what matches a request, what it needs, and what the contract says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from windlass.job import MAX_PAYLOAD
from windlass.ops.actions import Need, Option, Parameter, parameters_of
from windlass.server.reply import Reply
from windlass.server.schemas import MOST_JOBS

Answer = Callable[..., Awaitable[Reply]]
A = TypeVar("A", bound=Answer)

# What one request takes at most as it is sent: a payload, and as much again for the words around it.
BODY_LIMIT = 2 * MAX_PAYLOAD
BATCH_LIMIT = MOST_JOBS * MAX_PAYLOAD + BODY_LIMIT
BULK_LIMIT = 64 * 2**20
# In the query of every route that names a job.
Tenant = Annotated[str | None, Option("The tenant whose key it is, where several tenants have the same one.")]
# What is about all tenants at once is not for a key that is bound to one of them.
_WHOLE = (Need.SEE, Need.WORK, Need.OPERATE, Need.ADMINISTER)
_BODY_REFUSES = (404, 409, 413, 415)


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
    query: tuple[Parameter, ...] = ()
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


# Every route of the API.
ROUTES: list[Route] = []


def route(
    line: str,
    summary: str,
    gives: type[msgspec.Struct] | Mapping[int, type[msgspec.Struct] | None],
    *,
    takes: type[msgspec.Struct] | None = None,
    need: Need = Need.SEE,
    **more: Any,
) -> Callable[[A], A]:
    """Declare a handler as what answers to `METHOD path`, below /api/v1 unless the path has a slash in front.

    The handler's parameters behind the call are the query.
    """
    method, path = line.split(" ")
    usual = {"whole": need in _WHOLE, "refuses": () if takes is None else _BODY_REFUSES}

    def declare(answer: A) -> A:
        ROUTES.append(
            Route(
                method=method,
                path=path if path.startswith("/") else f"/api/v1/{path}",
                answer=answer,
                need=need,
                summary=summary,
                takes=takes,
                gives=gives if isinstance(gives, Mapping) else {200: gives},
                **({"query": tuple(parameters_of(answer))} | usual | more),
            )
        )
        return answer

    return declare
