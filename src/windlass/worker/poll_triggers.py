"""Poll triggers: what makes the claimer ask the store for jobs, and for which pool.

Limited types have triggers of their own: a free permit says nothing about other jobs. Everything that may be
a reason to claim (a hint, a free slot, the end of a limited job, changed settings, a loop that answers again)
is reported here and wakes the claimer, so none of the parts that report need to know the claimer itself.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence

from windlass.clock import Clock
from windlass.worker.admission import Admission
from windlass.worker.pool import Pool


class Trigger:
    """Whether to ask: something may be there now, or will be at a known time."""

    __slots__ = ("blocked", "due_at", "fired")

    def __init__(self) -> None:
        # Kept until we ask, so that a pool that is full now asks when a slot comes free.
        self.fired = True
        # Something may be there, but there is no memory or no free slot for it now.
        self.blocked = False
        self.due_at = math.inf

    def ask(self) -> None:
        """A hint that comes while we ask fires it again: it may be about what our claim did not see."""
        self.fired = self.blocked = False
        self.due_at = math.inf


class PoolTriggers:
    """What to ask for to fill a pool: jobs without limits, and limited ones."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.others = Trigger()
        self.limited = Trigger()
        self.both = (self.others, self.limited)
        # Not before this are types asked for whose limits had no permits or that had no jobs. A hint reports
        # new jobs; while limits hold jobs back, only the end of one here is worth asking for at once.
        self.limits_at = 0.0
        self.held_back = False

    def due(self, at: float) -> None:
        """A job of some kind is due at that time."""
        for each in self.both:
            each.due_at = min(each.due_at, at)

    def elapse(self, now: float, *, unasked: bool) -> None:
        """Fire what is due by now; all, if nothing else has asked for too long."""
        for each in self.both:
            if unasked or each.due_at <= now:
                each.fired = True
                each.due_at = math.inf

    def may_start_limited(self, now: float) -> bool:
        """Whether limited jobs are worth asking for: they are never claimed ahead of a slot."""
        return self.limited.fired and now >= self.limits_at and self.pool.vacant > 0

    def wait(self, now: float, *, restricted: bool) -> float:
        """Seconds until there is something to ask for without being woken."""
        pool, wait = self.pool, math.inf
        # Limited jobs need not wait for what is claimed ahead.
        if pool.room(now) > 0 or (restricted and pool.vacant > 0):
            wait = 0.0 if self.others.fired and pool.low else self.others.due_at - now
        if restricted and pool.vacant > 0:
            at = self.limits_at if self.limited.fired else self.limited.due_at
            wait = min(wait, max(0.0, at - now))
        return wait


class PollTriggers:
    """The triggers of all pools, and what wakes the claimer. Any thread may report; nothing here waits."""

    def __init__(
        self,
        pools: Sequence[Pool],
        admission: Admission,
        notify: Callable[[], None],
        *,
        clock: Clock,
        on_loop: frozenset[str] = frozenset(),
    ) -> None:
        """`notify` lets other workers know of jobs or permits; `on_loop` are the event loop's types."""
        self.pools = {pool: PoolTriggers(pool) for pool in pools}
        # Only a pool whose types declare their memory is ever blocked by others.
        self._sharing = [each for each in self.pools.values() if each.pool.shares_memory]
        self._admission = admission
        self.notify = notify
        self._clock = clock
        self._on_loop = on_loop
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
        for each in self.pools.values():
            each.others.fired = each.limited.fired = True
            if not each.held_back:
                each.limits_at = 0.0
        self.wake()

    def permit(self, ended: Sequence[str] = ()) -> None:
        """Limited jobs of these types have ended here: nobody is nearer to their permits.

        Others are notified only of what we do not use ourselves: else each end would send the whole fleet to
        count, and to look for jobs when nothing is new.
        """
        self.permits += 1
        self.ended.extend(ended)
        for each in self.pools.values():
            each.held_back = False
            each.limits_at = 0.0
            each.limited.fired = True
        if ended and self.closed:
            self.notify()
        self.wake()

    def due(self, at: float) -> None:
        """A job is due at that time."""
        for each in self.pools.values():
            each.due(at)

    def freed(self, pool: Pool) -> None:
        """A slot came free."""
        # Not of this pool alone: what has ended may have left memory to another one's jobs.
        freed = (self.pools[pool], *self._sharing) if self._sharing else (self.pools[pool],)
        for each in freed:
            for trigger in each.both:
                trigger.fired = trigger.fired or trigger.blocked
            limited = self._admission.restricted and each.may_start_limited(self._clock.monotonic())
            if limited or (each.others.fired and each.pool.low):
                self.wake()

    def memory_freed(self) -> None:
        """Memory is no longer reserved: no job ends now that would report it."""
        for each in self._sharing:
            for trigger in each.both:
                trigger.fired = trigger.fired or trigger.blocked

    def switch(self) -> None:
        """Something was shut or opened: what waits for a slot and must not start is given back."""
        self.switched = True
        self.permit()
        self.hint()

    def loop_stalled(self) -> None:
        """The event loop does not answer: claim nothing for it."""
        self._admission.blocked = self._on_loop

    def loop_answers(self) -> None:
        """It answers again."""
        self._admission.blocked = frozenset()
        self.hint()

    def wake(self) -> None:
        """Let the claimer look now, or right after its present tick."""
        # Reading is cheaper than setting, and a busy worker wakes thousands of times a second.
        if not self.woken.is_set():
            self.woken.set()
