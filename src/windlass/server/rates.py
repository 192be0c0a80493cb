"""Does somebody come faster than they may? What services may enqueue, and how often an address may log in."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from windlass.server import problems
from windlass.server.identity import Identity

# So much of a second's rate may come at once.
_BURST_SECONDS = 1.0
_MOST_ADDRESSES = 10_000
# Whoever has one address of IPv6 has as many as this leaves free.
_NETWORK_BITS = 64


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


class Addresses:
    """Bounds how often an address may do what needs no key: `most` at once, and one more every `seconds`."""

    def __init__(self, what: str, most: int, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._what = what
        self._most = most
        self._seconds = seconds
        self._clock = clock
        # By address, the last used last: what it has left, and when that was so.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, address: str) -> None:
        """Count one, or refuse it and close the connection: what else was sent on it is not read."""
        left = self._now(address)
        if left < 1:
            detail = f"too many {self._what} from this address"
            refused = problems.too_many(detail, (1 - left) * self._seconds, "rate-limited")
            refused.headers[b"connection"] = b"close"
            raise refused
        self._keep(address, left - 1)

    def give_back(self, address: str) -> None:
        """It does not count after all."""
        self._keep(address, self._now(address) + 1)

    def _now(self, address: str) -> float:
        now = self._clock()
        left, since = self._left.get(_network(address), (float(self._most), now))
        return min(self._most, left + (now - since) / self._seconds)

    def _keep(self, address: str, left: float) -> None:
        name = _network(address)
        self._left[name] = left, self._clock()
        self._left.move_to_end(name)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.popitem(last=False)


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - as it is called
        return address
    return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))
