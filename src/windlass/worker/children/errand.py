"""How does one job run in a child: followed, measured, stopped if need be, and its story told?"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from datetime import timedelta

from windlass.clock import Clock
from windlass.job import Output, Reason
from windlass.outcome import Crashed, Failed, Interrupted, Result, Returned, TimedOut
from windlass.size import told_size
from windlass.worker.attendant import Attendant
from windlass.worker.children import answering, tree, words
from windlass.worker.children.child import Child
from windlass.worker.command import TERM_SECONDS, told_end
from windlass.worker.oom import OomWatch
from windlass.worker.run import Run

# How long a job that shall stop has to see it for itself, before it is broken off and then killed.
LOOK_SECONDS = 0.4
_MEASURE_SECONDS = 0.1
_NEXT_LOOK = 0.05
_SELDOM = 5.0


class Errand:
    """One run in one child. `carry` follows it; `halt` may come from any thread."""

    def __init__(self, child: Child, attendant: Attendant, clock: Clock, oom: OomWatch) -> None:
        self._child = child
        self._oom = oom
        self._attendant = attendant
        self._clock = clock
        self._halted: float | None = None
        self._broken_off = False
        self._used = tree.Usage()
        # Once it is over, the child may have the next job: whoever still tells this one to stop is too late.
        self._lock = threading.Lock()
        self._is_over = False
        # Whether the child may run another job: nothing was broken off in it.
        self.clean = True

    def carry(self, work: words.Work) -> Result:
        """Run the job to its end."""
        child = self._child
        child.jobs += 1
        child.begin_output()
        limited = work.memory is not None or work.cpu_time is not None
        before = child.usage().cpu if limited else 0.0
        try:
            child.say(work)
            return self._follow(work, before, limited=limited) or self._crashed(work)
        except OSError:
            return self._crashed(work)
        finally:
            with self._lock:
                self._is_over = True

    def halt(self, run: Run) -> bool:
        """Tell the job to stop; if it does not, it is broken off, then killed."""
        with self._lock:
            if self._halted is None and not self._is_over:
                self._halted = self._clock.monotonic()
                self.clean = False
                with contextlib.suppress(OSError):
                    self._child.say(words.Told(run.notice.lease_lost))
                self._child.ring()
        return True

    def _follow(self, work: words.Work, before: float, *, limited: bool) -> Result | None:
        """What came of the job; None if the child died over it."""
        while True:
            answer = self._child.hear(self._next_look(limited=limited))
            if isinstance(answer, words.Finished):
                return Returned(answer.value, self._said(), answer.missing)
            if isinstance(answer, words.Broke):
                return self._broke(answer, work)
            if isinstance(answer, words.Asked):
                self._child.say(answering.answer(answer, self._attendant))
            if self._child.has_ended():
                return None
            if self._halted is not None and self._escalate(self._halted, work):
                return Interrupted(self._said())
            if limited and (result := self._over(work, before)) is not None:
                return result

    def _next_look(self, *, limited: bool) -> float:
        if self._halted is not None:
            return _NEXT_LOOK
        return _MEASURE_SECONDS if limited or not self._child.tells_its_end else _SELDOM

    def _escalate(self, halted: float, work: words.Work) -> bool:
        """Break off, then kill; True when it is killed."""
        waited = self._clock.monotonic() - halted
        if waited >= TERM_SECONDS:
            self._end()
            return True
        # A handler that can look for itself is given the time to end in its own way.
        if not self._broken_off and waited >= (LOOK_SECONDS if work.job is not None else 0.0):
            self._broken_off = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGTERM)
        return False

    def _over(self, work: words.Work, before: float) -> Result | None:
        """Whether the job took more than it may; then its child is ended."""
        self._used = used = self._child.usage()
        if work.memory is not None and used.resident > work.memory:
            # What forked processes share was counted for each of them.
            resident = self._child.shared_out() or used.resident
            if resident > work.memory:
                return self._no_memory(work.memory, f"with its processes it took {told_size(resident)}")
        if work.cpu_time is not None and used.cpu - before > work.cpu_time:
            return self._no_time(work.cpu_time)
        return None

    def _end(self) -> None:
        self.clean = False
        self._child.end()

    # --- the story ---

    def _said(self) -> Output | None:
        return None if self._child.silent else self._child.output()

    def _broke(self, answer: words.Broke, work: words.Work) -> Result:
        if answer.no_memory and work.memory is not None:
            # What was half built when the memory ran out is not used again.
            return self._no_memory(
                work.memory, f"it asked for more ({answer.error.message or 'MemoryError'})"
            )
        return Failed(
            answer.error,
            answer.verdict,
            answer.kinds,
            answer.delay,
            self._said(),
            answer.default,
            answer.at_least,
        )

    def _no_memory(self, limit: int, told: str) -> Crashed:
        self._end()
        message = f"over its memory limit of {told_size(limit)}: {told}"
        return Crashed(Reason.MEMORY_LIMIT, message, self._said())

    def _no_time(self, limit: float) -> TimedOut:
        self._end()
        message = f"stopped after its cpu_time of {limit:g} s"
        return TimedOut(timedelta(seconds=limit), self._said(), message)

    def _crashed(self, work: words.Work) -> Result:
        self._end()
        code = self._child.exit_code
        if code == -signal.SIGXCPU and work.cpu_time is not None:
            return self._no_time(work.cpu_time)
        ending = "it is gone" if code is None else told_end(code)
        size = self._used.resident or self._child.peak
        message = f"its process ended: {ending}; resident size at last {told_size(size)}"
        if code == -signal.SIGKILL:
            if self._oom.explains():
                message += "; the kernel killed it because memory ran out"
                return Crashed(Reason.MEMORY_LIMIT, message, self._child.output())
            message += "; not killed by this worker: perhaps the machine ran out of memory"
        return Crashed(Reason.CHILD_CRASHED, message, self._child.output())
