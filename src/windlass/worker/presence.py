"""How does this worker show that it still answers? By a tick each second to another process, see watch.py."""

from __future__ import annotations

import contextlib
import sys
import threading
from datetime import timedelta
from typing import NamedTuple

from windlass.clock import Clock
from windlass.errors import WindlassError
from windlass.loop import Loop
from windlass.store.store import Store
from windlass.worker.guard import Guard
from windlass.worker.hanging import tell_hang
from windlass.worker.run import Run
from windlass.worker.watch import Box, Hang, Job, new_box, note_signals

EVERY = timedelta(seconds=1)
# A worker inside another program is watched after its first seconds: most of those in tests end before.
_EMBEDDED_FIRST = timedelta(seconds=5)
_AT_ONCE = timedelta(0)
_RED_SECONDS = 60.0
# A debugger stops all threads for as long as somebody reads.
_DEBUGGER = "pydevd"


class Watched(NamedTuple):
    """Who watches this worker, and what they may do."""

    # The box of a supervisor, which watches by itself; else the guard does.
    box: int | None = None
    # The guard may end this process: it is nothing but a worker.
    expendable: bool = False
    # How the log is written that the guard has its findings written to.
    log_json: bool = False


# A worker inside another program.
EMBEDDED = Watched()


class Presence:
    """What a watching process knows of this worker: that it ticks, and which job runs on which thread."""

    def __init__(
        self,
        store: Store,
        guard: Guard,
        limit: timedelta | None,
        watched: Watched,
        *,
        clock: Clock,
    ) -> None:
        self._store = store
        self._guard = guard
        self._limit = limit if _DEBUGGER not in sys.modules else None
        self._watched = watched
        self._clock = clock
        self.box: Box | None = None
        self._ticked = 0.0
        self._hung: tuple[float, float] | None = None
        self._embedded = watched.box is None and not watched.expendable
        first = _EMBEDDED_FIRST if self._embedded else _AT_ONCE
        self._loop = Loop("presence", self.tick, every=EVERY, first=first)

    def begin(self) -> None:
        """From now on a silence means that this process hangs; call it when the start is over."""
        if self._limit is None:
            return
        if not self._embedded:
            # The system may have no room for a guard just now: the loop tries again.
            with contextlib.suppress(OSError):
                self._open()
        if self._watched.box is None:
            # Else the reports to the supervisor are the ticks.
            self._loop.start()

    def end(self) -> None:
        """Promise nothing any more."""
        self._loop.stop(0.0)
        if self.box is not None:
            self.box.disarm()

    def enter(self, run: Run) -> int:
        """A run begins on this thread; answers what `leave` needs."""
        box, lease = self.box, run.lease
        if box is None:
            return -1
        name = getattr(run.handler.function, "__name__", "")
        return box.enter(Job(threading.get_native_id(), lease.job.seq, lease.id, lease.token, name))

    def leave(self, slot: int) -> None:
        """The run has ended."""
        if self.box is not None:
            self.box.leave(slot)

    @property
    def trouble(self) -> str:
        """Whether it lately did not answer for longer than the limit."""
        if self._hung is None or self._clock.monotonic() - self._hung[0] > _RED_SECONDS:
            return ""
        return f"did not answer for {self._hung[1]:.0f} s: worker.hung in the log tells where"

    def tick(self) -> None:
        """Tell the guard that this process answers."""
        if self.box is None:
            self._open()
        self._guard.tick()
        self._look_back()

    def _open(self) -> None:
        watched = self._watched
        box = Box(new_box() if watched.box is None else watched.box)
        if watched.box is None:
            words = {
                "limit": self._seconds,
                "kills": watched.expendable,
                "url": self._address(),
                "log_json": watched.log_json,
            }
            signals = note_signals() if watched.expendable and _is_main() else -1
            self._guard.watch(box.fd, signals, words)
        box.arm()
        self.box, self._ticked = box, self._clock.monotonic()

    def _look_back(self) -> None:
        """This thread runs again: if the guard asked for stacks meanwhile, tell what it was given."""
        now = self._clock.monotonic()
        gap, self._ticked = now - self._ticked, now
        if gap < self._seconds or self.box is None:
            return
        if stacks := self.box.take_stacks():
            self._hung = (now, gap)
            tell_hang(Hang("hung", gap, stacks), {}, killed=False)

    @property
    def _seconds(self) -> float:
        return 0.0 if self._limit is None else self._limit.total_seconds()

    def _address(self) -> str | None:
        """A store in memory has no second connection."""
        with contextlib.suppress(WindlassError):
            return self._store.shared_address()
        return None


def _is_main() -> bool:
    """Only the main thread may say where signals are noted."""
    return threading.current_thread() is threading.main_thread()
