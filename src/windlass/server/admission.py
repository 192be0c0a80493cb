"""May these jobs come in? Not faster than their sender may, and not into a queue that is full."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from windlass.job import JobState
from windlass.server import problems
from windlass.server.identity import Identity
from windlass.store.protocol import Filter, Store

_WAITING = Filter(states=(JobState.PENDING,))
# So much of a second's rate may come at once.
_BURST_SECONDS = 1.0


class Admission:
    """Counts what comes in: by service against its API key's rate, altogether against the queue's depth.

    The depth is counted now and then, by `measure`; in between, what is accepted here is added to it.
    """

    def __init__(self, depth_limit: int, clock: Callable[[], float] = monotonic) -> None:
        self._limit = depth_limit
        self._clock = clock
        self._depth = 0
        # By service, whichever API key it comes with: what is left of its burst, and when that was so.
        self._left: dict[str, tuple[float, float]] = {}

    def check(self, who: Identity, count: int) -> None:
        """Refuse jobs that are too many, all of them."""
        if self._limit and self._depth + count > self._limit:
            raise problems.too_many(
                f"{self._depth} jobs wait already, and no more than {self._limit} may", 5, "queue-full"
            )
        if who.key_id is not None and who.rate is not None:
            self._spend(who.name, who.rate, count)

    def accepted(self, count: int) -> None:
        """So many more wait."""
        self._depth += count

    def measure(self, store: Store) -> None:
        """Count what waits, as far as it matters."""
        if self._limit:
            before = self._depth
            counted = store.count(_WAITING, limit=self._limit)
            # What was accepted while we counted may not have been seen.
            self._depth = counted + max(0, self._depth - before)

    def _spend(self, name: str, rate: float, count: int) -> None:
        now = self._clock()
        most = max(rate * _BURST_SECONDS, 1.0)
        left, since = self._left.get(name, (most, now))
        left = min(most, left + (now - since) * rate)
        # A batch larger than the burst goes when the burst is whole, and is paid for afterwards.
        if left < min(count, most):
            self._left[name] = (left, now)
            raise problems.too_many(
                f"{name} may enqueue {rate:g} jobs a second", (min(count, most) - left) / rate, "rate-limited"
            )
        self._left[name] = (left - count, now)
