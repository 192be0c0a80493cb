"""Pace: spread work out so that no more than a number of things happen each second."""

from __future__ import annotations

import threading

from windlass.clock import Clock, SystemClock
from windlass.errors import must_be


class Pace:
    """Holds its caller back so that at most `rate` things happen per second; None: as fast as it goes."""

    def __init__(self, rate: float | None, *, clock: Clock | None = None) -> None:
        if rate is not None and not rate > 0:
            raise must_be("rate", rate, "more than 0 per second")
        self._rate = rate
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        self._count = 0
        self._never = threading.Event()

    @property
    def step(self) -> int | None:
        """How many to do between two waits, so that the pace looks even; None: any number."""
        return None if self._rate is None else max(1, int(self._rate / _WAITS_PER_SECOND))

    def passed(self, count: int) -> None:
        """Say that `count` more have happened; returns when the next may."""
        self.count(count)
        ahead = self.ahead()
        if ahead > 0:
            self._never.wait(ahead)

    def count(self, count: int) -> None:
        """The same for those who wait in their own way."""
        self._count += count

    def ahead(self) -> float:
        """By how many seconds the caller is faster than its pace."""
        if self._rate is None:
            return 0.0
        return self._count / self._rate - (self._clock.monotonic() - self._began)


_WAITS_PER_SECOND = 10
