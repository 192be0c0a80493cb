"""Does only a new process help? Threads that do not end, or an event loop that a job blocks."""

from __future__ import annotations

import logging

from windlass.clock import Clock
from windlass.worker.caller import Caller
from windlass.worker.coroutines import BLOCKED_SECONDS
from windlass.worker.run import Run

log = logging.getLogger("windlass.worker")

# Work that has gone on for so long after its job was settled will not end by itself.
ENDLESS_SECONDS = 10.0
# A job that blocks the loop keeps all the others from running: less patience with it.
_BLOCKER_SECONDS = 2.0


class Wear:
    """Watches for work that nothing can end. Asks nobody, so that nothing can hold it up."""

    def __init__(self, caller: Caller, *, most_held: int | None, clock: Clock) -> None:
        """`most_held`: so many threads may be late. None: the process is not ours to restart."""
        self._caller = caller
        self._most_held = most_held
        self._clock = clock
        # Work that goes on although it was settled, and since when it is seen to do so.
        self._late: dict[Run, float] = {}
        # Why this process should be replaced; empty if it need not be.
        self.reason = ""
        # The loop is blocked by work that will not end.
        self.loop_stuck = False

    def look(self) -> None:
        """See how long settled work goes on; the reason goes when the work ends."""
        now = self._clock.monotonic()
        late = [run for run in self._caller.carried() if not run.open]
        self._late = {run: self._late.get(run, now) for run in late}
        self.loop_stuck = self._is_stuck(now)
        before, self.reason = self.reason, self._find(now)
        if self.reason and not before:
            log.error("worker.leaks", extra={"why": self.reason, "note": "a new process takes over"})
        elif before and not self.reason:
            log.info("worker.recovered", extra={"was": before})

    def blocked(self) -> str:
        """What blocks the event loop; empty if nothing does."""
        seconds = self._caller.coroutines.blocked_for()
        if seconds <= BLOCKED_SECONDS:
            return ""
        run = self._caller.coroutines.blocker()
        whom = f"{run.handler.name} (job {run.lease.id})" if run else "a task that is not a job"
        return f"the event loop has been blocked for {seconds:.0f} s by {whom}"

    def _find(self, now: float) -> str:
        if self._most_held is None:
            return ""
        if self.loop_stuck:
            return self.blocked()
        held = sum(now - since >= ENDLESS_SECONDS for since in self._late.values())
        return f"{held} jobs run on past their end" if held > self._most_held else ""

    def _is_stuck(self, now: float) -> bool:
        coroutines = self._caller.coroutines
        if coroutines.blocked_for() <= BLOCKED_SECONDS:
            return False
        blocker = coroutines.blocker()
        if blocker is not None:
            return now - self._late.get(blocker, now) >= _BLOCKER_SECONDS
        # A task of a handler's own, or a callback: judged by the jobs that it keeps from ending.
        on_loop = (self._late.get(run, now) for run in coroutines.carried())
        return any(now - since >= ENDLESS_SECONDS for since in on_loop)
