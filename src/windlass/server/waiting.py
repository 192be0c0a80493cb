"""How do many callers wait for the ends of their jobs? One look at the store serves all of them."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from windlass.errors import StoreError
from windlass.job import ENDED, Job
from windlass.server.call import HungUp
from windlass.server.crowd import Doing
from windlass.server.hints import happens, hints
from windlass.store.jobs import Filter

if TYPE_CHECKING:
    from windlass.server.call import Call
    from windlass.server.parts import Parts

# Between two looks, however many hints come; and without any hint.
_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25
_AT_ONCE = 500
# After a look, this many times as long as it took.
_REST = 6.0
_ENDED = tuple(ENDED)


class Endings:
    """Who waits for which job. Looks only while somebody does."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waiting: dict[str, list[asyncio.Future[Job | None]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, call: Call, job: Job, seconds: float) -> Job:
        """The job when it has ended; or as it is when the time is over, or somebody interrupts."""
        if job.ended or seconds <= 0 or self._parts.stopping.is_set():
            return job
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Job | None] = loop.create_future()
        over = partial(_tell, ended, None)
        with call.waiting(Doing.WAITING, over):
            self._waiting.setdefault(job.id, []).append(ended)
            if self._looking is None:
                self._looking = asyncio.create_task(self._look_on())
            timer = loop.call_later(seconds, over)
            try:
                found = await ended
            finally:
                timer.cancel()
                self._forget(job.id, ended)
        if call.is_gone():
            raise HungUp
        return found or await call.run(self._parts.store.get, job.id, caller=None) or job

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
            began = monotonic()
            with contextlib.suppress(StoreError):
                await self._look()
            # However many wait, and however often something happens: most of the time is left to others.
            await asyncio.sleep(max(_SHORTEST_PAUSE, _REST * (monotonic() - began)))
            await happens(hint, _LONGEST_PAUSE)

    def _is_waited_for(self) -> bool:
        return bool(self._waiting) and not self._parts.stopping.is_set()

    async def _look(self) -> None:
        ids = list(self._waiting)
        for start in range(0, len(ids), _AT_ONCE):
            where = Filter(ids=tuple(ids[start : start + _AT_ONCE]), states=_ENDED)
            page = await self._parts.run(self._parts.store.find, where, limit=_AT_ONCE)
            for job in page.jobs:
                for waiter in self._waiting.get(job.id, []):
                    _tell(waiter, job)


def _tell(waiter: asyncio.Future[Job | None], job: Job | None) -> None:
    if not waiter.done():
        waiter.set_result(job)
