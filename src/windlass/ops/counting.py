"""Count live jobs for status and pages; cached where counting is expensive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from msgspec import structs

from windlass.errors import StoreError
from windlass.store.jobs import Count, Counts

# A count that takes no longer is made for everybody who asks.
_CHEAP_SECONDS = 0.03
# So many times as long as a dear one took passes before the next: counting takes a twentieth of the time.
_SPARE = 20
# Whoever finds none that is younger waits for a new one.
_OLDEST_SECONDS = 60.0


class Counting:
    """One store's counts for many askers; those of a moment ago are told with ages brought up to now."""

    def __init__(self, count: Callable[[], Counts], clock: Callable[[], float] = monotonic) -> None:
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Counts | None = None
        self._counted = 0.0
        self._took = 0.0

    def __call__(self) -> Counts:
        """The counts: new ones, or those of the last count while a new one is dear."""
        known, age = self._known, self._clock() - self._counted
        if known is None or self._took <= _CHEAP_SECONDS or age > _OLDEST_SECONDS:
            with self._lock:
                return self._anew()
        if age > _SPARE * self._took and self._lock.acquire(blocking=False):
            threading.Thread(target=self._behind, name="windlass-count", daemon=True).start()
        return _later(known, timedelta(seconds=age))

    def _anew(self) -> Counts:
        began = self._clock()
        counts = self._count()
        self._counted = self._clock()
        self._took = self._counted - began
        self._known = counts
        return counts

    def _behind(self) -> None:
        """Count while others are told the last counts; a store that is away is news for who waits next."""
        try:
            self._anew()
        except StoreError:
            return
        finally:
            self._lock.release()


def _later(counts: Counts, by: timedelta) -> Counts:
    return structs.replace(counts, now=counts.now + by, counts=[_aged(each, by) for each in counts.counts])


def _aged(count: Count, by: timedelta) -> Count:
    return count if count.oldest is None else structs.replace(count, oldest=count.oldest + by)
