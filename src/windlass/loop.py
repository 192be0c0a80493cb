"""Run a part in the background, again and again, or at a pace: the only thread that repeats itself."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from windlass.clock import Clock, SystemClock
from windlass.errors import StoreError, StoreUnavailable, must_be

log = logging.getLogger("windlass.loop")

# Jitter; a name of its own for tests.
chance = random.random

_FIRST_PAUSE = 1.0
# A lost connection can mostly be made anew at once; who is down is soon asked no more often than before.
_FIRST_PAUSE_AWAY = 0.05
_LONGEST_PAUSE = timedelta(seconds=4)
_AT_ONCE = timedelta(0)
# A failure that goes on is told again after this time.
_REPORT_SECONDS = 60.0


class Loop:
    """Calls `tick` every so often and when woken, until stopped; outlives whatever a tick raises.

    A tick may answer with the seconds until the next one; None means `every`. After a failure it pauses, the
    longer the more there were in a row (`pause_after`), and a wake-up does not shorten that. The row is over
    when ticks have gone well for as long as `steady`: at once, unless one that does so says little.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], float | None],
        *,
        every: timedelta,
        first: timedelta = _AT_ONCE,
        jitter: float = 0.0,
        longest_pause: timedelta = _LONGEST_PAUSE,
        steady: timedelta = _AT_ONCE,
        woken: threading.Event | None = None,
    ) -> None:
        """`woken`: what wakes it, where others must hold that before the loop is made."""
        self.name = name
        self._tick = tick
        self._every = every.total_seconds()
        self._first = first.total_seconds()
        self._jitter = jitter
        self._longest_pause = longest_pause.total_seconds()
        self._row = Failures(name, steady, SystemClock())
        self._woken = woken or threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        # Ticks that raised since it began.
        self.failed = 0

    def start(self, on_store_error: Callable[[str, StoreError], None] = lambda _, __: None) -> None:
        """Begin to tick on a daemon thread; `on_store_error` is called for each tick with a StoreError."""
        run = partial(self._run, on_store_error)
        self._thread = threading.Thread(target=run, name=f"windlass-{self.name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tick now, or right after the present tick."""
        # Reading is cheaper than setting, and a busy worker wakes thousands of times a second.
        if not self._woken.is_set():
            self._woken.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Let the present tick be the last; False if that took longer than `timeout` seconds."""
        self._stopped.set()
        self._woken.set()
        thread = self._thread
        # One that could not be started has no number yet, and cannot be waited for.
        if thread is None or thread.ident is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self, on_store_error: Callable[[str, StoreError], None]) -> None:
        wait = self._first
        while True:
            self._woken.wait(wait)
            if self._stopped.is_set():
                return
            self._woken.clear()
            try:
                answer = self._tick()
                wait = self._every * (1.0 + self._jitter * chance()) if answer is None else max(0.0, answer)
                if self._row.count:
                    self._row.went_well()
            except Exception as error:  # noqa: BLE001 # wall: a loop outlives its tick
                self.failed += 1
                if isinstance(error, StoreError):
                    on_store_error(self.name, error)
                pause = self._pause(error, self._row.count + 1)
                self._row.failed(error, pause)
                self._stopped.wait(pause)
                wait = 0.0

    def _pause(self, error: Exception, failures: int) -> float:
        if not isinstance(error, StoreUnavailable):
            return pause_after(failures, self._longest_pause)
        # A fleet loses its server at one moment, and shall not ask for it at one moment.
        part = 0.5 + 0.5 * chance()
        return part * pause_after(failures, self._longest_pause, first=_FIRST_PAUSE_AWAY)


class Failures:
    """Failures in a row. What works and breaks again in a moment does not end it.

    The first is logged, then one a minute with how many there were, and the recovery; others at debug level.
    """

    def __init__(self, name: str, steady: timedelta, clock: Clock) -> None:
        self._name = name
        self._steady = steady.total_seconds()
        self._clock = clock
        self.count = 0
        self._kind: type[Exception] | None = None
        self._next = 0.0
        self._began = 0.0
        # Since when it has gone well.
        self._well: float | None = None

    def failed(self, error: Exception, pause: float) -> None:
        """A tick raised this, and is repeated after a pause."""
        now, self._well = self._clock.monotonic(), None
        if not self.count:
            self._began = now
        self.count += 1
        fields = {"loop": self._name, "error": str(error), "again_in": pause, "failures": self.count}
        # A store that is away is no bug of ours: its message says all.
        trace = None if isinstance(error, StoreError) else error
        loud = type(error) is not self._kind or now >= self._next
        if loud:
            self._kind, self._next = type(error), now + _REPORT_SECONDS
        log.log(logging.WARNING if loud else logging.DEBUG, "loop.tick_failed", extra=fields, exc_info=trace)

    def went_well(self) -> None:
        """The row is over if that lasts."""
        if not self.count:
            return
        now = self._clock.monotonic()
        self._well = now if self._well is None else self._well
        if now - self._well < self._steady:
            return
        fields = {"loop": self._name, "failures": self.count, "seconds": round(now - self._began, 1)}
        log.log(logging.WARNING if self.count > 1 else logging.DEBUG, "loop.recovered", extra=fields)
        self.count = 0


def pause_after(failures: int, longest: float, *, first: float = _FIRST_PAUSE) -> float:
    """Seconds to wait after this many failures in a row: `first`, twice that and so on, up to `longest`."""
    return min(first * 2.0 ** (min(failures, _MOST_DOUBLINGS) - 1), longest)


_MOST_DOUBLINGS = 10


class Pace:
    """Holds its caller back so that at most `rate` things happen per second; None: as fast as it goes."""

    def __init__(self, rate: float | None, *, clock: Clock | None = None) -> None:
        if rate is not None and not rate > 0:
            raise must_be("rate", rate, "more than 0 per second")
        self._rate = rate
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        self._count = 0
        self._never = threading.Event()

    @property
    def step(self) -> int | None:
        """How many to do between two waits, so that the pace looks even; None: any number."""
        return None if self._rate is None else max(1, int(self._rate / _WAITS_PER_SECOND))

    def passed(self, count: int) -> None:
        """Say that `count` more have happened; returns when the next may."""
        self.count(count)
        ahead = self.ahead()
        if ahead > 0:
            self._never.wait(ahead)

    def count(self, count: int) -> None:
        """The same for those who wait in their own way."""
        self._count += count

    def ahead(self) -> float:
        """By how many seconds the caller is faster than its pace."""
        if self._rate is None:
            return 0.0
        return self._count / self._rate - (self._clock.monotonic() - self._began)


_WAITS_PER_SECOND = 10
