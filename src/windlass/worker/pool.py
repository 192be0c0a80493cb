"""Pools: slots, what waits for one, how many jobs to prefetch, and what triggers a poll for more.

Limited types have triggers of their own: a free permit says nothing about other jobs. Everything that may be
a reason to claim (a hint, a free slot, the end of a limited job, changed settings, a loop that answers again)
is reported to `PollTriggers` and wakes the claimer, so that no other part needs to know the claimer itself.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from windlass.worker.admission import Admission
from windlass.worker.memory import MemoryBudget
from windlass.worker.run import Env, Run

MOST_AHEAD = 500
SHORT_RUN = 0.020
LIGHT_RUN = 1.0
ENOUGH_RUNS = 10
FORGOTTEN_AFTER = 60.0
# As many as should be through well before they are given back.
_AHEAD_SECONDS = 0.25
_WEIGHT_OF_NEWEST = 0.1
# What was claimed ahead in vain halves what is next, once in so long; it doubles again when that stays away.
_MISS_SECONDS = 1.0
_RECOVERY_SECONDS = 5.0
_MOST_DOUBLINGS = 6
_SMALLEST_SHARE = 2.0**-_MOST_DOUBLINGS
_SHORTEST_COUNTED = 0.0001
# While others are claimed ahead, one in this many slots is for limited jobs.
_LIMITED_SHARE = 4


class Trigger:
    """Whether to ask: something may be there now, or will be at a known time."""

    # Kept until we ask, so that a pool that is full now asks when a slot comes free.
    fired = True
    # Something may be there, but there is no memory or no free slot for it now.
    blocked = False
    due_at = math.inf


@dataclass(eq=False)
class Pool:
    """A set of types with its slots. A slot is taken from a run's start until its work has really ended."""

    name: str
    types: dict[str, int]
    slots: int
    # What jobs may take together, and which types declare what they need of it.
    budget: MemoryBudget | None = None
    memory: Mapping[str, int] = field(default_factory=dict)

    # Slots; of those, of runs that are settled while their work goes on; and how many are claimed ahead.
    _taken = held = _ahead = 0
    # Of types that are limited or declare memory: those that have a slot, and those that wait for one.
    _limited = _limited_waiting = 0
    # Not before this are types asked for whose limits had no permits or that had no jobs. A hint reports new
    # jobs; while limits hold jobs back, only the end of one here is worth asking for at once.
    limits_at = 0.0
    held_back = False

    def __post_init__(self) -> None:
        # Only a pool whose types declare their memory is ever blocked by others.
        self.shares_memory = self.budget is not None and bool(self.memory)
        self.prefetch = Prefetch()
        self._lock = threading.Lock()
        # Claimed and not started.
        self.waiting: deque[Run] = deque()
        # What to ask for to fill it: jobs without limits, and limited ones.
        self.others = Trigger()
        self.limited = Trigger()
        self.both = (self.others, self.limited)

    @property
    def busy(self) -> int:
        return self._taken - self.held

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits; what is merely held does not count."""
        return self.busy <= 0 and not self.waiting

    def room(self, now: float) -> int:
        with self._lock:
            # Limited jobs are asked for apart: however long they take, others are claimed ahead beside them.
            self._ahead = self.prefetch.ahead(self.slots - self._limited, now)
            return max(0, self.slots - self._taken - len(self.waiting) + self._ahead)

    def portions(self, now: float) -> Iterator[tuple[dict[str, int], int]]:
        """What to claim: types and how many. Whatever mix of them comes, it fits the memory that is left."""
        if self.budget is None or not self.memory:
            yield self.types, self.room(now)
            return
        kept = self.budget.reserved_for
        if self.vacant > 0 and self.memory.get(kept, math.inf) <= self.budget.left:
            yield {kept: self.types[kept]}, 1
        spare, kept = self.budget.spare, self.budget.reserved_for
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
        free = self.slots - self._taken - len(self.waiting)
        share = -(-self.slots // _LIMITED_SHARE) - self._limited_waiting if self._ahead else 0
        return max(0, free, share)

    @property
    def low(self) -> bool:
        """Whether it is worth asking for more: not for every single slot while enough wait."""
        return len(self.waiting) <= self._ahead // 2

    def may_start_limited(self, now: float) -> bool:
        """Whether limited jobs are worth asking for: they are never claimed ahead of a slot."""
        return self.limited.fired and now >= self.limits_at and self.vacant > 0

    def offer(self, runs: Iterable[Run]) -> list[Run]:
        """Take claimed runs in; answers those that start now."""
        with self._lock:
            for run in runs:
                if run.handler.name in self.memory:
                    run.scarce = True
                    if self.budget is not None:
                        self.budget.take(self.memory[run.handler.name], run.handler.name)
                if run.scarce:
                    # It keeps a permit or memory from others while it waits: only more urgent ones go before.
                    ranks = [(each.lease.job.priority, each.scarce) for each in self.waiting]
                    mine = (run.lease.job.priority, True)
                    place = next((place for place, rank in enumerate(ranks) if rank < mine), len(ranks))
                    self.waiting.insert(place, run)
                    self._limited_waiting += 1
                else:
                    self.waiting.append(run)
            return self._next()

    def free(self, run: Run, now: float, *, was_held: bool) -> list[Run]:
        """A run's work has ended; answers those that start now."""
        with self._lock:
            if self.memory:
                self._give_memory_back(run)
            self._taken -= 1
            self._limited -= run.scarce
            self.held -= was_held
            if run.started is not None and not run.scarce:
                self.prefetch.note(run.handler.name, now - run.started, now)
            return self._next()

    def hold(self) -> None:
        with self._lock:
            self.held += 1

    def take_back(self, received_before: float) -> list[Run]:
        """Those that have waited since before that time; they wait no more."""
        stale: list[Run] = []
        with self._lock:
            while self.waiting and self.waiting[0].received < received_before:
                stale.append(self.waiting[0])
                self._drop(stale[-1])
        return stale

    def take_back_those(self, shut: Callable[[str], bool]) -> list[Run]:
        with self._lock:
            stale = [run for run in self.waiting if shut(run.handler.name)]
            for run in stale:
                self._drop(run)
        return stale

    def _drop(self, run: Run) -> None:
        self.waiting.remove(run)
        self._limited_waiting -= run.scarce
        self._give_memory_back(run)

    def _give_memory_back(self, run: Run) -> None:
        if self.budget is not None:
            self.budget.give_back(self.memory.get(run.handler.name), run.handler.name)

    def _next(self) -> list[Run]:
        starting: list[Run] = []
        while self.waiting and self._taken < self.slots:
            run = self.waiting.popleft()
            self._taken += 1
            self._limited += run.scarce
            self._limited_waiting -= run.scarce
            starting.append(run)
        return starting


class Prefetch:
    """How many jobs to claim ahead of free slots, by how long each type's jobs have taken lately.

    Only short jobs are worth it: a long one would wait here in vain.

    One type whose jobs are long, or not yet known to be short, is enough to claim nothing ahead: a claim
    takes whatever comes next, and short jobs that wait here would always be served before long ones there.
    """

    def __init__(self) -> None:
        self._types: dict[str, _Average] = {}
        # How much of what the averages promise is believed, and since when.
        self._share = 1.0
        self._missed = -math.inf

    def note(self, job_type: str, seconds: float, now: float) -> None:
        average = self._types.get(job_type)
        if average is None:
            average = self._types[job_type] = _Average()
        average.runs += 1
        average.mean += (seconds - average.mean) * max(1.0 / average.runs, _WEIGHT_OF_NEWEST)
        average.seen = now

    def miss(self, now: float) -> None:
        """Jobs claimed ahead have waited in vain: a child that must be started is in no average."""
        if now - self._missed >= _MISS_SECONDS:
            self._share = max(_SMALLEST_SHARE, self._believed(now) / 2)
            self._missed = now

    def is_light(self, job_type: str) -> bool:
        """Whether the jobs of a type are known to take less than a second."""
        average = self._types.get(job_type)
        return average is not None and average.runs >= ENOUGH_RUNS and average.mean < LIGHT_RUN

    def ahead(self, slots: int, now: float) -> int:
        slowest = 0.0
        for name, average in list(self._types.items()):
            if now - average.seen >= FORGOTTEN_AFTER:
                del self._types[name]
            else:
                # Long as long as the mean says little.
                slowest = max(slowest, average.mean if average.runs >= ENOUGH_RUNS else SHORT_RUN)
        if not self._types or slowest >= SHORT_RUN:
            return 0
        ahead = min(MOST_AHEAD, int(slots * _AHEAD_SECONDS / max(slowest, _SHORTEST_COUNTED)))
        return ahead if self._share == 1.0 else int(ahead * self._believed(now))

    def _believed(self, now: float) -> float:
        doublings = min(_MOST_DOUBLINGS, (now - self._missed) / _RECOVERY_SECONDS)
        return min(1.0, self._share * math.exp2(doublings))


class _Average:
    """A mean over the first few runs, then one that forgets."""

    runs = 0
    mean = seen = 0.0


class PollTriggers:
    """The triggers of all pools, and what wakes the claimer. Any thread may report; nothing here waits."""

    def __init__(self, env: Env, pools: Sequence[Pool], admission: Admission) -> None:
        self.pools = pools
        self._sharing = [pool for pool in pools if pool.shares_memory]
        self._admission = admission
        # Lets other workers know of jobs or permits.
        self.notify = env.wakeup.notify
        self._clock = env.clock
        # The event loop's types.
        self._on_loop = frozenset(name for name, handler in env.handlers.items() if handler.kind == "loop")
        self.woken = threading.Event()
        # How often was either reported: what changed while a claim was under way is news.
        self.hints = self.permits = 0
        # Types of limited jobs that have ended here, which nobody else knows yet.
        self.ended: deque[str] = deque()
        # What must not start may be waiting for a slot.
        self.switched = False
        self.closed = False

    def hint(self) -> None:
        """Jobs may be there; or permits, which others may have taken first."""
        self.hints += 1
        for pool in self.pools:
            pool.others.fired = pool.limited.fired = True
            if not pool.held_back:
                pool.limits_at = 0.0
        # Reading is cheaper than setting, and a busy worker is woken thousands of times a second.
        if not self.woken.is_set():
            self.woken.set()

    def permit(self, ended: Sequence[str] = ()) -> None:
        """Limited jobs of these types have ended here: nobody is nearer to their permits.

        Others are notified only of what we do not use ourselves: else each end would send the whole fleet to
        count, and to look for jobs when nothing is new.
        """
        self.permits += 1
        self.ended.extend(ended)
        for pool in self.pools:
            pool.held_back = False
            pool.limits_at = 0.0
            pool.limited.fired = True
        if ended and self.closed:
            self.notify()
        self.woken.set()

    def freed(self, pool: Pool) -> None:
        # Not of this pool alone: what has ended may have left memory to another one's jobs.
        for each in (pool, *self._sharing) if self._sharing else (pool,):
            for trigger in each.both:
                trigger.fired = trigger.fired or trigger.blocked
            limited = self._admission.restricted and each.may_start_limited(self._clock.monotonic())
            if (limited or (each.others.fired and each.low)) and not self.woken.is_set():
                self.woken.set()

    def memory_freed(self) -> None:
        """Memory is no longer reserved: no job ends now that would report it."""
        for pool in self._sharing:
            for trigger in pool.both:
                trigger.fired = trigger.fired or trigger.blocked

    def switch(self) -> None:
        """Something was shut or opened: what waits for a slot and must not start is given back."""
        self.switched = True
        self.permit()
        self.hint()

    def loop_stalled(self) -> None:
        self._admission.blocked = self._on_loop

    def loop_answers(self) -> None:
        self._admission.blocked = frozenset()
        self.hint()
