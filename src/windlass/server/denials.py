"""Who was turned away, from where and how often? Told in few lines, however often somebody tries."""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from windlass.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.store.store import Store

log = logging.getLogger("windlass.server")

# Without a valid key, from another site, or for another host.
DENIED = frozenset({401, 403, 421})
# Lines of the log and of the audit log: so many at once, then one in so many seconds.
_BURST = 20
_SECONDS_PER_LINE = 60.0
# Sources that are told apart at a time; the others are counted together.
_MOST_SOURCES = 1_000
OTHERS = "others"
UNKNOWN = "unknown"


class Source(msgspec.Struct, frozen=True):
    """Where refused requests come from: one line tells of all that came from there."""

    status: int
    address: str
    # A caller that is known and may not do this, or `unknown`.
    who: str = UNKNOWN
    # The id of a key that exists: revoked, expired, or sent with another secret.
    key: str | None = None


class _Seen(msgspec.Struct):
    count: int = 0
    route: str = ""
    why: str = ""
    # When the last line about it was written.
    told: float | None = None


class Denials:
    """Counts refused requests by source; `flush` writes what has come since the last line about each."""

    def __init__(self, store: Callable[[], Store], now: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[Source, _Seen] = {}
        self._lines = float(_BURST)
        self._filled = now()

    def note(self, source: Source, route: str, why: str) -> None:
        """A request was refused."""
        with self._lock:
            if source not in self._seen and len(self._seen) >= _MOST_SOURCES:
                source = Source(source.status, OTHERS)
            seen = self._seen.setdefault(source, _Seen())
            seen.count += 1
            seen.route, seen.why = route, why

    def flush(self, *, last: bool = False) -> None:
        """Write a line for each source that is due, as far as the bound allows. Waits for the store."""
        for source, seen in self._due(last=last):
            log.warning(
                "server.denied",
                extra={
                    "status": source.status,
                    "address": source.address,
                    "who": source.who,
                    "key": source.key,
                    "count": seen.count,
                    "route": seen.route,
                    "why": seen.why,
                },
            )
            told = {"status": source.status, "count": seen.count, "route": seen.route}
            if source.key is not None:
                told["key"] = source.key
            try:
                self._store().note_action(
                    "denied", "request", source.address, by=source.who, why=seen.why, after=told
                )
            except StoreError:
                self._put_back(source, seen)
                raise

    def _due(self, *, last: bool) -> list[tuple[Source, _Seen]]:
        with self._lock:
            now = self._now()
            self._lines = min(_BURST, self._lines + (now - self._filled) / _SECONDS_PER_LINE)
            self._filled = now
            waiting = [
                (source, seen)
                for source, seen in self._seen.items()
                if seen.count and (last or seen.told is None or now - seen.told >= _SECONDS_PER_LINE)
            ]
            # Those who try most come first, if not all can be told of.
            waiting.sort(key=lambda each: -each[1].count)
            due = waiting[: int(self._lines)]
            self._lines -= len(due)
            told = [(source, msgspec.structs.replace(seen)) for source, seen in due]
            for _, seen in due:
                seen.count, seen.told = 0, now
            self._forget(now)
            return told

    def _forget(self, now: float) -> None:
        """Drop the sources that have been quiet since their last line."""
        for source, seen in list(self._seen.items()):
            if not seen.count and seen.told is not None and now - seen.told >= _SECONDS_PER_LINE:
                del self._seen[source]

    def _put_back(self, source: Source, missed: _Seen) -> None:
        with self._lock:
            seen = self._seen.setdefault(source, _Seen())
            seen.count += missed.count
            seen.route, seen.why, seen.told = missed.route, missed.why, None
