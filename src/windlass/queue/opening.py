"""When is the store opened? On first use, and anew in a process that was forked off."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING

from windlass import config, connect
from windlass.clock import SystemClock
from windlass.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from windlass.clock import Clock
    from windlass.connect import Opened


_SYSTEM = SystemClock()


class Opening:
    """A store that opens itself when it is first asked for."""

    def __init__(self, url: str | None, clock: Clock | None, patience: timedelta | None = None) -> None:
        self._url = url
        self._go_by(clock)
        self._patience = connect.PATIENCE if patience is None else patience.total_seconds()
        # For who only asks whether it is still the same; `get` is what may be used.
        self.opened: Opened | None = None
        self._start_over()
        _openings.add(self)

    @property
    def url(self) -> str:
        """The one that was given, or else what the configuration says by now."""
        return self._url or config.load().database_url

    def stand_at(self, url: str) -> None:
        """Take another URL; whatever is open is let go."""
        self.close()
        self._url = url

    def get(self) -> Opened:
        """The store of this process, opened if need be."""
        opened = self.opened
        if opened is not None and self._process == os.getpid():
            return opened
        if self._process != os.getpid():
            # A fork that Python was not told of, by a server written in C.
            self.after_fork()
        with self._lock:
            if self.opened is None:
                self.opened = self._open()
            return self.opened

    def _open(self) -> Opened:
        try:
            return connect.open(self.url, clock=self.clock, patience=self._patience)
        except StoreBusy as error:
            # The first use of a new file has tables to make, which the caller's own transaction can forbid.
            advice = "if that transaction is yours, use the queue once before it, such as queue.store.now()"
            raise StoreBusy(f"{error}; {advice}") from error

    def close(self) -> None:
        """Let go of the store; the next use opens it again."""
        if self._process != os.getpid():
            self.after_fork()
        with self._lock:
            opened, self.opened = self.opened, None
        if opened is not None:
            opened.close()

    @contextlib.contextmanager
    def instead(self, opened: Opened, url: str, clock: Clock) -> Iterator[None]:
        """Stand on another store, under another clock, for as long as the block lasts; it is closed then.

        The URL is for whoever opens anew meanwhile, after a close or a fork: not the store of before.
        """
        with self._lock:
            before, clock_before = (self.opened, self._url), self.clock
            self.opened, self._url = opened, url
            self._go_by(clock)
        try:
            yield
        finally:
            self.close()
            with self._lock:
                self.opened, self._url = before
                self._go_by(clock_before)

    def after_fork(self) -> None:
        """What was inherited belongs to the parent: not used, not closed, not left to be collected."""
        if self.opened is not None:
            _inherited.append(self.opened)
        self._start_over()

    def _go_by(self, clock: Clock | None) -> None:
        """Take this clock, or else the system's."""
        self.clock = clock
        # Seconds that only rise. The clock's own function: every enqueue asks for it, and more than once.
        self.monotonic = (clock or _SYSTEM).monotonic

    def _start_over(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.opened = None


def _after_fork() -> None:
    for opening in list(_openings):
        opening.after_fork()


_openings: weakref.WeakSet[Opening] = weakref.WeakSet()
_inherited: list[Opened] = []
os.register_at_fork(after_in_child=_after_fork)
