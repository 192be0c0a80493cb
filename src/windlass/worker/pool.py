"""How many jobs may run at once, and which is next?"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from windlass.worker.pace import Pace
from windlass.worker.run import Run


class Pool:
    """A set of types with its slots. A slot is taken from a run's start until its work has really ended."""

    def __init__(self, name: str, types: dict[str, int], slots: int) -> None:
        self.name = name
        self.types = types
        self.slots = slots
        self.pace = Pace()
        self._lock = threading.Lock()
        self._waiting: deque[Run] = deque()
        self._taken = 0
        self._held = 0
        self._ahead = 0

    @property
    def busy(self) -> int:
        """Runs that go on and are not yet settled."""
        return self._taken - self._held

    @property
    def held(self) -> int:
        """Slots of runs that are settled while their work goes on."""
        return self._held

    @property
    def waiting(self) -> int:
        """Claimed and not started."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits; what is merely held does not count."""
        return self.busy <= 0 and not self._waiting

    def room(self, now: float) -> int:
        """How many more jobs to claim."""
        with self._lock:
            self._ahead = self.pace.ahead(self.slots, now)
            return max(0, self.slots - self._taken - len(self._waiting) + self._ahead)

    @property
    def low(self) -> bool:
        """Whether it is worth asking for more: not for every single slot while enough wait."""
        return len(self._waiting) <= self._ahead // 2

    def offer(self, runs: Iterable[Run]) -> list[Run]:
        """Take claimed runs in; answers those that start now."""
        with self._lock:
            self._waiting.extend(runs)
            return self._next()

    def free(self, run: Run, now: float, *, was_held: bool) -> list[Run]:
        """A run's work has ended; answers those that start now."""
        seconds = run.ran(now)
        with self._lock:
            self._taken -= 1
            self._held -= was_held
            if seconds is not None:
                self.pace.note(run.handler.name, seconds, now)
            return self._next()

    def hold(self) -> None:
        """A run was settled while its work goes on."""
        with self._lock:
            self._held += 1

    def take_back(self, received_before: float) -> list[Run]:
        """Those that have waited since before that time; they wait no more."""
        stale: list[Run] = []
        with self._lock:
            while self._waiting and self._waiting[0].received < received_before:
                stale.append(self._waiting.popleft())
        return stale

    def _next(self) -> list[Run]:
        starting: list[Run] = []
        while self._waiting and self._taken < self.slots:
            self._taken += 1
            starting.append(self._waiting.popleft())
        return starting
