"""Which workers come over HTTP? Each has a row in the fleet like any other, and is reaped by the same rules.

A worker has a name of its own; its row is named by caller, name and a number that rises. Whoever was taken
for dead gets a new row: what ran in the old one's name is others' by then.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from windlass.job import Lease
from windlass.server.identity import Identity
from windlass.store.fleet import Vitals, WorkerInfo
from windlass.store.store import Store

K = TypeVar("K")
V = TypeVar("V")
_LIVING = ("running", "draining")
_MOST_REMEMBERED = 10_000
# Whoever asks for the same lease more often than this dies of its job each time.
_MOST_TOLD_AGAIN = 3


class Remote:
    """Keeps the rows of remote workers alive by what they send, and counts what they were told again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._joining = threading.Lock()
        # By caller and name, the last used last; a row that is forgotten is looked for in the store.
        self._rows: OrderedDict[tuple[str, str], str] = OrderedDict()
        # By token: how often a lease was told of after the first time.
        self._told_again: OrderedDict[str, int] = OrderedDict()
        # By row and request: claims under way, and how many are there or wait for their turn.
        self._asking: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    def attend(
        self, store: Store, who: Identity, name: str, types: Sequence[str], *, slots: int, host: str
    ) -> str:
        """The worker's row, which has just been given a sign of life; a new one enters."""
        met = self.beat(store, who, name, None)
        if met is not None:
            return met
        with self._joining:
            # Two requests of a new worker may come at one moment, also to two servers: it has one row all the
            # same. Who sees the same rows enters the same one next, and who comes later meets it.
            while True:
                rows = _rows(store, who, name)
                met = self._meet(store, who, name, rows, None)
                if met is not None:
                    return met
                self._join(store, f"{_prefix(who, name)}{_next_number(rows)}", types, slots, host)

    def _join(self, store: Store, row: str, types: Sequence[str], slots: int, host: str) -> None:
        # No boot, no process: only its silence tells that it is gone.
        store.join(
            WorkerInfo(
                id=row,
                host=host,
                boot="",
                pid_space="",
                pid=0,
                pid_started=0,
                version="http",
                types=tuple(types),
                slots=slots,
            )
        )

    def beat(self, store: Store, who: Identity, name: str, busy: int | None) -> str | None:
        """A sign of life of a worker that has a row; None if it has none that is alive."""
        with self._lock:
            known = self._rows.get((who.name, name))
        if known is not None and self._alive(store, known, busy):
            return self._remember(who, name, known)
        # Another server may have met it.
        return self._meet(store, who, name, _rows(store, who, name), busy)

    def _meet(
        self, store: Store, who: Identity, name: str, rows: Sequence[WorkerInfo], busy: int | None
    ) -> str | None:
        for row in rows:
            if row.state in _LIVING and self._alive(store, row.id, busy):
                return self._remember(who, name, row.id)
        return None

    def _alive(self, store: Store, row: str, busy: int | None) -> bool:
        return store.beat(row, Vitals(busy=len(store.held_by(row)) if busy is None else busy))

    def is_draining(self, store: Store, row: str) -> bool:
        """Whether an operator has asked the worker to finish and go."""
        return any(worker.drain for worker in store.workers() if worker.id == row)

    def forget(self, who: Identity, name: str) -> None:
        """The worker has said goodbye."""
        with self._lock:
            self._rows.pop((who.name, name), None)

    @asynccontextmanager
    async def turn(self, row: str, request: str | None, patience: float) -> AsyncIterator[bool]:
        """Of claims that are one and the same request, one at a time: the next finds what the last one took.

        Whether it is this one's turn, within so many seconds.
        """
        if request is None:
            yield True
            return
        place = (row, request)
        lock, count = self._asking.get(place, (asyncio.Lock(), 0))
        self._asking[place] = (lock, count + 1)
        ours = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    ours = await lock.acquire()
            yield ours
        finally:
            if ours:
                lock.release()
            lock, count = self._asking.pop(place)
            if count > 1:
                self._asking[place] = (lock, count - 1)

    def tell_again(self, lease: Lease) -> bool:
        """Whether a lease of a lost answer may be told of once more.

        A worker that died of its job and comes again under the same name looks like one that lost an answer.
        """
        with self._lock:
            times = self._told_again.get(lease.token, 0) + 1
            _put_last(self._told_again, lease.token, times)
        return times <= _MOST_TOLD_AGAIN

    def _remember(self, who: Identity, name: str, row: str) -> str:
        with self._lock:
            _put_last(self._rows, (who.name, name), row)
        return row


def _prefix(who: Identity, name: str) -> str:
    return f"{who.name}~{name}~"


def belongs_to(row: str, who: Identity) -> bool:
    """Whether a caller may settle what runs in a worker's name: workers of its own service only.

    What was claimed before the server had keys has no service: the token alone proves who claimed it.
    """
    service, mark, _ = row.partition("~")
    return bool(mark) and service in ("", who.name)


def _rows(store: Store, who: Identity, name: str) -> list[WorkerInfo]:
    """Those that the worker has and has had, the newest first, as long as they are kept."""
    return [worker for worker in store.workers() if worker.id.startswith(_prefix(who, name))]


def _next_number(rows: Sequence[WorkerInfo]) -> int:
    """Higher than that of any row that the worker has had."""
    had = (row.id.rpartition("~")[2] for row in rows)
    return max((int(number) for number in had if number.isdecimal()), default=0) + 1


def _put_last(known: OrderedDict[K, V], key: K, value: V) -> None:
    """Remember something as used last; what was not used for longest is forgotten."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > _MOST_REMEMBERED:
        known.popitem(last=False)
