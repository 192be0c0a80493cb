"""How do many workers wait for jobs over HTTP, without each of them asking the store again and again?

Those who want jobs of the same types stand in a line, and only the first of it looks: at each hint, when a
job falls due, and once a second. When it has found jobs and leaves, the next one looks. All who wait are kept
alive by one statement.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from windlass.errors import StoreError
from windlass.server.hints import happens, hints

if TYPE_CHECKING:
    from windlass.server.parts import Parts

_BEAT_SECONDS = 2.0
# Between two rounds of hints: what many producers enqueue at one moment is looked for once.
_SHORTEST_PAUSE = 0.01
_Line = dict["Place", None]


class Place:
    """Where one worker stands in a line."""

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


class Lines:
    """Who waits for jobs of which types. Listens for hints, and beats, only while somebody waits."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lines: dict[frozenset[str], _Line] = {}
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @contextlib.asynccontextmanager
    async def place(self, types: frozenset[str], worker: str) -> AsyncIterator[Place]:
        """A place at the end of the line for these types; whoever leaves it lets the next one look."""
        line = self._lines.setdefault(types, {})
        mine = Place(line, worker)
        line[mine] = None
        if not self._tasks:
            self._tasks = asyncio.create_task(self._hear()), asyncio.create_task(self._beat())
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

    async def _hear(self) -> None:
        async with hints(self._parts) as hint:
            while True:
                await hint.wait()
                hint.clear()
                for line in self._lines.values():
                    next(iter(line)).woken.set()
                await asyncio.sleep(_SHORTEST_PAUSE)

    async def _beat(self) -> None:
        """Keep all who wait alive: nobody else speaks for them. Those who are dead all the same are told."""
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
