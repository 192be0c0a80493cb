"""When is it worth asking the store for a pool's jobs? For limited ones by other signs than for the rest."""

from __future__ import annotations

import math

from windlass.worker.pool import Pool


class Hunger:
    """Whether to ask: something may be there, or will be at a known time."""

    __slots__ = ("blocked", "due_at", "hungry")

    def __init__(self) -> None:
        self.hungry = True
        # Something may be there, but there is no memory or no free slot for it now.
        self.blocked = False
        self.due_at = math.inf

    def due(self, at: float) -> None:
        """Something may be there at that time."""
        self.due_at = min(self.due_at, at)

    def grow(self, now: float, *, unasked: bool) -> None:
        """Kept as hunger, so that a pool that is full now asks when a slot comes free."""
        if unasked or self.due_at <= now:
            self.hungry = True
            self.due_at = math.inf

    def ask(self) -> None:
        """A hint that comes while we ask sets hunger again: it may tell of what our claim did not see."""
        self.hungry = self.blocked = False
        self.due_at = math.inf

    def unblock(self) -> None:
        """There is room again."""
        self.hungry = self.hungry or self.blocked


class Feed:
    """What to ask for to fill a pool: jobs that nothing restricts, and limited ones."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.others = Hunger()
        self.limited = Hunger()
        # Not before this are types asked for whose limits had no permits or that had no jobs. A hint tells of
        # new jobs; while jobs are held back, only the end of one here is worth asking for at once.
        self.limits_at = 0.0
        self.held_back = False

    def hint(self) -> None:
        """Jobs of any kind may be there."""
        self.others.hungry = True
        self.limited.hungry = True
        if not self.held_back:
            self.limits_at = 0.0

    def permit(self) -> None:
        """A limited job may start; of the others nothing new is known."""
        self.held_back = False
        self.limits_at = 0.0
        self.limited.hungry = True

    def due(self, at: float) -> None:
        """A job of some kind is due at that time."""
        self.others.due(at)
        self.limited.due(at)

    def grow(self, now: float, *, unasked: bool) -> None:
        """Time has passed."""
        self.others.grow(now, unasked=unasked)
        self.limited.grow(now, unasked=unasked)

    def unblock(self) -> None:
        """There is room again."""
        self.others.unblock()
        self.limited.unblock()

    def may_start_limited(self, now: float) -> bool:
        """Whether limited jobs are worth asking for: they are never claimed ahead of a slot."""
        return self.limited.hungry and now >= self.limits_at and self.pool.vacant > 0

    def wait(self, now: float, *, room: bool, restricted: bool) -> float:
        """Seconds until there is something to ask for without being woken."""
        wait = math.inf
        if room:
            wait = 0.0 if self.others.hungry and self.pool.low else self.others.due_at - now
        if restricted and self.pool.vacant > 0:
            at = self.limits_at if self.limited.hungry else self.limited.due_at
            wait = min(wait, max(0.0, at - now))
        return wait
