"""How do requests that come at one moment share a commit, without a thread for each?

The event loop only puts a call into the line. One thread takes all that stand there, makes their drafts, and
stores them in one transaction; meanwhile the next ones line up. A call is answered after that commit, and
whatever one of them brought does not fail the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from windlass.errors import StoreBusy, StoreUnavailable
from windlass.job import Job, NewJob
from windlass.queue import Queue
from windlass.store.protocol import Enqueued, Filter, Store

log = logging.getLogger("windlass.server")

Make = Callable[[], Sequence[NewJob]]
_MOST_CALLS = 500
_MOST_JOBS = 2_000
_MOST_FOUND = 1_000


class Stored(NamedTuple):
    """What became of the jobs of one call; and those that were there before, by id, as they stand now."""

    done: Sequence[Enqueued]
    before: Mapping[str, Job]


# What hears of a call's end: what is stored, or why nothing is.
Told = Callable[[Stored | Exception], None]


class _Call:
    """The jobs of one request, and what became of them."""

    __slots__ = ("drafts", "error", "make", "stored", "told", "weight")

    def __init__(self, make: Make, told: Told, weight: int) -> None:
        self.make = make
        self.told = told
        self.weight = weight
        self.drafts: Sequence[NewJob] = ()
        self.stored = _NOTHING
        self.error: Exception | None = None


class Intake:
    """The line in which jobs wait for the next commit."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._waiting: list[_Call] = []
        # Whether the thread writes, or is about to.
        self._busy = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="windlass-intake")

    def put(self, make: Make, told: Told, weight: int = 1) -> None:
        """Store what `make` drafts, all or none; `told` hears of it on the loop, after the durable commit.

        `make` runs where the store may be waited for.
        """
        call = _Call(make, told, weight)
        with self._lock:
            self._waiting.append(call)
            begins, self._busy = not self._busy, True
        if begins:
            loop = asyncio.get_running_loop()
            # Not at once: others come at the same moment.
            loop.call_soon(self._thread.submit, self._write_all, loop)

    async def accept(self, make: Make, weight: int = 1) -> Stored:
        """The same for who waits: comes back after the durable commit."""
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self.put(make, partial(_settle, answer), weight)
        return await answer

    def close(self) -> None:
        """Let go of the thread; what it writes is written to the end."""
        self._thread.shutdown()

    # --- on the thread ---

    def _write_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write for group after group, until nobody waits; the loop tells each of them what became of it."""
        while group := self._take():
            try:
                away = self._write(group)
            except Exception as error:  # noqa: BLE001 # wall: nobody waits for an answer that never comes
                away = StoreUnavailable(f"the jobs could not be stored: {error!r}")
                _fail(group, away)
            if away is not None:
                group += self._all_who_wait()
                # They waited for the same store, which has just been found away.
                _fail(group, away)
            # A loop that has ended waits for nothing.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_tell, group)

    def _take(self) -> list[_Call]:
        """The first calls of the line, as many as one transaction takes well."""
        jobs = count = 0
        with self._lock:
            while count < len(self._waiting) and count < _MOST_CALLS and jobs < _MOST_JOBS:
                jobs += self._waiting[count].weight
                count += 1
            group, self._waiting = self._waiting[:count], self._waiting[count:]
            self._busy = bool(group)
        return group

    def _all_who_wait(self) -> list[_Call]:
        with self._lock:
            fallen, self._waiting = self._waiting, []
        return fallen

    def _write(self, group: list[_Call]) -> StoreBusy | StoreUnavailable | None:
        """Write for all of them; answers the error if the store cannot be had."""
        away = None
        try:
            ready = [call for call in group if self._drafted(call)]
            if ready:
                self._store(ready)
        except (StoreBusy, StoreUnavailable) as error:
            _fail(group, error)
            away = error
        # Some may have been stored before the store went away.
        self._look_at_known(group)
        if any(each.due for call in group for each in call.stored.done):
            self._queue.wakeup.notify()
        return away

    def _drafted(self, call: _Call) -> bool:
        try:
            call.drafts = call.make()
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 # wall: what one call brought must not fail the others
            call.error = error
            return False
        return True

    def _store(self, calls: list[_Call]) -> None:
        """All in one transaction; if something in it is refused, each half alone, and so on."""
        try:
            answers = self._queue.store.enqueue([draft for call in calls for draft in call.drafts])
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 # wall: what one call brought must not fail the others
            if len(calls) == 1:
                calls[0].error = error
                return
            half = len(calls) // 2
            self._store(calls[:half])
            self._store(calls[half:])
            return
        place = 0
        for call in calls:
            call.stored = Stored(answers[place : place + len(call.drafts)], {})
            place += len(call.drafts)

    def _look_at_known(self, calls: list[_Call]) -> None:
        """How those jobs stand that were there before: all of the group in one look."""
        known = [call for call in calls if not all(each.created for each in call.stored.done)]
        if not known:
            return
        try:
            before = standing(self._queue.store, [each for call in known for each in call.stored.done])
        except Exception as error:  # noqa: BLE001 # wall: it is about these calls alone
            for call in known:
                call.error = copy.copy(error)
            return
        for call in known:
            call.stored = Stored(call.stored.done, before)


def standing(store: Store, done: Sequence[Enqueued]) -> dict[str, Job]:
    """How those jobs stand that were there before."""
    ids = tuple({each.id for each in done if not each.created})
    # A group may hold more than one look finds.
    looks = (ids[start : start + _MOST_FOUND] for start in range(0, len(ids), _MOST_FOUND))
    return {job.id: job for part in looks for job in store.find(Filter(ids=part), limit=len(part)).jobs}


def _fail(calls: Sequence[_Call], error: StoreBusy | StoreUnavailable) -> None:
    """What has neither been stored nor refused shares the fate of the store."""
    for call in calls:
        if not call.stored.done and call.error is None:
            call.error = copy.copy(error)


def _tell(group: Sequence[_Call]) -> None:
    for call in group:
        try:
            call.told(call.stored if call.error is None else call.error)
        except Exception:  # wall: an answer that cannot be sent must not keep back the others
            log.exception("server.untold")


def _settle(answer: asyncio.Future[Stored], stored: Stored | Exception) -> None:
    # A caller that hung up has cancelled its future; its job is stored all the same.
    if answer.done():
        return
    if isinstance(stored, Exception):
        answer.set_exception(stored)
    else:
        answer.set_result(stored)


_NOTHING = Stored((), {})
