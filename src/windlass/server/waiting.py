"""How do many callers wait for the ends of their jobs? One look at the store serves all of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from windlass.errors import StoreError
from windlass.job import Job
from windlass.server.hints import happens, hints
from windlass.store.protocol import Filter

if TYPE_CHECKING:
    from windlass.server.parts import Parts

# Between two looks, however many hints come; and without any hint.
_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25
_AT_ONCE = 500


class Endings:
    """Who waits for which job. Looks only while somebody does."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waiting: dict[str, list[asyncio.Future[Job | None]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, job: Job, seconds: float) -> Job:
        """The job when it has ended, or as it was when the time was over or the server stops."""
        if job.ended or seconds <= 0 or self._parts.stopping.is_set():
            return job
        ended: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job.id, []).append(ended)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on())
        try:
            async with asyncio.timeout(seconds):
                return await ended or job
        except TimeoutError:
            return await self._parts.run(self._parts.store.get, job.id) or job
        finally:
            self._forget(job.id, ended)

    def _forget(self, job_id: str, waiter: asyncio.Future[Job | None]) -> None:
        waiters = self._waiting.get(job_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._waiting.pop(job_id, None)

    async def _look_on(self) -> None:
        try:
            # Whoever comes while the hints are let go of is looked for in another round.
            while self._is_waited_for():
                async with hints(self._parts) as hint:
                    await self._look_at_hints(hint)
        finally:
            self._looking = None
            for waiter in [each for waiters in self._waiting.values() for each in waiters]:
                _tell(waiter, None)

    async def _look_at_hints(self, hint: asyncio.Event) -> None:
        while self._is_waited_for():
            hint.clear()
            with contextlib.suppress(StoreError):
                await self._look()
            await asyncio.sleep(_SHORTEST_PAUSE)
            await happens(hint, _LONGEST_PAUSE)

    def _is_waited_for(self) -> bool:
        return bool(self._waiting) and not self._parts.stopping.is_set()

    async def _look(self) -> None:
        ids = list(self._waiting)
        for start in range(0, len(ids), _AT_ONCE):
            where = Filter(ids=tuple(ids[start : start + _AT_ONCE]))
            page = await self._parts.run(self._parts.store.find, where, limit=_AT_ONCE)
            for job in page.jobs:
                if job.ended:
                    for waiter in self._waiting.get(job.id, []):
                        _tell(waiter, job)


def _tell(waiter: asyncio.Future[Job | None], job: Job | None) -> None:
    if not waiter.done():
        waiter.set_result(job)
