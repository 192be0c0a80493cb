"""Which runs must stop, whatever the store says? Asks nobody, so that nothing can hold it up."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

from windlass.clock import Clock
from windlass.loop import Loop
from windlass.outcome import Interrupted, TimedOut
from windlass.worker.run import End, Run, Runs
from windlass.worker.runner import Runner
from windlass.worker.standing import Standing

# How long a run that was told to stop may take to end before it is settled without it. A command is
# asked, killed, and its output read within this time.
PATIENCE = 3.0
COMMAND_PATIENCE = 6.0
_TIME_TO_LOOK = 0.8
# How often a thread is looked at that cannot be broken off where it stands: at first, and when that does
# not help for a while.
_NEXT_TRY = 0.01
_HASTE_SECONDS = 5.0
_EVERY = timedelta(seconds=1)


class Warden:
    """Ends what is past its time, and what must not go on while nobody knows whether this worker lives."""

    def __init__(
        self, runs: Runs, runner: Runner, standing: Standing, *, check: Callable[[], None], clock: Clock
    ) -> None:
        self._runs = runs
        self._runner = runner
        self._standing = standing
        self._check = check
        self._clock = clock
        self._next = 0.0
        # Runs that could not be broken off yet, also such as are settled by now; and since when.
        self._unbroken: dict[Run, float] = {}
        self.loop = Loop("warden", self.tick, every=_EVERY)

    def watch(self, ends: float) -> None:
        """A run began whose time is over at `ends`."""
        if ends < self._next:
            self.loop.wake()

    def tick(self) -> float:
        """End what is to end now; answers when to look again."""
        now = self._clock.monotonic()
        # Before the runs are read: what begins meanwhile and ends sooner than this must wake us.
        self._next = now + _EVERY.total_seconds()
        unsure = not self._standing.sure()
        soonest = self._next
        for run in self._runs.all():
            if run.open:
                soonest = min(soonest, self._see_to(run, now, unsure=unsure))
        self._check()
        return max(0.0, min(soonest, self._try_again(now)) - now)

    def stop(self, run: Run, end: End, *, patience: float | None = None) -> None:
        """Tell a run to stop; after `patience` seconds it is settled, whether its work has ended or not."""
        now = self._clock.monotonic()
        if patience is None:
            patience = COMMAND_PATIENCE if _ends_surely(run) else PATIENCE
        if run.started is None:
            patience = 0.0
        # A handler that can look for itself is given the time to end in its own way.
        looks = run.handler.kind == "thread" and run.handler.wants_context is not None and not run.in_child
        halt_at = now + (min(patience, _TIME_TO_LOOK) if looks else 0.0)
        if run.stop(end, halt_at=halt_at, cut_at=now + patience):
            if not looks:
                self.break_off(run)
            self.watch(min(run.halt_at, run.cut_at))

    def break_off(self, run: Run) -> None:
        """Break a run's work off, now or as soon as that can be done."""
        if not run.halt():
            now = self._clock.monotonic()
            self._unbroken.setdefault(run, now)
            self.watch(now + _NEXT_TRY)

    def _try_again(self, now: float) -> float:
        """Break off what could not be before; answers when to try the rest."""
        soonest = math.inf
        for run, since in list(self._unbroken.items()):
            if run.halt():
                del self._unbroken[run]
            elif now - since < _HASTE_SECONDS:
                soonest = now + _NEXT_TRY
        return soonest

    def _see_to(self, run: Run, now: float, *, unsure: bool) -> float:
        """Do what is due for one run; answers when the next is."""
        if unsure and run.handler.when_unsure == "stop":
            self.stop(run, Interrupted())
        if now >= run.ends:
            self._time_out(run)
        if now >= run.halt_at:
            self.break_off(run)
        if now >= run.cut_at:
            self._runner.cut(run)
            return math.inf
        return min(run.ends, run.halt_at, run.cut_at)

    def _time_out(self, run: Run) -> None:
        if run.handler.kind == "shell":
            message = f"Command timed out after {run.timeout.total_seconds():g}s"
            self.stop(run, TimedOut(run.timeout, message=message))
        elif run.in_child:
            self.stop(run, TimedOut(run.timeout))
        else:
            # A thread may never end, so its attempt is settled at once; only the slot waits for it.
            self.stop(run, TimedOut(run.timeout), patience=0.0)


def _ends_surely(run: Run) -> bool:
    """Whether its work is a process that can be killed: then its end is worth waiting for."""
    return run.handler.kind == "shell" or run.in_child
