"""Is all well? For whoever decides whether to send requests here, or to start the server anew."""

from __future__ import annotations

import asyncio

from windlass.errors import StoreError
from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.reply import Reply
from windlass.server.routes import Route
from windlass.server.schemas.stats import HealthDocument

_PATIENCE_SECONDS = 2.0


async def health(call: Call) -> Reply:
    """200 if the store answers, else 503."""
    return await _told(call)


async def ready(call: Call) -> Reply:
    """200 if requests can be served: the store answers, and the server is not stopping."""
    return await _told(call)


async def live(_: Call) -> Reply:
    """200 as long as the process answers at all."""
    return Reply(200, HealthDocument(ok=True, store="not asked"))


async def _told(call: Call) -> Reply:
    if call.parts.stopping.is_set():
        return Reply(503, HealthDocument(ok=False, store="not asked: the server is stopping"))
    if call.parts.availability.away:
        return Reply(503, HealthDocument(ok=False, store="takes no writes"))
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await call.parts.ping()
    except StoreError:
        return Reply(503, HealthDocument(ok=False, store="away"))
    except TimeoutError:
        return Reply(503, HealthDocument(ok=False, store=f"silent for {_PATIENCE_SECONDS:g} s"))
    return Reply(200, HealthDocument(ok=True, store="answers"))


def _route(path: str, answer: object, summary: str, *, fails: bool = True) -> Route:
    gives = {200: HealthDocument, 503: HealthDocument} if fails else {200: HealthDocument}
    return Route(
        method="GET",
        path=path,
        answer=answer,  # type: ignore[arg-type]
        need=Need.NOTHING,
        summary=summary,
        gives=gives,
    )


ROUTES = (
    _route("/health", health, "Whether the store can be reached"),
    _route("/health/live", live, "Whether the server answers at all", fails=False),
    _route("/health/ready", ready, "Whether requests can be served"),
)
