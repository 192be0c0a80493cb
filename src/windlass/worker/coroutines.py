"""How do `async def` handlers run?"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import importlib
import importlib.util
import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from windlass.clock import Clock
from windlass.outcome import Result
from windlass.worker.run import Run
from windlass.worker.runner import Runner

log = logging.getLogger("windlass.coroutines")

BLOCKED_SECONDS = 3.0
_LAST_WORDS_SECONDS = 0.5


class Coroutines:
    """One thread with an event loop; thousands of runs can wait on it without a thread each."""

    def __init__(self, runner: Runner, *, done: Callable[[Run, Result], None], clock: Clock) -> None:
        self._runner = runner
        self._done = done
        self._clock = clock
        self._base = contextvars.copy_context()
        self._inbox: deque[Run] = deque()
        # The loop itself holds tasks weakly: one that nobody else knows could vanish.
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._turn, name="windlass-coroutines", daemon=True)
        # Closed until opened: a worker without such handlers needs no loop.
        self._closed = True
        self._asked: float | None = None
        self._reported = False

    def open(self) -> None:
        """Start the loop."""
        self._loop = _new_loop()
        self._closed = False
        self._thread.start()

    def start(self, runs: Sequence[Run]) -> None:
        """Start runs that have slots, all with one call into the loop."""
        if threading.get_ident() == self._thread.ident:
            for run in runs:
                self._spawn(run)
            return
        self._inbox.extend(runs)
        self._loop.call_soon_threadsafe(self._take)

    def carried(self) -> list[Run]:
        """Those whose work goes on at this moment, settled or not."""
        return list(self._tasks)

    def halt(self, run: Run) -> bool:
        """Cancel the run's task; if that is swallowed, it is the warden who settles the run."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self._cancel, run)
        return True

    def wait(self, coroutine: Coroutine[Any, Any, object], timeout: float | None = None) -> None:
        """Run a coroutine that is no job on the loop, to its end; TimeoutError if that does not come."""
        asked = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            asked.result(timeout)
        finally:
            # Nobody waits for it any more.
            asked.cancel()

    def check(self) -> None:
        """Ask the loop for a sign of life; name the handler that blocks it, once each time."""
        now = self._clock.monotonic()
        if self._asked is None:
            if self._tasks and not self._closed:
                self._asked, self._reported = now, False
                self._loop.call_soon_threadsafe(self._answer)
        elif not self._reported and now - self._asked > BLOCKED_SECONDS:
            self._reported = True
            self._report(now - self._asked)

    def close(self, timeout: float) -> bool:
        """End the loop; False if a handler blocks it for longer than `timeout` seconds."""
        if self._closed:
            return True
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
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
            self._spawn(self._inbox.popleft())

    def _spawn(self, run: Run) -> None:
        run.carrier = self
        self._tasks[run] = self._loop.create_task(self._carry(run), context=self._base.copy())

    async def _carry(self, run: Run) -> None:
        result = await self._runner.call_async(run)
        self._tasks.pop(run, None)
        self._done(run, result)

    def _cancel(self, run: Run) -> None:
        task = self._tasks.get(run)
        # A task cancelled before its first step would end without a word; such a run does not begin anyway.
        if task is not None and run.started is not None:
            task.cancel()

    def _answer(self) -> None:
        self._asked = None

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

    # --- on the warden's thread ---

    def _report(self, seconds: float) -> None:
        frames = sys._current_frames()  # noqa: SLF001 - the only way to see another thread's stack
        frame = frames.get(self._thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else ""
        log.warning("loop.blocked", extra={"seconds": round(seconds, 1), "stack": stack})


def _keep_for_ever(tasks: list[asyncio.Task[Any]]) -> None:
    """Never let these be collected, nor their loop be closed.

    They swallowed their cancellation. Collected, or on a closed loop, such a coroutine may run without an
    end: every wait in it fails at once, and it swallows that too.
    """
    for task in tasks:
        log.warning("loop.left_behind", extra={"task": repr(task)})
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


def _new_loop() -> asyncio.AbstractEventLoop:
    """A loop by uvloop where that extra is installed: twice as fast for short coroutines."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return loop
