"""Requests that wait: workers for jobs, callers for the end of a job. Many of them share one query.

Workers that want jobs of the same types form a line. Only the first one in it asks the store: at each hint,
when a job falls due, and once a second. When it has found jobs it leaves, and the next one asks. One
statement keeps all waiting workers alive.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from windlass.errors import StoreError
from windlass.job import ENDED, Job
from windlass.server.call import HungUp
from windlass.server.limits import Doing
from windlass.store.jobs import Filter

if TYPE_CHECKING:
    from windlass.server.call import Call
    from windlass.server.parts import Parts


@contextlib.asynccontextmanager
async def hints(parts: Parts) -> AsyncIterator[asyncio.Event]:
    """An event that is set at each hint, for as long as the block lasts."""
    loop, hint = asyncio.get_running_loop(), asyncio.Event()
    wakeup = parts.queue.wakeup

    def wake() -> None:
        # A hint may be on its way when the loop is already closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(hint.set)

    await parts.run(wakeup.subscribe, wake)
    try:
        yield hint
    finally:
        await parts.run(wakeup.unsubscribe, wake)


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, so long; whether it happened."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


_BEAT_SECONDS = 2.0
# Between two rounds of hints: what many producers enqueue at one moment is looked for once.
_BETWEEN_HINTS = 0.01
_Line = dict["WaitingWorker", None]


class WaitingWorker:
    """The place of one worker in a line."""

    def __init__(self, line: _Line, worker: str) -> None:
        self._line = line
        self.worker = worker
        self.woken = asyncio.Event()
        # Another server, or the reaper, has taken the worker for dead.
        self.lost = False

    @property
    def first(self) -> bool:
        """Whether it is its turn to look."""
        return next(iter(self._line)) is self


class WaitingWorkers:
    """Workers that wait for jobs, by type. Listens for hints, and sends beats, only while there are any."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lines: dict[frozenset[str], _Line] = {}
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @contextlib.asynccontextmanager
    async def place(self, types: frozenset[str], worker: str) -> AsyncIterator[WaitingWorker]:
        """A place at the end of the line for these types; when it is left, the next one asks."""
        line = self._lines.setdefault(types, {})
        mine = WaitingWorker(line, worker)
        line[mine] = None
        if not self._tasks:
            self._tasks = asyncio.create_task(self._follow_hints()), asyncio.create_task(self._beat())
        try:
            yield mine
        finally:
            was_first = mine.first
            del line[mine]
            if not line:
                del self._lines[types]
            elif was_first:
                next(iter(line)).woken.set()
            if not self._lines:
                for task in self._tasks:
                    task.cancel()
                self._tasks = ()

    async def _follow_hints(self) -> None:
        async with hints(self._parts) as hint:
            while True:
                await hint.wait()
                hint.clear()
                for line in self._lines.values():
                    next(iter(line)).woken.set()
                await asyncio.sleep(_BETWEEN_HINTS)

    async def _beat(self) -> None:
        """Keep all waiting workers alive: no one else beats for them. Wake those that were declared dead."""
        while not await happens(self._parts.stopping, _BEAT_SECONDS):
            places = [place for line in self._lines.values() for place in line]
            with contextlib.suppress(StoreError):
                alive = await self._parts.run(
                    self._parts.store.beat_waiting, sorted({each.worker for each in places})
                )
                for place in places:
                    if place.worker not in alive:
                        place.lost = True
                        place.woken.set()


# Between two looks, however many hints come; and without any hint.
_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25
_AT_ONCE = 500
# After a look, this many times as long as it took.
_REST = 6.0
_ENDED = tuple(ENDED)


class Endings:
    """Requests that wait for the end of a job. Asks the store only while there are any."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waiting: dict[str, list[asyncio.Future[Job | None]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, call: Call, job: Job, seconds: float) -> Job:
        """The job when it has ended; or as it is when the time is over, or the caller interrupts."""
        if job.ended or seconds <= 0 or self._parts.stopping.is_set():
            return job
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Job | None] = loop.create_future()
        over = partial(_resolve, ended, None)
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
            # A request that comes while the hints are let go of is served in another round.
            while self._is_waited_for():
                async with hints(self._parts) as hint:
                    await self._look_at_hints(hint)
        finally:
            self._looking = None
            for waiter in [each for waiters in self._waiting.values() for each in waiters]:
                _resolve(waiter, None)

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
                    _resolve(waiter, job)


def _resolve(waiter: asyncio.Future[Job | None], job: Job | None) -> None:
    if not waiter.done():
        waiter.set_result(job)
