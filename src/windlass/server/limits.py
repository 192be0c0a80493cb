"""Request limits: how many at once, how many per second, and a record of the requests that were denied."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from windlass.server.identity import Identity
from windlass.server.problems import CLOSE, Problem

if TYPE_CHECKING:
    from windlass.config import ServerConfig
    from windlass.store.store import Store


log = logging.getLogger("windlass.server")
# Without a valid key, from another site, or for another host.
DENIED = frozenset({401, 403, 421})
# Lines of the log and of the audit log: a burst, then one per this many seconds.
_BURST = 20
_SECONDS_PER_LINE = 60.0
# Sources that are counted separately at a time; the others are counted together.
_MOST_SOURCES = 1_000
OTHERS = "others"
UNKNOWN = "unknown"
# How many seconds of a rate may come at once.
_BURST_SECONDS = 1.0
_MOST_BUCKETS = 10_000
# A caller with one address of IPv6 has as many as this leaves free.
_NETWORK_BITS = 64


class Doing(StrEnum):
    """What a request is about, at a moment."""

    # It needs no key: the dashboard's files, documentation, logging in.
    OPEN = "requests that need no key"
    # Its key is known, and its body is on the way.
    SENDING = "requests whose body is on the way"
    # It is being carried out.
    WORKING = "requests"
    # It waits for the end of a job, ...
    WAITING = "requests that wait for a job"
    # ... for jobs to work on, ...
    CLAIMING = "workers that wait for jobs"
    # ... or for events.
    LISTENING = "listeners to events"


class Bound(NamedTuple):
    """How many at once: in all, of one API key, and in how many seconds to try again."""

    most: int
    per_key: int
    again: int = 1


def bounds(config: ServerConfig) -> dict[Doing, Bound]:
    """The bounds of one server."""
    return {
        Doing.OPEN: Bound(100, 100),
        Doing.SENDING: Bound(config.most_requests, config.most_requests // 2, 5),
        Doing.WORKING: Bound(config.most_requests, config.most_requests // 2),
        Doing.WAITING: Bound(config.most_waiting, config.most_waiting // 4, 5),
        Doing.CLAIMING: Bound(1_000, 250, 5),
        Doing.LISTENING: Bound(500, 100, 5),
    }


class RequestLimits:
    """Counts requests by what they do. Lives on the event loop."""

    def __init__(self, bounds: dict[Doing, Bound]) -> None:
        self.bounds = bounds
        self._all: Counter[Doing] = Counter()
        self._of_key: Counter[tuple[Doing, str]] = Counter()

    def enter(self, doing: Doing, key: str | None) -> None:
        """Count one more, or refuse it: 429 if its API key has too many, 503 if there are too many in all."""
        bound = self.bounds[doing]
        if key is not None and self._of_key[doing, key] >= bound.per_key:
            detail = f"this API key has {bound.per_key} {doing} at once already, which is the most: try again"
            raise Problem(429, "too-many-requests", detail, again=bound.again)
        if self._all[doing] >= bound.most:
            detail = f"there are {bound.most} {doing} at once already, which is the most: try again"
            raise Problem(503, "too-busy", detail, again=bound.again)
        self.add(doing, key)

    def add(self, doing: Doing, key: str | None) -> None:
        self._all[doing] += 1
        if key is not None:
            self._of_key[doing, key] += 1

    def leave(self, doing: Doing, key: str | None) -> None:
        self._all[doing] -= 1
        if key is not None:
            self._of_key[doing, key] -= 1
            if not self._of_key[doing, key]:
                del self._of_key[doing, key]


class Turns:
    """Lets each API key do a few things at once; whatever else it asks for waits for its turn."""

    def __init__(self, without_key: int, per_key: int) -> None:
        self._without_key = without_key
        self._per_key = per_key
        # By key, as long as it asks for something.
        self._turns: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()

    def turn(self, key: str | None) -> asyncio.Semaphore:
        """Within a block of it, it is the key's turn."""
        found = self._turns.get(key)
        if found is None:
            most = self._without_key if key is None else self._per_key
            found = self._turns[key] = asyncio.Semaphore(most)
        return found


class _Buckets:
    """Token buckets by name. The ones that were not used for longest are forgotten."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # What is left in each, and when that was so; the last used last.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, name: str, most: float, per_second: float) -> float:
        now = self._clock()
        left, since = self._left.get(name, (most, now))
        return min(most, left + (now - since) * per_second)

    def keep(self, name: str, left: float) -> None:
        self._left[name] = left, self._clock()
        self._left.move_to_end(name)
        if len(self._left) > _MOST_BUCKETS:
            self._left.popitem(last=False)


class Rates(_Buckets):
    """Counts what comes in by service, whichever of its API keys it comes with.

    In this process: with two servers a service may send twice as much. One count for all would cost a write
    to the store, for what is a bound on abuse and not a promise.
    """

    def spend(self, who: Identity, count: int) -> None:
        """Count jobs of a caller, or refuse all of them."""
        if who.key_id is None or who.rate is None:
            return
        name, rate = who.name, who.rate
        most = max(rate * _BURST_SECONDS, 1.0)
        left = self.left(name, most, rate)
        # A batch larger than the burst goes when the burst is whole, and is paid for afterwards.
        missing = min(count, most) - left
        self.keep(name, left if missing > 0 else left - count)
        if missing > 0:
            detail = f"{name} may enqueue {rate:g} jobs a second"
            raise Problem(429, "rate-limited", detail, again=missing / rate)


class Addresses(_Buckets):
    """Bounds how often an address may do what needs no key: `most` at once, and one more every `seconds`."""

    def __init__(self, what: str, most: int, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock)
        self._what = what
        self._most = most
        self._seconds = seconds

    def spend(self, address: str, count: int = 1) -> None:
        """Count one, or refuse it and close the connection; less than none is given back."""
        found = read_address(address)
        network = address
        if isinstance(found, IPv6Address):
            network = str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))
        left = self.left(network, self._most, 1 / self._seconds) - count
        if left < 0:
            detail, again = f"too many {self._what} from this address", -left * self._seconds
            raise Problem(429, "rate-limited", detail, again=again, headers=CLOSE)
        self.keep(network, left)


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """An IP address; None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class Source(msgspec.Struct, frozen=True):
    """Where refused requests come from: one line reports all that came from there."""

    status: int
    address: str
    # A caller that is known and may not do this, or `unknown`.
    who: str = UNKNOWN
    # The id of a key that exists: revoked, expired, or sent with another secret.
    key: str | None = None


class _Seen(msgspec.Struct):
    count: int = 0
    # The last one, and whether there were others.
    route: str = ""
    others: bool = False
    why: str = ""
    # When the last line about it was written.
    reported: float | None = None


class Denials:
    """Counts refused requests by source; `flush` writes what has come since the last line about each."""

    def __init__(self, store: Callable[[], Store], now: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[Source, _Seen] = {}
        self._lines = _Buckets(now)

    def note(self, source: Source, route: str, why: str) -> None:
        with self._lock:
            if source not in self._seen and len(self._seen) >= _MOST_SOURCES:
                source = Source(source.status, OTHERS)
            seen = self._seen.setdefault(source, _Seen())
            seen.others = bool(seen.count) and (seen.others or seen.route != route)
            seen.count += 1
            seen.route, seen.why = route, why

    def flush(self, *, last: bool = False) -> None:
        """Write a line for each source that is due, as far as the bound allows. Waits for the store."""
        for source, seen in self._due(last=last):
            count, key = seen.count, {} if source.key is None else {"key": source.key}
            route = f"{seen.route} and others" if seen.others else seen.route
            facts = {"count": count, "route": route, "status": source.status} | key
            who = {"address": source.address, "who": source.who, "why": seen.why}
            log.warning("server.denied", extra=facts | who)
            note = partial(self._store().note_action, "denied", "request", source.address)
            note(by=source.who, why=seen.why, after=facts)
            with self._lock:
                # More may have come meanwhile.
                seen.count -= count
                seen.reported = self._now()

    def _due(self, *, last: bool) -> list[tuple[Source, _Seen]]:
        with self._lock:
            now = self._now()
            lines = self._lines.left("", _BURST, 1 / _SECONDS_PER_LINE)
            due: list[tuple[Source, _Seen]] = []
            for source, seen in list(self._seen.items()):
                quiet = seen.reported is not None and now - seen.reported < _SECONDS_PER_LINE
                if seen.count and (last or not quiet):
                    due.append((source, seen))
                elif not seen.count and not quiet:
                    del self._seen[source]
            # Sources with the most requests come first, if not all can be reported.
            due = sorted(due, key=lambda each: -each[1].count)[: int(lines)]
            self._lines.keep("", lines - len(due))
            return due
