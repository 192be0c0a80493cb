"""How do requests that come at one moment share a commit, without a thread for each?

The event loop only puts a call into the line. One thread takes all that stand there, makes their drafts, and
stores them in one transaction; meanwhile the next ones line up. A call is answered after that commit, and
whatever one of them brought does not fail the others.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from windlass.errors import StoreBusy, StoreUnavailable
from windlass.job import NewJob
from windlass.queue import Queue
from windlass.store.protocol import Enqueued

Make = Callable[[], Sequence[NewJob]]
_MOST_CALLS = 500
_MOST_JOBS = 2_000


class _Call:
    """The jobs of one request, and what became of them."""

    __slots__ = ("answer", "answers", "drafts", "error", "make", "weight")

    def __init__(self, make: Make, weight: int, answer: asyncio.Future[list[Enqueued]]) -> None:
        self.make = make
        self.weight = weight
        self.answer = answer
        self.drafts: Sequence[NewJob] = ()
        self.answers: list[Enqueued] = []
        self.error: Exception | None = None


class Intake:
    """The line in which jobs wait for the next commit."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: list[_Call] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="windlass-intake")
        self._writing: asyncio.Task[None] | None = None

    async def accept(self, make: Make, weight: int = 1) -> list[Enqueued]:
        """Store what `make` drafts, all or none; comes back after the durable commit."""
        loop = asyncio.get_running_loop()
        call = _Call(make, weight, loop.create_future())
        self._waiting.append(call)
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
        return await call.answer

    def close(self) -> None:
        """Let go of the thread; what it writes is written to the end."""
        self._thread.shutdown()

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group = self._take()
                try:
                    away = await loop.run_in_executor(self._thread, self._write, group)
                except Exception as error:  # noqa: BLE001 # wall: nobody waits for an answer that never comes
                    away = StoreUnavailable(f"the jobs could not be stored: {error!r}")
                    _fail(group, away)
                if away is not None:
                    # They waited for the same store, which has just been found away.
                    _fail(self._waiting, away)
                    group, self._waiting = group + self._waiting, []
                for call in group:
                    _tell(call)
        finally:
            self._writing = None

    def _take(self) -> list[_Call]:
        """The first calls of the line, as many as one transaction takes well."""
        jobs = count = 0
        while count < len(self._waiting) and count < _MOST_CALLS and jobs < _MOST_JOBS:
            jobs += self._waiting[count].weight
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    # --- on the thread ---

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
        if any(each.due for call in group for each in call.answers):
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
            call.answers = answers[place : place + len(call.drafts)]
            place += len(call.drafts)


def _fail(calls: Sequence[_Call], error: StoreBusy | StoreUnavailable) -> None:
    """What has neither been stored nor refused shares the fate of the store."""
    for call in calls:
        if not call.answers and call.error is None:
            call.error = copy.copy(error)


def _tell(call: _Call) -> None:
    # A caller that hung up has cancelled its future; its job is stored all the same.
    if call.answer.done():
        return
    if call.error is not None:
        call.answer.set_exception(call.error)
    else:
        call.answer.set_result(call.answers)
