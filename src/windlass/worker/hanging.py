"""What is told of a worker that does not answer: in the log, and in the records of its jobs?"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta

from windlass.clock import Clock
from windlass.loop import Loop
from windlass.outcome import hung
from windlass.store.store import Store
from windlass.worker.watch import Hang

log = logging.getLogger("windlass.worker")

_IDLE = timedelta(hours=1)
_LOOK_SECONDS = 0.05


def tell_hang(found: Hang, fields: Mapping[str, object], *, killed: bool) -> None:
    """Log what the watcher of a worker found."""
    told = {**fields, "seconds": round(found.seconds, 1), "jobs": [job.id for job in found.jobs]}
    if found.event == "answers":
        log.warning("worker.answers", extra=told)
    elif found.event == "silent":
        log.warning("worker.silent", extra={**told, "stacks": found.stacks})
    else:
        log.error("worker.hung", extra={**told, "killed": killed, "stacks": found.stacks})


class Notes:
    """Writes findings into the store, in order, and tries again while that is away.

    The reaper of the jobs finds them there: this process, another worker here, or one on another machine.
    """

    def __init__(self, store: Callable[[], Store], *, wrote: Callable[[], object] = lambda: None) -> None:
        self._store = store
        self._wrote = wrote
        self._found: deque[Hang] = deque()
        self.loop = Loop("hangs", self.tick, every=_IDLE)

    def note(self, found: Hang) -> None:
        """Write it soon; never waits."""
        self._found.append(found)
        self.loop.wake()

    def tick(self) -> None:
        """Write what was found."""
        while self._found:
            found = self._found[0]
            hang = None if found.event == "answers" else hung(found.seconds, found.stacks)
            for job in found.jobs:
                self._store().note_hang(job.seq, job.token, hang)
            self._found.popleft()
            self._wrote()

    def flush(self, seconds: float, clock: Clock) -> None:
        """Wait until everything is written, but not longer than this."""
        end, pause = clock.monotonic() + seconds, threading.Event()
        while self._found and clock.monotonic() < end:
            pause.wait(_LOOK_SECONDS)
