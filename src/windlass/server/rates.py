"""Does somebody send faster than they may? What each service has left of its rate."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from windlass.server import problems
from windlass.server.identity import Identity

# So much of a second's rate may come at once.
_BURST_SECONDS = 1.0


class Rates:
    """Counts what comes in by service, whichever of its API keys it comes with.

    In this process: with two servers a service may send twice as much. One count for all would cost a write
    to the store, for what is a bound on abuse and not a promise.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # By service: what is left of its burst, and when that was so.
        self._left: dict[str, tuple[float, float]] = {}

    def spend(self, who: Identity, count: int) -> None:
        """Count so many jobs of somebody's, or refuse all of them."""
        if who.key_id is None or who.rate is None:
            return
        name, rate = who.name, who.rate
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
