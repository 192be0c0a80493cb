"""The store behind a queue: opened on first use, and what producers know of it.

That is what operators have set, the catalogue of types, and about how many jobs wait.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import threading
import weakref
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from windlass import config, connect, settings
from windlass.clock import SystemClock
from windlass.errors import QueueFull, StoreUnavailable, UnknownType, must_be
from windlass.job import HIGHEST_PRIORITY, NewJob, TypeInfo
from windlass.settings import ALL, Settings
from windlass.store.engine import StoreClosed
from windlass.store.flow import Depths
from windlass.url import ALLOWED, FileName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from windlass.clock import Clock
    from windlass.connect import Opened
    from windlass.registry import Handler

log = logging.getLogger("windlass.admission")

T = TypeVar("T")

_SYSTEM = SystemClock()
# What was read from the store is good for so long.
REFRESH_SECONDS = 5.0
# How many wait, for less.
_DEPTH_SECONDS = 1.0
_WARN_SECONDS = 60.0
# Workers count more often; without them the producer does.
_OLD = timedelta(seconds=30)


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
        # Only to compare; `get` is what may be used.
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
        """Use the store at this URL, for a queue that was made before its URL was known."""
        self.close()
        self._url = _checked(url)

    def get(self) -> Opened:
        """The store of this process, opened if need be."""
        opened = self.opened
        if opened is not None and self._process == os.getpid():
            return opened
        if self._process != os.getpid():
            # A fork that Python does not know of, by a server written in C.
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
                # Closed by other means than ours: another call would find the same closed store.
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
        """Use another store and clock for as long as the block lasts, then close it; for tests."""
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
            # Its jobs stay with the parent: a second store in memory would take jobs that never run.
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
    """A URL as text; one that cannot name a store is refused here, and not when the first job comes."""
    if url is None:
        return None
    text = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str):
        raise must_be("database URL", type(url).__name__, ALLOWED)
    text = text if text is url else FileName(text)
    connect.check(text)
    return text


def _after_fork() -> None:
    for opening in list(_openings):
        opening.after_fork()


_openings: weakref.WeakSet[Opening] = weakref.WeakSet()
_inherited: list[Opened] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# --- what producers know of the store -----------------------------------------------------------


class Lately:
    """Where something was read last, and until when that can be used."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self.place: Opened | None = None
        self.until = -math.inf

    def is_fresh(self) -> bool:
        """Whether what was read can still be used: it is from the store that is open now, and not too old."""
        return self.place is self._opening.opened and self._opening.monotonic() < self.until

    def look(self, read: Callable[[Opened], T]) -> T:
        """Read from the store; it can be used from here on."""
        until = self._opening.monotonic() + REFRESH_SECONDS
        self.place, found = self._opening.use(lambda opened: (opened, read(opened)))
        self.until = until
        return found


@dataclass(frozen=True, kw_only=True)
class TypeDefaults:
    """What a type's jobs get if their producer says nothing."""

    version: int
    priority: int
    max_attempts: int
    max_priority: int = HIGHEST_PRIORITY


class Defaults:
    """The defaults of types: what operators have set in the store, over what the type says."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._lately = Lately(opening)
        self._settings = Settings({})
        # By identity: a handler may be registered again with other options, and a type's entry may change.
        self._known: dict[int, tuple[Handler | TypeInfo, TypeDefaults]] = {}

    def settings(self) -> Settings:
        """What operators have set, as of a few seconds ago."""
        if not self._lately.is_fresh():
            self._look()
        return self._settings

    def of(self, source: Handler | TypeInfo) -> TypeDefaults:
        """For a handler that is registered here, or a type that only the store's catalogue knows."""
        # `is_fresh` written out: every enqueue comes here.
        lately, opening = self._lately, self._opening
        if lately.place is not opening.opened or opening.monotonic() >= lately.until:
            self._look()
        known = self._known.get(id(source))
        if known is None:
            info = source if isinstance(source, TypeInfo) else source.info()
            known = self._known[id(source)] = (source, self._of_info(info))
        return known[1]

    def at_hand(self, info: TypeInfo) -> TypeDefaults | None:
        """The same without a look at the store; None if it is time for one."""
        known = self._known.get(id(info))
        return known[1] if self._lately.is_fresh() and known is not None else None

    def _look(self) -> None:
        self._settings = settings.read(self._lately.look(lambda opened: opened.front.settings()))
        self._known = {}

    def _of_info(self, info: TypeInfo) -> TypeDefaults:
        held = self._settings.of_type(info.name, info.options)
        return TypeDefaults(
            version=info.schema_version,
            priority=min(held.priority, held.max_priority),
            max_attempts=held.run.max_attempts,
            max_priority=held.max_priority,
        )


class Catalogue:
    """The types that the store knows, as of a few seconds ago."""

    def __init__(self, opening: Opening) -> None:
        self._lately = Lately(opening)
        self._types: dict[str, TypeInfo] = {}

    def get(self, name: str, others: Sequence[str]) -> TypeInfo:
        """A type of the store; UnknownType names it and `others`, the types of this process."""
        # Read again now and then: which fields are encrypted, say, may be news even if the payload fits.
        if name not in self._types or not self._lately.is_fresh():
            self.read()
        info = self._types.get(name)
        if info is None:
            raise UnknownType(name, {*self._types, *others})
        return info

    def at_hand(self, name: str) -> TypeInfo | None:
        """The same without a look at the store; None if it is unknown, or time for a look."""
        return self._types.get(name) if self._lately.is_fresh() else None

    def read(self) -> None:
        """Read the types from the store now."""
        found, known = self._lately.look(lambda opened: opened.front.types()), self._types
        # What has not changed stays the same object, so that results computed from it stay valid.
        same = {name: info for name, info in known.items() if found.get(name) == info}
        self._types = found | same


class Admission:
    """Knows about how many jobs wait: as counted some seconds ago, and what this process has added since.

    Not exact, and need not be: what is refused at 500,000 may as well be refused a few thousand later.
    """

    def __init__(self, opening: Opening, defaults: Defaults) -> None:
        self._opening = opening
        self._defaults = defaults
        self._depths = Depths()
        self._added: Counter[str] = Counter()
        self._place: Opened | None = None
        self._next_look = -math.inf
        # So many more of these types cannot come near a limit before the next look.
        self._room = 0
        self._roomy: set[str] = set()
        self._warned = -math.inf

    def check(
        self, jobs: Sequence[NewJob], opened: Opened, *, guest: bool = False, soft: bool = False
    ) -> None:
        """Refuse jobs, all of them, if too many wait. A guest's transaction must not wait for our count.

        `soft`: refuse at soft_depth already, where others are only warned; for jobs from the network.
        """
        if opened.served:
            return
        if opened is not self._place or self._opening.monotonic() >= self._next_look:
            self._look(opened, guest=guest)
        # Plain loops: every enqueue goes through them.
        roomy = len(jobs) <= self._room
        for job in jobs:
            roomy = roomy and job.type in self._roomy
        if not roomy:
            try:
                self._check_closely(jobs, self._defaults.settings(), soft=soft)
            except QueueFull:
                # A request that was accepted before adds nothing: the answer is the jobs that are there.
                if not opened.store.accepted(jobs):
                    raise
                return
        self._room -= len(jobs)
        for job in jobs:
            self._added[job.type] += 1

    def _check_closely(self, jobs: Sequence[NewJob], settings: Settings, *, soft: bool) -> None:
        # Copied in one step: other threads add theirs meanwhile.
        depths = Counter(self._depths.pending) + Counter(self._added)
        coming = Counter(job.type for job in jobs)
        total = depths.total()
        for name, count in coming.items():
            self._judge(name, f"of type {name}", depths[name], count, settings, soft=soft)
        self._judge(ALL, "in all", total, len(jobs), settings, soft=soft)
        self._roomy = {*depths, *coming}
        left = [_lower(settings, name) - depths[name] for name in self._roomy]
        self._room = min(_lower(settings, ALL) - total, *left)

    def _judge(self, name: str, of: str, depth: int, count: int, settings: Settings, *, soft: bool) -> None:
        most, warned = settings.hard_depth(name), settings.soft_depth(name)
        if depth + count > most:
            raise QueueFull(of, depth, most)
        if depth + count > warned:
            if soft:
                raise QueueFull(of, depth, warned, "soft_depth")
            now, note = self._opening.monotonic(), "more are taken, up to hard_depth"
            if now - self._warned >= _WARN_SECONDS:
                self._warned = now
                log.warning("queue.deep", extra={"jobs": depth, "of": of, "soft_depth": warned, "note": note})

    def _look(self, opened: Opened, *, guest: bool) -> None:
        """How many does the store say are waiting? Then every job is looked at closely once."""
        now = self._opening.monotonic()
        found = opened.store.depths()
        if not guest and (found.age is None or found.age > _OLD):
            found = opened.store.take_sample(_OLD).depths()
        if self._place is not opened or found.at != self._depths.at:
            # Counted since we looked: what we had added is in it.
            self._added.clear()
        self._depths, self._room = found, 0
        self._place, self._next_look = opened, now + _DEPTH_SECONDS


def _lower(settings: Settings, name: str) -> int:
    return min(settings.soft_depth(name), settings.hard_depth(name))
