"""Hints that jobs may be there, within a process, from a file that changed, or from PostgreSQL.

Never the truth: polling alone is always correct.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from windlass.errors import StoreError
from windlass.loop import Loop


class Wakeup:
    """Hints within this process, on the thread of whoever notifies. A lost one costs latency, not a job."""

    # Whether hints of other processes are known not to arrive.
    deaf = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced, never changed: notify reads it without the lock.
        self._callbacks: tuple[Callable[[], None], ...] = ()

    def notify(self) -> None:
        """Tell whoever waits; called after a commit that made jobs claimable."""
        for callback in self._callbacks:
            callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` at each hint, on any thread; it must be quick, such as an event's `set`."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Call it no more."""
        with self._lock:
            self._callbacks = tuple(other for other in self._callbacks if other != callback)

    def close(self) -> None:
        """Forget everybody, and stop listening."""
        with self._lock:
            self._callbacks = ()


_EVERY = timedelta(milliseconds=20)
# Looking costs little, waking up for it costs more: after so many looks in vain every second one is left out.
_PATIENCE = 10


class Watch(Wakeup):
    """Notifies when a version number moves; looks at it only while somebody has subscribed."""

    def __init__(self, version: Callable[[], int], *, every: timedelta = _EVERY) -> None:
        super().__init__()
        self._version = version
        self._every = every
        self._still = 0
        self._seen: int | None = None
        self._loop: Loop | None = None

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` at each hint, on any thread; it must be quick, such as an event's `set`."""
        super().subscribe(callback)
        with self._lock:
            if self._loop is None:
                self._seen = None
                self._loop = Loop("watch", self.tick, every=self._every)
                self._loop.start()

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Call it no more."""
        super().unsubscribe(callback)
        self._rest()

    def close(self) -> None:
        """Stop looking."""
        super().close()
        self._rest()

    def tick(self) -> float:
        """Look once; answers when to look again."""
        version = self._version()
        self._still += 1
        if version != self._seen:
            # The first look only learns where the number stands.
            moved, self._seen = self._seen is not None, version
            self._still = 0
            if moved:
                self.notify()
        return self._every.total_seconds() * (1 if self._still < _PATIENCE else 2)

    def _rest(self) -> None:
        """Look no more if nobody is left."""
        with self._lock:
            loop = None if self._callbacks else self._loop
            if loop is not None:
                self._loop = None
        if loop is not None:
            loop.stop()


log = logging.getLogger("windlass.listen")

# Hints closer together than this are one: the first is sent at once, the last at the end of the span.
_SPAN = 0.02
# No statement is sent meanwhile; so long a stop may have to wait for us.
_HEAR_SECONDS = 0.25
# So often we ask ourselves something by way of the server, and so long an answer may take.
_ASK_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_IDLE = timedelta(hours=1)
# A server may let us in and LISTEN, and cut us off each time. Only what has lasted so long is well again.
_STEADY = timedelta(seconds=5)


class Source(Protocol):
    """A channel to the other processes; each call may raise a StoreError."""

    def begin_to_tell(self) -> bool:
        """Tell everybody else without waiting for it; False if that is not possible now."""

    def end_telling(self) -> None:
        """Wait for what was begun."""

    def tell(self) -> None:
        """Tell everybody else."""

    def ask(self) -> None:
        """Tell ourselves alone, as others would."""

    def hear(self, seconds: float) -> tuple[bool, bool]:
        """Wait so long: whether there was a hint of others, and whether there was one of our own."""

    def begin_anew(self) -> None:
        """Give up what we hear with; the next hearing makes another."""

    def close(self) -> None:
        """Let go of its connections."""


class Listen(Wakeup):
    """Tells others after a commit, debounced, and hears them once somebody has subscribed.

    All of it is a hint: when it fails, workers find their jobs by looking each second. `deaf` says that it
    does: a connection can look sound and hear nothing, when its other end is gone or a pooler stands between.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._hearing: Loop | None = None
        self._telling: Loop | None = None
        self._pending = False
        self._told = 0.0
        self._asked: float | None = None
        self._ask_at = 0.0
        self.deaf = False

    def notify(self) -> None:
        """Tell whoever waits in this process at once, and the others soon."""
        super().notify()
        waits, self._pending = self._pending, True
        if self._telling is None:
            self._begin_to_tell()
        elif time.monotonic() - self._told >= _SPAN:
            self._tell_at_once()
            self._telling.wake()
        elif not waits:
            # Nobody else sees to it that it is told at the end of the span.
            self._telling.wake()

    def first(self) -> bool:
        """Whether what is about to be committed may tell by its commit; then it counts as told.

        Only after a while in which there was nothing to tell: of many commits one tells of all.
        """
        now = time.monotonic()
        if self._pending or now - self._told < _SPAN:
            return False
        self._told = now
        return True

    # Where the others have been told.
    notify_here = Wakeup.notify

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` at each hint, on any thread; it must be quick, such as an event's `set`."""
        super().subscribe(callback)
        with self._lock:
            # Heard until the end, also when nobody is left: whoever waited for a job may wait again.
            if self._hearing is None:
                self._hearing = Loop("listen", self.hear, every=timedelta(0), steady=_STEADY)
                self._hearing.start()

    def close(self) -> None:
        """Tell what has not been told yet, then stop."""
        super().close()
        with self._lock:
            hearing, self._hearing = self._hearing, None
        for loop in (hearing, self._telling):
            if loop is not None:
                loop.stop()
        with contextlib.suppress(StoreError):
            if self._pending:
                self._source.tell()
        self._source.close()

    def tell(self) -> float | None:
        """Send one hint for all that came within the span; answers when the next may go."""
        self._source.end_telling()
        if not self._pending:
            return None
        wait = self._told + _SPAN - time.monotonic()
        if wait > 0:
            return wait
        self._pending = False
        self._told = time.monotonic()
        self._source.tell()
        return _SPAN

    def hear(self) -> float:
        """Wait for a hint and pass it on; now and then ask whether we would hear one."""
        try:
            hint, answered = self._source.hear(_HEAR_SECONDS)
            if hint:
                # First of all: somebody waits for it.
                self.notify_here()
            self._ask(answered=answered)
        except StoreError:
            self._begin_anew()
            raise
        return 0.0

    def _ask(self, *, answered: bool) -> None:
        now = time.monotonic()
        if answered:
            self._asked = None
            self._fell(deaf=False)
        elif self._asked is not None and now - self._asked > _ANSWER_SECONDS:
            self._source.begin_anew()
            self._begin_anew()
        elif self._asked is None and now >= self._ask_at:
            self._asked, self._ask_at = now, now + _ASK_SECONDS
            self._source.ask()

    def _begin_anew(self) -> None:
        self._asked, self._ask_at = None, 0.0
        self._fell(deaf=True)

    def _fell(self, *, deaf: bool) -> None:
        if deaf != self.deaf:
            self.deaf = deaf
            log.warning("wakeup.deaf" if deaf else "wakeup.hears_again")

    def _tell_at_once(self) -> None:
        """Whoever notifies sends the hint: another thread would first have to wait for this one to pause."""
        # Before it is sent: whoever notifies from now on is not covered by it.
        self._pending = False
        if self._source.begin_to_tell():
            self._told = time.monotonic()
        else:
            self._pending = True

    def _begin_to_tell(self) -> None:
        with self._lock:
            if self._telling is None:
                loop = Loop("notify", self.tell, every=_IDLE)
                loop.start()
                self._telling = loop
