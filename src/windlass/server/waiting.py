"""Requests that wait: workers for jobs, callers for the end of a job or for events. Many share one query.

Workers that want jobs of the same types form a line. Only the first one in it asks the store: at each hint,
when a job falls due, and once a second. When it has found jobs it leaves, and the next one asks. One
statement keeps all waiting workers alive.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.errors import StoreError
from windlass.job import ENDED, Job, JobState, View
from windlass.ops.document import job_document, plain
from windlass.queue.jobs import happens, hints
from windlass.server.call import Call, HungUp
from windlass.server.limits import Doing
from windlass.server.routes import Reply, route
from windlass.store.jobs import Filter

if TYPE_CHECKING:
    from windlass.server.parts import Parts


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
        async with hints(self._parts.queue.wakeup, self._parts.run) as hint:
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
                waiters = self._waiting[job.id]
                waiters.remove(ended)
                if not waiters:
                    del self._waiting[job.id]
        if call.is_gone():
            raise HungUp
        return found or await call.run(self._parts.store.get, job.id, caller=None) or job

    async def _look_on(self) -> None:
        try:
            # A request that comes while the hints are let go of is served in another round.
            while self._is_waited_for():
                async with hints(self._parts.queue.wakeup, self._parts.run) as hint:
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


# --- events for the dashboard ----------------------------------------------------------------------

_EVERY_SECONDS = 1.0
# A listener gets a sign of life after this time without an event: dashboard/js/live.js waits for 10 s.
_SIGN_OF_LIFE_SECONDS = 3.0
# A listener that has this many events unread is cut off; the browser connects again by itself.
_MOST_WAITING = 100
_MOST_FAILURES = 100
# After this many listeners other requests get their turn.
_SENT_AT_ONCE = 25
_BETWEEN_SECONDS = 0.005
_SHOWN_OF_TYPES = ("counts", "workers", "effective", "paused", "breaker")


class Stream:
    """One query a second while there are listeners; what changed goes to all of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._seen: dict[str, Any] = {}
        self._since: datetime | None = None

    async def listen(self, call: Call) -> AsyncGenerator[bytes, None]:
        """Everything once, then what changes, until the listener hangs up or is not welcome any more."""
        mine: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        if self._seen and self._looking is not None:
            mine.put_nowait(_event("stats", self._seen))
        self._listeners.add(mine)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on())
        try:
            # Sending to a listener that has hung up does not fail: it must be noticed.
            with call.waiting(Doing.LISTENING, partial(_dismiss, mine)):
                yield b"retry: 2000\n\n"
                while True:
                    try:
                        async with asyncio.timeout(_SIGN_OF_LIFE_SECONDS):
                            event = await mine.get()
                    except TimeoutError:
                        event = _event("beat", {})
                    # A listener whose key was revoked, or that came before there were keys, gets no more.
                    if event is None or not self._parts.authentication.knows(call.scope):
                        return
                    yield event
        finally:
            self._listeners.discard(mine)

    async def _look_on(self) -> None:
        try:
            while self._listeners and not self._parts.stopping.is_set():
                try:
                    await self._look()
                except StoreError:
                    # Where the store is, onlookers need not know; the server's log has it.
                    await self._send(_event("trouble", {"detail": "the store cannot be reached"}))
                await happens(self._parts.stopping, _EVERY_SECONDS)
        finally:
            self._looking, self._seen, self._since = None, {}, None
            for listener in self._listeners:
                _dismiss(listener)

    async def _look(self) -> None:
        now, stats, failures = await self._parts.run(self._read)
        changed = {name: value for name, value in stats.items() if self._seen.get(name) != value}
        first = not self._seen
        self._seen, self._since = stats, now
        news = [_event("stats", stats if first else changed)] if changed else []
        news += [_event("failure", failure) for failure in failures]
        if news:
            # Together: a burst of failures must not look like a listener who does not read.
            await self._send(b"".join(news))

    def _read(self) -> tuple[datetime, dict[str, Any], list[dict[str, Any]]]:
        status = self._parts.ops().status()
        stats: dict[str, Any] = plain(status)
        now = stats.pop("now")
        # Ages change with every look: they are for who asks, not for who listens.
        for name in ("oldest_due", "bands", "warnings"):
            stats.pop(name)
        stats["types"] = {
            each.pop("name"): {name: each[name] for name in _SHOWN_OF_TYPES} for each in stats["types"]
        }
        failures: list[Job] = []
        if self._since is not None:
            found = self._parts.store.failures(since=self._since, limit=_MOST_FAILURES)
            # One that runs again, or is due for it, was sent before.
            failures = [job for job in found if job.view(now) is View.RETRYING or job.state is JobState.DEAD]
        return now, stats, [_failure(job, now) for job in failures]

    async def _send(self, event: bytes) -> None:
        for number, listener in enumerate(list(self._listeners), 1):
            if listener.full():
                self._listeners.discard(listener)
                _dismiss(listener)
            else:
                listener.put_nowait(event)
            if number % _SENT_AT_ONCE == 0:
                # Others have requests meanwhile.
                await asyncio.sleep(_BETWEEN_SECONDS)


def _dismiss(listener: asyncio.Queue[bytes | None]) -> None:
    """The last thing that a listener takes from its queue, however full that is."""
    if listener.full():
        listener.get_nowait()
    listener.put_nowait(None)


def _failure(job: Job, now: datetime) -> dict[str, Any]:
    """What failed, without its payload: onlookers ask for a job if they want to see it."""
    document = job_document(job, now)
    wanted = ("id", "type", "state", "view", "key", "tenant", "attempts", "max_attempts", "run_at", "error")
    return {name: getattr(document, name) for name in wanted}


def _event(name: str, document: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(document))


@route("GET stream", "Follow what happens", {200: None}, media_type="text/event-stream")
async def follow(call: Call) -> Reply:
    """Server-sent events: `stats` with what changed, once a second at most, and each `failure`."""
    call.begin(Doing.LISTENING)
    events = call.parts.stream.listen(call)
    return Reply(200, b"", media_type=b"text/event-stream", stream=events)
