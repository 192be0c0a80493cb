"""How many requests may be here at once? Those that work, send their body or only wait are counted apart."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from windlass.server.problems import Problem

if TYPE_CHECKING:
    from windlass.config import ServerConfig


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


class Crowd:
    """Counts requests by what they do. Lives on the event loop."""

    def __init__(self, bounds: dict[Doing, Bound]) -> None:
        self.bounds = bounds
        self._all: Counter[Doing] = Counter()
        self._of_key: Counter[tuple[Doing, str]] = Counter()

    def enter(self, doing: Doing, key: str | None) -> None:
        """Count one more, or refuse it: 429 if its API key has too many, 503 if there are too many in all."""
        bound = self.bounds[doing]
        headers = {b"retry-after": b"%d" % bound.again}
        if key is not None and self._of_key[doing, key] >= bound.per_key:
            detail = f"this API key has {bound.per_key} {doing} at once already, which is the most: try again"
            raise Problem(429, "too-many-requests", detail, headers=headers)
        if self._all[doing] >= bound.most:
            detail = f"there are {bound.most} {doing} at once already, which is the most: try again"
            raise Problem(503, "too-busy", detail, headers=headers)
        self.add(doing, key)

    def add(self, doing: Doing, key: str | None) -> None:
        """Count one more, however many there are."""
        self._all[doing] += 1
        if key is not None:
            self._of_key[doing, key] += 1

    def leave(self, doing: Doing, key: str | None) -> None:
        """Count one less."""
        self._all[doing] -= 1
        if key is not None:
            self._of_key[doing, key] -= 1
            if not self._of_key[doing, key]:
                del self._of_key[doing, key]

    def count(self, doing: Doing) -> int:
        """How many there are."""
        return self._all[doing]
