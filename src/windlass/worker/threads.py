"""How do `def` handlers and commands run, and how is a thread told to stop?"""

from __future__ import annotations

import contextvars
import ctypes
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from windlass.context import Stopping
from windlass.outcome import Raised, Result, Unstarted
from windlass.worker.run import Run
from windlass.worker.runner import Runner
from windlass.worker.strike import may_strike, standing

log = logging.getLogger("windlass.threads")


class Threads:
    """Threads made on demand, at most one per slot. They never keep the process alive: one may be stuck."""

    def __init__(self, runner: Runner, *, done: Callable[[Run, Result], None]) -> None:
        self._runner = runner
        self._done = done
        # What the starter of the worker has set is seen by every job; what a job sets, by that job alone.
        self._base = contextvars.copy_context()
        self._lock = threading.Lock()
        self._hands: list[_Hand] = []
        self._open = 0
        self.inbox: SimpleQueue[Run | None] = SimpleQueue()

    def start(self, run: Run) -> None:
        """Hand a run to a thread. Only for runs that have a slot."""
        with self._lock:
            self._open += 1
            able = self._open <= len(self._hands) or self._grow()
        if able:
            self.inbox.put(run)
        else:
            self.end(run, Unstarted())

    def call(self, run: Run) -> Result:
        """On a thread: run the handler."""
        return self._base.copy().run(self._runner.call, run)

    def end(self, run: Run, result: Result) -> None:
        """On a thread: the work has ended."""
        with self._lock:
            self._open -= 1
        self._done(run, result)

    def close(self) -> None:
        """Let the threads end as they come free."""
        with self._lock:
            for _ in self._hands:
                self.inbox.put(None)

    def carried(self) -> list[Run]:
        """Those whose work goes on at this moment, settled or not."""
        with self._lock:
            return [run for hand in self._hands if (run := hand.carried) is not None]

    def _grow(self) -> bool:
        """One more thread; if the system gives none, those that are there must do, if there are any."""
        hand = _Hand(self, f"windlass-job-{len(self._hands) + 1}")
        try:
            hand.start()
        except RuntimeError as error:
            log.warning("thread.refused", extra={"threads": len(self._hands), "error": str(error)})
            return bool(self._hands)
        self._hands.append(hand)
        return True


class _Hand:
    """One thread. An exception can be thrown into it, but only into the job that it was meant for."""

    def __init__(self, threads: Threads, name: str) -> None:
        self._threads = threads
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._thrown = False
        # From the moment on at which it is taken up until everything about it is done.
        self.carried: Run | None = None

    def start(self) -> None:
        self._thread.start()

    def halt(self, run: Run) -> bool:
        """Throw `Stopping` into the job, once; not into a command, whose own carrier ends it.

        False if the thread is where an exception would leave a lock taken behind it.
        """
        with self._lock:
            if self._run is not run or run.handler.kind != "thread" or run.in_child:
                return True
            seen = standing(self._thread.ident)
            if not may_strike(seen.frame, _CALLER):
                return False
            self._run = None
            # While we looked at its frames, it may have gone on.
            if standing(self._thread.ident) == seen:
                self._thrown = True
                _throw(self._thread.ident)
                return True
            self._run = run
            return False

    def _work(self) -> None:
        while (run := self._threads.inbox.get()) is not None:
            try:
                self.carried = run
                run.carrier = self
                self._threads.end(run, self._guarded(run))
            except Exception:  # wall: a slot outlives any job
                log.exception("thread.failed", extra=run.lease.fields)
            # An idle thread must not keep the last job's payload alive.
            self.carried = None
            del run

    def _guarded(self, run: Run) -> Result:
        """Run, and be sure on return that nothing more can strike.

        The exception strikes at the thread's next step, which may be one of ours: before the handler's first
        line, or after its last. It is thrown at most once, so each place need survive it only once.
        """
        result: Result | None = None
        try:
            self._let_in(run)
            result = self._threads.call(run)
        except Stopping:
            pass
        try:
            self._keep_out()
        except Stopping:
            self._keep_out()
        return result if result is not None else Raised(Stopping())

    def _let_in(self, run: Run) -> None:
        with self._lock:
            self._run = run

    def _keep_out(self) -> None:
        with self._lock:
            self._run = None
            thrown, self._thrown = self._thrown, False
        if thrown:
            # One that has not struck yet strikes here, at the latest when the loop jumps back. Taking it back
            # instead would leave the interpreter looking for it for ever: slow, and with a profiler, stuck.
            for _ in range(_STEPS):
                pass


# The frame of ours that a handler is called from.
_CALLER = Runner.call.__code__


_STEPS = 3


def _throw(thread: int | None) -> None:
    """Let the thread raise `Stopping` at its next step."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread or 0), ctypes.py_object(Stopping))
