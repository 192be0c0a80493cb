"""When is the store opened? On first use, and anew in a process that was forked off."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import weakref
from typing import TYPE_CHECKING, TypeVar

from windlass import config, connect
from windlass.clock import SystemClock
from windlass.errors import StoreUnavailable, must_be
from windlass.store.engine import StoreClosed
from windlass.url import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from windlass.clock import Clock
    from windlass.connect import Opened


T = TypeVar("T")

_SYSTEM = SystemClock()


class Opening:
    """A store that opens itself when it is first asked for."""

    def __init__(
        self, url: str | os.PathLike[str] | None, clock: Clock | None, patience: timedelta | None = None
    ) -> None:
        self._url = _checked(url)
        self._go_by(clock)
        self._patience = connect.PATIENCE if patience is None else patience.total_seconds()
        # By which drafts know the queue that made them, within this process.
        self.number = secrets.randbits(62)
        # For who only asks whether it is still the same; `get` is what may be used.
        self.opened: Opened | None = None
        self._had_memory = False
        self._start_over()
        _openings.add(self)

    @property
    def url(self) -> str:
        """The one that was given, or else what the configuration says by now."""
        return self._url or config.load().database_url

    def shares(self, number: int) -> bool:
        """Whether the queue of that number has the same store; one that is not in this process may."""
        other = next((each for each in _openings if each.number == number), self)
        return other is self or connect.place(other.url) == connect.place(self.url)

    def stand_at(self, url: str | os.PathLike[str]) -> None:
        """Take another URL; whatever is open is let go."""
        self.close()
        self._url = _checked(url)

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

    def use(self, work: Callable[[Opened], T]) -> T:
        """Work on the store of this process, again on a new one if another thread closed it meanwhile."""
        while True:
            opened = self.get()
            try:
                return work(opened)
            except StoreClosed:
                # Closed by other means than ours: nobody would open another one.
                if self.opened is opened:
                    raise

    def _open(self) -> Opened:
        url = self.url
        if self._had_memory and connect.is_memory(url):
            raise StoreUnavailable(
                "a store in memory belongs to the process that opened it, and this process was forked off: "
                "open the queue after the fork, or use a file"
            )
        return connect.open(url, clock=self.clock, patience=self._patience)

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
            # Its jobs stay with the parent: a second store in memory would take jobs that nobody ever runs.
            self._had_memory = connect.is_memory(self.url)
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


def _checked(url: str | os.PathLike[str] | None) -> str | None:
    """A URL as text; whatever cannot name a store is refused here, and not when the first job comes."""
    if url is None:
        return None
    text = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str):
        raise must_be("database URL", type(url).__name__, ALLOWED)
    connect.check(text)
    return text


def _after_fork() -> None:
    for opening in list(_openings):
        opening.after_fork()


_openings: weakref.WeakSet[Opening] = weakref.WeakSet()
_inherited: list[Opened] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
