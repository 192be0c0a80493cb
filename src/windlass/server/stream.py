"""Events for the dashboard: one query a second for all listeners; each gets what changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.errors import StoreError
from windlass.job import Job, JobState, View
from windlass.ops.document import job_document, plain
from windlass.server.call import Call
from windlass.server.limits import Doing
from windlass.server.routes import Reply, route
from windlass.server.waiting import happens

if TYPE_CHECKING:
    from windlass.server.parts import Parts

log = logging.getLogger("windlass.server")

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
