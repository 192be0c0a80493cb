"""Timeouts: stop runs whose time is over, whatever the store says, and notice work that nothing can end.

Nothing here asks the store or anybody else, so that nothing can hold it up.
"""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.clock import Clock
from windlass.loop import Loop
from windlass.outcome import Interrupted, TimedOut
from windlass.worker.coroutines import BLOCKED_SECONDS
from windlass.worker.run import End, Env, Run

if TYPE_CHECKING:
    from windlass.worker.runner import Runner

log = logging.getLogger("windlass.worker")

# How long a run that was asked to stop may take to end before it is settled without it. A command is
# asked, killed, and its output read within this time.
PATIENCE = 3.0
COMMAND_PATIENCE = 6.0
_TIME_TO_LOOK = 0.8
# How often a thread is looked at that cannot be broken off where it is: at first, and when that does
# not help for a while.
_NEXT_TRY = 0.01
_HASTE_SECONDS = 5.0
_EVERY = timedelta(seconds=1)
# Work that has gone on for this long after its job was settled will not end by itself.
ENDLESS_SECONDS = 10.0
# A job that blocks the loop keeps all the others from running: less patience with it.
_BLOCKER_SECONDS = 2.0


class Deadlines:
    """When the next run must be looked at; and how a run is asked to stop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.woken = threading.Event()
        self.next_look = 0.0
        # Runs that could not be broken off yet, settled ones too; and since when.
        self.unbroken: dict[Run, float] = {}

    def watch(self, ends: float) -> None:
        if ends < self.next_look:
            self.woken.set()

    def stop(self, run: Run, end: End, *, patience: float | None = None) -> None:
        """Ask a run to stop; after `patience` seconds it is settled, whether its work has ended or not."""
        now = self._clock.monotonic()
        if patience is None:
            # A process can be killed: its end is worth waiting for.
            patience = COMMAND_PATIENCE if run.handler.kind == "shell" or run.in_child else PATIENCE
        if run.started is None:
            patience = 0.0
        # A handler that can look for itself is given the time to end in its own way.
        handler = run.handler
        looks = handler.kind == "thread" and handler.signature.context is not None and not run.in_child
        halt_at = now + (min(patience, _TIME_TO_LOOK) if looks else 0.0)
        if run.stop(end, halt_at=halt_at, cut_at=now + patience):
            if not looks:
                self.break_off(run)
            self.watch(min(run.halt_at, run.cut_at))

    def break_off(self, run: Run) -> None:
        """Break a run's work off, now or as soon as that can be done."""
        if not run.halt():
            now = self._clock.monotonic()
            self.unbroken.setdefault(run, now)
            self.watch(now + _NEXT_TRY)


@dataclass(eq=False)
class Timeouts:
    """Ends what is past its time, and what must not go on while this worker may have been declared dead."""

    env: Env
    runner: Runner
    leaks: Leaks

    def __post_init__(self) -> None:
        self._deadlines = self.runner.deadlines
        self.loop = Loop("timeouts", self.tick, every=_EVERY, woken=self._deadlines.woken)

    def tick(self) -> float:
        now = self.env.clock.monotonic()
        # Before the runs are read: what begins meanwhile and ends sooner than this must wake us.
        self._deadlines.next_look = soonest = now + _EVERY.total_seconds()
        unsure = not self.env.membership.sure()
        for run in list(self.env.runs.values()):
            if run.open:
                soonest = min(soonest, self._check(run, now, unsure=unsure))
        self.runner.coroutines.check()
        self.leaks.look()
        return max(0.0, min(soonest, self._try_again(now)) - now)

    def _try_again(self, now: float) -> float:
        soonest = math.inf
        for run, since in list(self._deadlines.unbroken.items()):
            if run.halt():
                del self._deadlines.unbroken[run]
            elif now - since < _HASTE_SECONDS:
                soonest = now + _NEXT_TRY
        return soonest

    def _check(self, run: Run, now: float, *, unsure: bool) -> float:
        if unsure and run.handler.when_unsure == "stop":
            self._deadlines.stop(run, Interrupted())
        if now >= run.ends:
            self._time_out(run)
        if now >= run.halt_at:
            self._deadlines.break_off(run)
        if now >= run.cut_at:
            self.runner.cut(run)
            return math.inf
        return min(run.ends, run.halt_at, run.cut_at)

    def _time_out(self, run: Run) -> None:
        message = f"Command timed out after {run.timeout.total_seconds():g}s"
        end = TimedOut(run.timeout, message=message if run.handler.kind == "shell" else "")
        # A thread may never end, so its attempt is settled at once; only the slot waits for it.
        killable = run.handler.kind == "shell" or run.in_child
        self._deadlines.stop(run, end, patience=None if killable else 0.0)


class Leaks:
    """Notices work that nothing can end, so that only a new process helps: a thread, or a blocked loop."""

    def __init__(self, env: Env, runner: Runner) -> None:
        self._runner = runner
        # This many threads may be late. None: the process is not ours to restart.
        self._most_held = env.config.most_held
        self._clock = env.clock
        # Work that goes on although it was settled, and since when it is seen to do so.
        self._late: dict[Run, float] = {}
        # Why this process should be replaced; empty if it need not be.
        self.reason = ""
        # The loop is blocked by work that will not end.
        self.loop_stuck = False

    def look(self) -> None:
        """See how long settled work goes on; the reason goes when the work ends."""
        now = self._clock.monotonic()
        late = [run for run in self._runner.carried() if not run.open]
        self._late = {run: self._late.get(run, now) for run in late}
        self.loop_stuck = self._is_stuck(now)
        held = sum(now - since >= ENDLESS_SECONDS for since in self._late.values())
        reason = ""
        if self._most_held is not None and self.loop_stuck:
            reason = self.blocked()
        elif self._most_held is not None and held > self._most_held:
            reason = f"{held} jobs run on past their end"
        before, self.reason = self.reason, reason
        if self.reason and not before:
            log.error("worker.leaks", extra={"why": self.reason, "note": "a new process takes over"})
        elif before and not self.reason:
            log.info("worker.recovered", extra={"was": before})

    def blocked(self) -> str:
        """What blocks the event loop; empty if nothing does."""
        seconds = self._runner.coroutines.blocked_for()
        if seconds <= BLOCKED_SECONDS:
            return ""
        run = self._runner.coroutines.blocker()
        whom = f"{run.handler.name} (job {run.lease.id})" if run else "a task that is not a job"
        return f"the event loop has been blocked for {seconds:.0f} s by {whom}"

    def _is_stuck(self, now: float) -> bool:
        coroutines = self._runner.coroutines
        if coroutines.blocked_for() <= BLOCKED_SECONDS:
            return False
        blocker = coroutines.blocker()
        if blocker is not None:
            return now - self._late.get(blocker, now) >= _BLOCKER_SECONDS
        # A task of a handler's own, or a callback: judged by the jobs that it keeps from ending.
        on_loop = (self._late.get(run, now) for run in coroutines.carried())
        return any(now - since >= ENDLESS_SECONDS for since in on_loop)
