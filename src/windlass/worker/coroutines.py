"""The event loop for `async def` handlers."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import importlib
import importlib.util
import logging
import math
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from windlass.clock import Clock
from windlass.outcome import Result, Unstarted
from windlass.worker.pool import PollTriggers
from windlass.worker.run import Run

log = logging.getLogger("windlass.coroutines")
T = TypeVar("T")

# Without an answer for so long, the loop gets no more jobs; after the longer time people are told.
STALLED_SECONDS = 1.0
BLOCKED_SECONDS = 3.0
_LAST_WORDS_SECONDS = 0.5


class Coroutines:
    """One thread with an event loop; thousands of runs can wait on it without a thread each."""

    # Closed until opened: a worker without such handlers needs no loop.
    _closed = True
    # Since when an answer is waited for; whether people were told; and whether the loop does not answer.
    _asked: float | None = None
    _reported = stalled = False

    def __init__(
        self,
        call: Callable[[Run], Coroutine[Any, Any, Result]],
        done: Callable[[Run, Result], None],
        triggers: PollTriggers,
        *,
        clock: Clock,
    ) -> None:
        """`call` runs the handler, `done` is called when the work has ended."""
        self._call = call
        self._done = done
        self._triggers = triggers
        self._clock = clock
        self._base = contextvars.copy_context()
        self._inbox: deque[Run] = deque()
        # Runs that have not made their first step, and when they were handed over. Taking a run out
        # is deciding what becomes of it.
        self.unstarted: dict[Run, float] = {}
        # The loop itself holds tasks weakly: one that nobody else knows could vanish.
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._turn, name="windlass-coroutines", daemon=True)

    def open(self) -> None:
        # uvloop where that extra is installed: twice as fast for short coroutines.
        fast = importlib.util.find_spec("uvloop") is not None
        new_loop = importlib.import_module("uvloop").new_event_loop if fast else asyncio.new_event_loop
        self._loop: asyncio.AbstractEventLoop = new_loop()
        self._closed = False
        self._thread.start()

    def start(self, runs: Sequence[Run]) -> None:
        """Start runs that have slots, all with one call into the loop."""
        self.unstarted.update(dict.fromkeys(runs, self._clock.monotonic()))
        if threading.get_ident() == self._thread.ident:
            for run in runs:
                self._spawn(run)
            return
        self._inbox.extend(runs)
        self._loop.call_soon_threadsafe(self._take)

    def carried(self) -> list[Run]:
        return [run for run in list(self._tasks) if run.started is not None]

    def take_back(self, before: float) -> list[Run]:
        """Runs that were handed over before that time and have not started; now they will not."""
        stale = [run for run, at in list(self.unstarted.items()) if at < before]
        taken = [run for run in stale if self.unstarted.pop(run, None) is not None]
        if taken and math.isfinite(before):
            # Otherwise nothing is wrong with the loop: the worker drains.
            if self._asked is None:
                self._ask()
            self._stall()
        return taken

    def blocked_for(self) -> float:
        asked = self._asked
        return self._clock.monotonic() - asked if self.stalled and asked is not None else 0.0

    def blocker(self) -> Run | None:
        """The run whose step the loop is in; None if that is a task which a handler or a library made."""
        task = asyncio.current_task(self._loop) if not self._closed else None
        return next((run for run, each in list(self._tasks.items()) if each is task), None)

    def halt(self, run: Run) -> bool:
        """Cancel the run's task; if that is swallowed, the timeouts settle the run."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self._cancel, run)
        return True

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine that is no job on the loop, to its end; TimeoutError if that does not come."""
        asked = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return asked.result(timeout)
        finally:
            # Nobody waits for it any more.
            asked.cancel()

    def check(self) -> None:
        """Ask the loop for a sign of life; name the handler that blocks it, once each time."""
        asked = self._asked
        if self._closed:
            return
        if asked is None:
            if self._tasks or self.unstarted or self.stalled:
                self._ask()
            return
        silent = self._clock.monotonic() - asked
        if silent >= STALLED_SECONDS:
            self._stall()
        if not self._reported and silent > BLOCKED_SECONDS:
            self._reported = True
            frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - the only way to see it
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            log.warning("loop.blocked", extra={"seconds": round(silent, 1), "stack": stack})

    def close(self, timeout: float) -> bool:
        """End the loop; False if a handler blocks it for longer than `timeout` seconds."""
        if self._closed:
            return True
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self.stalled:
            # It is not likely to end just now.
            timeout = min(timeout, _LAST_WORDS_SECONDS)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # --- on the loop's thread ---

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException:  # wall: a task that a handler left behind may raise SystemExit
                log.exception("loop.broken")
        self._wind_up()

    def _take(self) -> None:
        while self._inbox:
            run = self._inbox.popleft()
            if run in self.unstarted:
                self._spawn(run)

    def _spawn(self, run: Run) -> None:
        run.carrier = self
        self._tasks[run] = task = self._loop.create_task(self._carry(run), context=self._base.copy())
        task.add_done_callback(lambda _: self._ended(run))

    def _ended(self, run: Run) -> None:
        """Free the slot of a task that was cancelled before its first step: `_carry` never ran."""
        self._tasks.pop(run, None)
        if self.unstarted.pop(run, None) is not None:
            self._done(run, Unstarted())

    async def _carry(self, run: Run) -> None:
        if self.unstarted.pop(run, None) is None:
            return
        result = await self._call(run)
        self._tasks.pop(run, None)
        self._done(run, result)

    def _cancel(self, run: Run) -> None:
        task = self._tasks.get(run)
        # A task cancelled before its first step would end without a word; such a run does not begin anyway.
        if task is not None and run.started is not None:
            task.cancel()

    def _answer(self) -> None:
        self._asked = None
        if self.stalled:
            self.stalled = False
            self._triggers.loop_answers()

    def _wind_up(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_LAST_WORDS_SECONDS))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        left = [task for task in tasks if not task.done()]
        if left:
            _keep_for_ever(left)
        else:
            self._loop.close()

    # --- on the timeouts' and the claimer's thread ---

    def _ask(self) -> None:
        self._asked, self._reported = self._clock.monotonic(), False
        self._loop.call_soon_threadsafe(self._answer)

    def _stall(self) -> None:
        if not self.stalled:
            self.stalled = True
            self._triggers.loop_stalled()


def _keep_for_ever(tasks: list[asyncio.Task[Any]]) -> None:
    """Never let these be collected, nor their loop be closed.

    They swallowed their cancellation. Collected, or on a closed loop, such a coroutine may run without an
    end: every wait in it fails at once, and it swallows that too.
    """
    for task in tasks:
        log.warning("loop.left_behind", extra={"task": repr(task)})
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
