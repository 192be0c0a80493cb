"""Memory: what this worker's jobs may take together, and a reservation for a type that is passed over."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.job import Lease, View

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.store.samples import Standing
    from windlass.store.store import Store
    from windlass.worker.pool import Pool

SHARE_OF_MACHINE = 0.9
# Where a container's own limit stands, by the version of the system that sets it.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# How long a job may wait for memory before it is reserved for its type.
_PATIENCE = timedelta(seconds=30)
_LOOK_SECONDS = 10.0
# What the last sample says of a type that was asked for is old news for so long; and whoever does not come
# when there is room (another limit holds them, a newer release is meant) is waited for ever less often.
_ASKED_SECONDS = 30.0
_LONGEST_SECONDS = 600.0
_MOST_DOUBLINGS = 5


class MemoryBudget:
    """Bytes that jobs may take together, each from its claim to its end; what does not fit is not claimed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        # By type.
        self._taken: Counter[str] = Counter()
        # The type that what is left is reserved for, and how much of it.
        self.reserved_for = ""
        self._reserved = 0

    @property
    def left(self) -> int:
        with self._lock:
            return max(0, self.size - self._taken.total())

    @property
    def spare(self) -> int:
        """What no job has and is not reserved; what the reservation's own type has counts as part of that."""
        with self._lock:
            taken = self._taken.total()
            others = taken - self._taken[self.reserved_for]
            return max(0, self.size - max(taken, others + self._reserved))

    def reserve(self, job_type: str, memory: int) -> None:
        """Reserve bytes for a type; for none, if it has no name."""
        with self._lock:
            self.reserved_for, self._reserved = job_type, memory

    def take(self, memory: int | None, job_type: str = "") -> None:
        """A job that declares these bytes was claimed; less than none: it has ended, or was given back."""
        with self._lock:
            self._taken[job_type] += memory or 0

    def give_back(self, memory: int | None, job_type: str = "") -> None:
        self.take(-(memory or 0), job_type)


class MemoryReservation:
    """Reserves free memory for one type at a time that smaller jobs pass again and again.

    It is reserved until the type has been asked for with room for it.

    Only against jobs of the same or a lower priority: more urgent ones go first, whatever they need. What
    waits, and how long, is known by the last sample of the store.
    """

    def __init__(self, store: Store, pools: Sequence[Pool], *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        sharing = [pool for pool in pools if pool.shares_memory]
        # Whether any type declares what it needs.
        self.active = bool(sharing)
        self._budget = (sharing[0].budget if sharing else None) or MemoryBudget(0)
        self._needs = {name: need for pool in sharing for name, need in pool.memory.items()}
        # The lowest priority of what took memory since the last look.
        self._lowest = math.inf
        self._next_look = 0.0
        # Whether there was room at the last look for the type that has the reservation.
        self._roomy = False
        # How often in a row a type was given room in vain, and until when nothing is reserved for it.
        self._in_vain: Counter[str] = Counter()
        self._not_before: dict[str, float] = {}

    def took(self, leases: Iterable[Lease]) -> None:
        priorities = (lease.job.priority for lease in leases if lease.job.type in self._needs)
        self._lowest = min(self._lowest, *priorities, math.inf)

    def asked(self, types: Container[str], leases: Iterable[Lease]) -> bool:
        """These types were asked for, so a reservation of one is over. True if others may have it again."""
        reserved = self._budget.reserved_for
        if reserved not in types:
            return False
        self._put_off(reserved, in_vain=all(lease.job.type != reserved for lease in leases))
        self._reserve("")
        return True

    def look(self, shut: Callable[[str], bool]) -> bool:
        """Now and then reserve memory for what should have had it first. True if a reservation ended."""
        now = self._clock.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        lowest, self._lowest = self._lowest, math.inf
        reserved, left = self._budget.reserved_for, self._budget.left
        if not reserved:
            self._reserve(self._first(self._tight(left, now), lowest, shut))
            return False
        if self._roomy:
            # There has been room for a while: what it lacks is a slot, and others shall not wait for that.
            self._put_off(reserved, in_vain=True)
            self._reserve("")
        else:
            # It stays so while its type waits, also when nobody passes it any more.
            self._reserve(self._first({reserved}, -math.inf, shut))
            self._roomy = self._needs[reserved] <= left
        return self._budget.reserved_for != reserved

    def _reserve(self, job_type: str) -> None:
        self._budget.reserve(job_type, self._needs.get(job_type, 0))
        self._roomy = False

    def _put_off(self, job_type: str, *, in_vain: bool) -> None:
        doublings = min(self._in_vain[job_type], _MOST_DOUBLINGS) if in_vain else 0
        self._in_vain[job_type] = doublings + in_vain
        pause = min(_ASKED_SECONDS * 2**doublings, _LONGEST_SECONDS)
        self._not_before[job_type] = self._clock.monotonic() + pause

    def _tight(self, left: int, now: float) -> set[str]:
        """Types that there is no room for now, and that were not asked for lately."""
        return {
            name
            for name, need in self._needs.items()
            if need > left and now >= self._not_before.get(name, -math.inf)
        }

    def _first(self, types: set[str], least: float, shut: Callable[[str], bool]) -> str:
        """That of the types whose jobs have waited for too long, of such a priority at least; or none."""
        if not types or least == math.inf:
            return ""
        waiting = [each for each in self._store.sample().standing if each.view == View.DUE]
        due = [each for each in waiting if each.type in self._needs and not shut(each.type)]
        late = [each for each in due if each.type in types and each.priority >= least and _is_late(each)]
        first = max(late, key=lambda each: (each.priority, each.oldest or _PATIENCE), default=None)
        if first is None:
            return ""
        # More urgent ones that come at once go before it; what has waited for long lacks something else.
        urgent = [each for each in due if each.priority > first.priority and not _is_late(each)]
        return "" if any(each.type != first.type for each in urgent) else first.type


def _is_late(each: Standing) -> bool:
    return each.oldest is not None and each.oldest >= _PATIENCE


def machine_memory() -> int | None:
    """The memory of this machine or container; None where the system does not tell."""
    lines = _read("/proc/meminfo").splitlines()
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    sizes += [int(text) for path in _LIMITS if (text := _read(path).strip()).isdecimal()]
    return min(sizes) if sizes else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
