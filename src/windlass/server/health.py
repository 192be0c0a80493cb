"""Health checks, and whether the store can be reached.

While that is in doubt, the store is asked again and again. Once it counts as away, requests that write are
refused at once, and requests that wait for it are answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from windlass.errors import StoreError, StoreUnavailable
from windlass.ops.actions import Need
from windlass.server import problems
from windlass.server.call import Call
from windlass.server.routes import Answer, Reply, route

log = logging.getLogger("windlass.server")

T = TypeVar("T")
_PAUSE_SECONDS = 0.25
# Silence for this share of the patience is reason to doubt.
_DOUBT = 0.5


@dataclass(eq=False)
class Availability:
    """Whether the store takes writes, as far as that is known. Lives on the event loop."""

    # Asks the store's writer, or raises StoreError.
    probe: Callable[[], Awaitable[object]]
    patience: float
    on_away: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._watching: asyncio.Task[None] | None = None
        # Done when the store is known to be away; another one takes its place when the store is back.
        self._gone: asyncio.Future[None] | None = None

    @property
    def away(self) -> bool:
        return self._gone is not None and self._gone.done()

    def check(self) -> None:
        """Refuse what would be written while the store is known to be away."""
        if self.away:
            raise problems.store_away()

    def doubt(self, since: float | None = None) -> None:
        """A request has waited for the store since then (by the loop's clock), or was refused by it now."""
        if self._watching is None:
            loop = asyncio.get_running_loop()
            self._watching = loop.create_task(self._watch(loop.time() if since is None else since))

    async def wait_for(self, work: asyncio.Future[T]) -> T:
        """What the store answers; a refusal as soon as it is known to be away. Then `work` is cancelled."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait({work}, timeout=_DOUBT * self.patience)
        if not work.done():
            self.doubt(began)
            waits: set[asyncio.Future[Any]] = {work, self._until_away()}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            raise StoreUnavailable("the store does not answer")
        return work.result()

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, since: float) -> None:
        """Ask until the store answers. It counts as away when it has not for as long as the patience."""
        loop = asyncio.get_running_loop()
        known_at = since + self.patience
        try:
            while True:
                asked = asyncio.ensure_future(self.probe())
                await asyncio.wait({asked}, timeout=max(0.0, known_at - loop.time()))
                if not asked.done():
                    self._declare_away("it does not answer")
                try:
                    await asked
                except StoreError as error:
                    if loop.time() + _PAUSE_SECONDS >= known_at:
                        self._declare_away(str(error))
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    return
        finally:
            self._watching = None
            if self.away:
                log.info("server.store_back")
            self._gone = None

    def _until_away(self) -> asyncio.Future[None]:
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        return self._gone

    def _declare_away(self, why: str) -> None:
        if not self.away:
            log.warning("server.store_away", extra={"error": why})
            self._until_away().set_result(None)
            self.on_away()


_PATIENCE_SECONDS = 2.0


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is well."""

    ok: bool
    store: str


def _probe(path: str, summary: str, *statuses: int) -> Callable[[Answer], Answer]:
    return route(f"GET {path}", summary, dict.fromkeys(statuses, HealthDocument), need=Need.NOTHING)


@_probe("/health", "Whether the store can be reached", 200, 503)
async def health(call: Call) -> Reply:
    """200 if the store answers and the server is not stopping, else 503."""
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


@_probe("/health/ready", "Whether requests can be served", 200, 503)
async def ready(call: Call) -> Reply:
    """200 if requests can be served: the store answers, and the server is not stopping."""
    return await health(call)


@_probe("/health/live", "Whether the server answers at all", 200)
async def live(_: Call) -> Reply:
    """200 as long as the process answers at all."""
    return Reply(200, HealthDocument(ok=True, store="not asked"))
