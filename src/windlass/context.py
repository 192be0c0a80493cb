"""What can a handler learn about the job that it runs?"""

from __future__ import annotations

import logging
import threading
from collections.abc import MutableMapping
from datetime import datetime, timedelta
from typing import Any

from windlass.clock import Clock
from windlass.job import Job

log = logging.getLogger("windlass.job")


class Stopping(BaseException):
    """Raised inside a `def` handler whose job shall stop: past its deadline, cancelled, or at a shutdown.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it; `finally` blocks run.
    """


class Notice:
    """What the worker tells a running job; the worker writes it, the handler's Context reads it."""

    __slots__ = ("_event", "lease_lost", "stop")

    def __init__(self) -> None:
        self.stop = False
        self.lease_lost = False
        self._event: threading.Event | None = None

    def give(self) -> None:
        """Tell the job to stop."""
        self.stop = True
        with _making_events:
            event = self._event
        if event is not None:
            event.set()

    def lose(self) -> None:
        """Tell the job that its lease is gone: whatever it does now, its result is dropped."""
        self.lease_lost = True
        self.give()

    def wait(self, timeout: float | None) -> bool:
        """Wait until the job shall stop; False if the time was over first."""
        with _making_events:
            # Most jobs never wait: an event each would cost every job what few use.
            event = self._event = self._event or threading.Event()
        if self.stop:
            return True
        return event.wait(timeout)


_making_events = threading.Lock()


class Context:
    """The job's own view of itself while it runs. Handlers ask for one by annotating a parameter with it."""

    __slots__ = ("_clock", "_ends", "_notice", "deadline", "job", "log")

    def __init__(self, job: Job, notice: Notice, *, deadline: datetime, ends: float, clock: Clock) -> None:
        self.job = job
        self.deadline = deadline
        self.log = _JobLogger(log, {"job": job.id, "type": job.type, "attempt": job.attempts})
        self._notice = notice
        self._ends = ends
        self._clock = clock

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def type(self) -> str:
        """The job's type."""
        return self.job.type

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self.job.attempts

    @property
    def max_attempts(self) -> int:
        """How many attempts the job has at most."""
        return self.job.max_attempts

    @property
    def fence(self) -> int:
        """A number that rises with every claim: outside systems may refuse a lower one than they saw."""
        return self.job.claims

    @property
    def key(self) -> str:
        """The same in every attempt: the job's key, or else its id. For idempotency at outside systems."""
        return self.job.key or self.job.id

    @property
    def tenant(self) -> str:
        """The tenant that the job belongs to; empty if it has none."""
        return self.job.tenant

    @property
    def payload_ref(self) -> str | None:
        """Where the data is that the payload points at, if the producer said so."""
        return self.job.payload_ref

    @property
    def traceparent(self) -> str | None:
        """The trace context that the producer sent along."""
        return self.job.traceparent

    @property
    def cancelled(self) -> bool:
        """Whether the job shall stop now: by request, past its deadline, at shutdown, or with its lease lost.

        Once this is true, what the handler returns no longer counts as a success.
        """
        return self._notice.stop

    @property
    def lease_lost(self) -> bool:
        """Whether the job belongs to another worker by now; nothing that this attempt does is recorded."""
        return self._notice.lease_lost

    def time_left(self) -> float:
        """Seconds until the deadline, never below zero."""
        return max(0.0, self._ends - self._clock.monotonic())

    def wait_cancelled(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the job shall stop; False if `timeout` (seconds) was over first. For `def` handlers.

        A pause in a handler's work written with this ends at once when the job shall stop.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return self._notice.wait(seconds)


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields to what the handler says, and keeps the handler's own."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
