"""Threads for `def` handlers and commands, and how an exception is thrown into one to stop its job."""

from __future__ import annotations

import contextvars
import ctypes
import logging
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import NamedTuple

from windlass.context import Stopping
from windlass.outcome import Raised, Result, Unstarted
from windlass.worker.run import Run

log = logging.getLogger("windlass.threads")

# Code that takes locks in steps: an exception between two of them would leave a lock taken for ever, and
# with it everybody who logs, imports or waits. What such code calls in turn, it calls prepared for a failure.
_LOCKING = frozenset({"logging", "threading", "queue", "concurrent", "asyncio"})
# Code that must be left in peace whatever it calls.
_SACRED = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external", "windlass"})
_WAIT = threading.Condition.wait.__code__
# The terminal's log: a handler that logs in a loop is hardly ever seen elsewhere.
_LOG = "windlass.cli.logs"
_STEPS = 3


class Threads:
    """Threads made on demand, at most one per slot. They never keep the process alive: one may be stuck."""

    def __init__(
        self, call: Callable[[Run], Result], done: Callable[[Run, Result], None], *, caller: CodeType
    ) -> None:
        """`call` runs the handler, `done` is called when its work ended; `caller` is the code of `call`."""
        self.call = call
        self.done = done
        # The frame of ours that a handler is called from.
        self.caller = caller
        # What the starter of the worker has set is seen by every job; what a job sets, by that job alone.
        self.base = contextvars.copy_context()
        self.lock = threading.Lock()
        self._hands: list[_Hand] = []
        # Runs that are here.
        self.open = 0
        self.inbox: SimpleQueue[Run | None] = SimpleQueue()

    def start(self, run: Run) -> None:
        """Hand a run to a thread. Only for runs that have a slot."""
        with self.lock:
            able = self.open < len(self._hands) or self._grow()
            self.open += able
        if able:
            self.inbox.put(run)
        else:
            self.done(run, Unstarted())

    def close(self) -> None:
        with self.lock:
            for _ in self._hands:
                self.inbox.put(None)

    def carried(self) -> list[Run]:
        with self.lock:
            return [run for hand in self._hands if (run := hand.carried) is not None]

    def _grow(self) -> bool:
        """One more thread; if the system gives none, those that are there must do, if there are any."""
        hand = _Hand(self, f"windlass-job-{len(self._hands) + 1}")
        try:
            hand.thread.start()
        except RuntimeError as error:
            log.warning("thread.refused", extra={"threads": len(self._hands), "error": str(error)})
            return bool(self._hands)
        self._hands.append(hand)
        return True


class _Hand:
    """One thread. An exception can be thrown into it, but only into the job that it was meant for."""

    def __init__(self, threads: Threads, name: str) -> None:
        self._threads = threads
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._thrown = False
        # From the moment on at which it is taken up until everything about it is done.
        self.carried: Run | None = None

    def halt(self, run: Run) -> bool:
        """Throw `Stopping` into the job, once, not into a command; False where a lock would stay taken."""
        with self._lock:
            if self._run is not run or run.handler.kind != "thread" or run.in_child:
                return True
            seen = _position(self.thread.ident)
            if not _may_throw(seen.frame, self._threads.caller):
                return False
            self._run = None
            # While we looked at its frames, it may have gone on.
            if _position(self.thread.ident) == seen:
                self._thrown = True
                # It raises `Stopping` at its next step.
                ident = ctypes.c_ulong(self.thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Stopping))
                return True
            self._run = run
            return False

    def _work(self) -> None:
        result: Result | None = None
        while (run := self._threads.inbox.get()) is not None:
            try:
                self.carried = run
                run.carrier = self
                result = self._guarded(run)
                with self._threads.lock:
                    self._threads.open -= 1
                self._threads.done(run, result)
            except BaseException:  # wall: a slot outlives any job
                log.exception("thread.failed", extra=run.lease.fields)
            # An idle thread must not keep the last job's payload alive.
            self.carried = run = result = None

    def _guarded(self, run: Run) -> Result:
        """Run, and be sure on return that no exception can be thrown any more.

        It is raised at the thread's next step, which may be one of ours: before the handler's first
        line, or after its last. It is thrown at most once, so each place need survive it only once.
        """
        result: Result | None = None
        try:
            with self._lock:
                self._run = run
            result = self._threads.base.copy().run(self._threads.call, run)
        except Stopping:
            pass
        try:
            self._keep_out()
        except Stopping:
            self._keep_out()
        return result if result is not None else Raised(Stopping())

    def _keep_out(self) -> None:
        with self._lock:
            self._run = None
            thrown, self._thrown = self._thrown, False
        if thrown:
            # One that is not raised yet comes here, at the latest when the loop jumps back. Taking it back
            # instead would leave the interpreter looking for it for ever: slow, and with a profiler, stuck.
            for _ in range(_STEPS):
                pass


class _Position(NamedTuple):
    """Where a thread is: its innermost frame, and how far that one has come."""

    frame: FrameType | None
    step: int


def _position(thread: int | None) -> _Position:
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001 - the only way to see another thread's stack
    return _Position(frame, frame.f_lasti if frame is not None else -1)


def _may_throw(top: FrameType | None, caller: CodeType) -> bool:
    """Whether the thread is in a handler that `caller` has called, and not in code that takes locks."""
    inner: list[FrameType] = []
    frame = top
    while frame is not None and frame.f_code is not caller:
        inner.append(frame)
        frame = frame.f_back
    if frame is None or not inner:
        return False
    # The handler may be anybody's; but before and after it, steps of ours are in its place.
    handler = inner.pop()
    if _module(handler).startswith("windlass.worker"):
        return False
    if any(_root(each) in _SACRED and _module(each) != _LOG for each in inner):
        return False
    if not inner or _root(inner[0]) not in _LOCKING:
        return True
    # Code that takes locks expects a failure where it waits, or writes a line of the log.
    code = inner[0].f_code
    return code is _WAIT or (_root(inner[0]) == "logging" and code.co_name == "emit")


def _root(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
