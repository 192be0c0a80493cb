"""How many jobs may run at once, and which is next?"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from windlass.worker.budget import Budget
from windlass.worker.pace import Pace
from windlass.worker.run import Run


class Pool:
    """A set of types with its slots. A slot is taken from a run's start until its work has really ended."""

    def __init__(
        self,
        name: str,
        types: dict[str, int],
        slots: int,
        *,
        budget: Budget | None = None,
        memory: Mapping[str, int] | None = None,
    ) -> None:
        """`memory` tells which types declare what they need; together they stay within the budget."""
        self.name = name
        self.budget = budget
        self.memory = memory or {}
        self.types = types
        self.slots = slots
        self.pace = Pace()
        self._lock = threading.Lock()
        self._waiting: deque[Run] = deque()
        self._taken = 0
        self._held = 0
        self._ahead = 0
        # Of types that are limited or declare memory: those that have a slot, and those that wait for one.
        self._limited = 0
        self._limited_waiting = 0

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
            # Limited jobs are asked for apart: however long they take, others are claimed ahead beside them.
            self._ahead = self.pace.ahead(self.slots - self._limited, now)
            return max(0, self.slots - self._taken - len(self._waiting) + self._ahead)

    def portions(self, now: float) -> Iterator[tuple[dict[str, int], int]]:
        """What to claim: types and how many. Whatever mix of them comes, it fits the memory that is left."""
        room = self.room(now)
        if self.budget is None or not self.memory:
            yield self.types, room
            return
        kept = self.budget.kept
        if self.vacant > 0 and self.memory.get(kept, math.inf) <= self.budget.left:
            yield {kept: self.types[kept]}, 1
        spare, kept = self.budget.spare, self.budget.kept
        needs = {name: need for name, need in self.memory.items() if need <= spare and name != kept}
        too_large = self.memory.keys() - needs.keys()
        if needs:
            # All that fits at once, so that the store's order decides who is first.
            yield self._but(too_large), min(self.vacant, spare // max(needs.values()))
        # Only what declares nothing is claimed ahead: the others would keep memory while they wait.
        if (room := self.room(now)) > 0 and (plain := self._but(self.memory.keys())):
            yield plain, room
        if too_large:
            yield {name: self.types[name] for name in too_large}, 0

    def _but(self, names: Collection[str]) -> dict[str, int]:
        return {name: version for name, version in self.types.items() if name not in names}

    @property
    def vacant(self) -> int:
        """How many jobs could start at once, or nearly, that are limited or declare memory.

        While others are claimed ahead no slot is ever vacant, but many are soon: then limited ones have a
        share, and go before those that wait.
        """
        free = self.slots - self._taken - len(self._waiting)
        share = -(-self.slots // _LIMITED_SHARE) - self._limited_waiting if self._ahead else 0
        return max(0, free, share)

    @property
    def shares_memory(self) -> bool:
        """Whether any of its types declares what it needs."""
        return self.budget is not None and bool(self.memory)

    @property
    def low(self) -> bool:
        """Whether it is worth asking for more: not for every single slot while enough wait."""
        return len(self._waiting) <= self._ahead // 2

    def offer(self, runs: Iterable[Run]) -> list[Run]:
        """Take claimed runs in; answers those that start now."""
        with self._lock:
            for run in runs:
                self._promise(run)
                if self._is_scarce(run):
                    self._put_before_others(run)
                else:
                    self._waiting.append(run)
            return self._next()

    def free(self, run: Run, now: float, *, was_held: bool) -> list[Run]:
        """A run's work has ended; answers those that start now."""
        seconds = run.ran(now)
        with self._lock:
            self._release(run)
            self._taken -= 1
            scarce = self._is_scarce(run)
            self._limited -= scarce
            self._held -= was_held
            if seconds is not None and not scarce:
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
                stale.append(self._waiting[0])
                self._drop(stale[-1])
        return stale

    def take_back_those(self, shut: Callable[[str], bool]) -> list[Run]:
        """Those that wait and whose type is shut; they wait no more."""
        with self._lock:
            stale = [run for run in self._waiting if shut(run.handler.name)]
            for run in stale:
                self._drop(run)
        return stale

    def _put_before_others(self, run: Run) -> None:
        """It keeps a permit or memory from others while it waits: only more urgent ones go before it."""
        priority = run.lease.job.priority
        place = next(
            (
                number
                for number, each in enumerate(self._waiting)
                if each.lease.job.priority < priority
                or (each.lease.job.priority == priority and not self._is_scarce(each))
            ),
            len(self._waiting),
        )
        self._waiting.insert(place, run)
        self._limited_waiting += 1

    def _is_scarce(self, run: Run) -> bool:
        """Whether it takes something from its claim on that others wait for."""
        return run.limited or run.handler.name in self.memory

    def _drop(self, run: Run) -> None:
        self._waiting.remove(run)
        self._limited_waiting -= self._is_scarce(run)
        self._release(run)

    def _promise(self, run: Run) -> None:
        if self.budget is not None and self.memory:
            self.budget.take(self.memory.get(run.handler.name), run.handler.name)

    def _release(self, run: Run) -> None:
        if self.budget is not None and self.memory:
            self.budget.give_back(self.memory.get(run.handler.name), run.handler.name)

    def _next(self) -> list[Run]:
        starting: list[Run] = []
        while self._waiting and self._taken < self.slots:
            run = self._waiting.popleft()
            self._taken += 1
            scarce = self._is_scarce(run)
            self._limited += scarce
            self._limited_waiting -= scarce
            starting.append(run)
        return starting


# Of the slots that come free all the time, one in so many is for limited jobs.
_LIMITED_SHARE = 4
