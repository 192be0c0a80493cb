"""What time is it? The only reader of clocks."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from random import Random
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Wall time for records, and two clocks that never jump back for waiting."""

    def micros(self) -> int:
        """Wall time as whole microseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that only rises."""

    def uptime(self) -> float:
        """Seconds on a clock that only rises and also counts while the machine sleeps."""


class SystemClock:
    """The machine's own clocks."""

    # The system's own calls: every enqueue asks several times.
    monotonic = staticmethod(time.monotonic)
    uptime = staticmethod(partial(time.clock_gettime, _BOOT_CLOCK))

    def micros(self) -> int:
        """Wall time as whole microseconds since 1970, UTC."""
        return time.time_ns() // 1000


class ManualClock:
    """A clock that moves only when told; for tests."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._wall = to_micros(start)
        self._risen = 0.0

    def micros(self) -> int:
        """Wall time as whole microseconds since 1970, UTC."""
        return self._wall

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._risen

    uptime = monotonic

    def advance(self, by: timedelta | float) -> None:
        """Let time pass on all three clocks."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        self._wall += step // _MICROSECOND
        self._risen += step.total_seconds()

    def jump(self, by: timedelta) -> None:
        """Move the wall clock alone, as a wrong or corrected system time does."""
        self._wall += by // _MICROSECOND


def to_micros(moment: datetime) -> int:
    """A datetime as microseconds since 1970; one without a zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=4096)
def from_micros(micros: int) -> datetime:
    """Microseconds since 1970 as a datetime in UTC. Kept for a while: jobs of one batch share their times."""
    return _EPOCH + timedelta(microseconds=micros)


END_OF_TIME = to_micros(datetime.max.replace(tzinfo=UTC))


def span(duration: timedelta) -> int:
    """A duration as whole microseconds."""
    return duration // _MICROSECOND


class _Ids:
    """Rises within a process even when many ids are made in one millisecond."""

    def __init__(self) -> None:
        self.begin()
        # A forked child must neither wait for a lock that was held, nor make its parent's ids again.
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._chance = Random(os.urandom(32)).getrandbits

    def __call__(self) -> str:
        """A new UUIDv7: 48 bits of milliseconds, then chance. Those of one process rise in order."""
        with self._lock:
            stamp = (time.time_ns() // 1_000_000) << 74
            # Never below the last: within one millisecond, or after the wall clock stepped back, count on.
            fresh = stamp | self._chance(72)
            self._last = fresh if fresh > self._last else self._last + 1 + self._chance(32)
            body = self._last
        high, low = body >> 62, body & ((1 << 62) - 1)
        whole = (high >> 12 << 80) | (0x7 << 76) | ((high & 0xFFF) << 64) | (0b10 << 62) | low
        digits = f"{whole:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


uuid7 = _Ids()
