"""How does a job in a child reach the store? It asks its worker, over the pipe between them.

Only for a transaction it has a connection of its own: no process can use another one's.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from windlass import connect, errors
from windlass.job import Keep, Lease, NewJob
from windlass.outcome import Done
from windlass.store.engine import Settlement
from windlass.store.running import Transacting
from windlass.worker.children import words
from windlass.worker.returned import kept

_lease = msgspec.json.Decoder(Lease)

# A transaction holds locks while its worker is asked what to write; one that is frozen never answers.
_MOST_SECONDS = 5.0


class Asking:
    """In the child: what its context asks for, one question a call. Each waits for its answer."""

    def __init__(self, say: Callable[[words.FromChild], None]) -> None:
        self._say = say
        self._numbers = itertools.count(1)
        self._open: dict[int, SimpleQueue[words.Answered]] = {}
        self._handlers: dict[str, Transacting] = {}
        # Whether the present job's result is kept.
        self.keep: Keep = True

    def hear(self, answer: words.Answered) -> None:
        """An answer came; from the thread that listens."""
        waiting = self._open.get(answer.number)
        if waiting is not None:
            waiting.put(answer)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """On a connection of this process; the worker says what completes the job, and hears that it is."""
        store, within = self._lent()
        with self._settling(), store.transaction(self._completion, within=within) as connection:
            yield connection

    @asynccontextmanager
    async def transaction_async(self) -> AsyncIterator[Any]:
        """The same on the running event loop."""
        store, within = await self.on_thread(self._lent)
        with self._settling():
            async with store.transaction_async(self._completion, within=within) as connection:
                yield connection

    def keep_result(self, value: Any) -> None:
        """What is kept as the job's result."""
        found = kept(value, self.keep)
        self._ask("keep_result", value=found.value, missing=found.missing)

    def enqueue(self, drafts: tuple[NewJob, ...]) -> None:
        """To be stored with the completion."""
        self._ask("enqueue", drafts=drafts)

    def progress(self, done: int | None, total: int | None, message: str | None) -> None:
        """How far the job has come."""
        self._ask("progress", done=done, total=total, message=message)

    def extend(self, seconds: float) -> tuple[float, datetime] | None:
        """The new end, by the clock that all processes of a machine share, and by the store's."""
        answer = self._ask("extend", seconds=seconds)
        return None if answer.deadline is None else (answer.ends, answer.deadline)

    def begin_once(self, key: str) -> str:
        """Begin a side effect, or say what became of it."""
        return self._ask("begin_once", key=key).word

    def end_once(self, key: str) -> None:
        """It is done."""
        self._ask("end_once", key=key)

    def undo_once(self, key: str) -> None:
        """It surely did not happen."""
        self._ask("undo_once", key=key)

    async def on_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        """For async handlers: the worker may take its time, the loop must not."""
        return await asyncio.to_thread(call, *args)

    def close(self) -> None:
        """Let go of the connections; no job runs any more."""
        for store in self._handlers.values():
            store.close()

    def _lent(self) -> tuple[Transacting, timedelta]:
        lent = self._ask("transaction")
        if lent.address not in self._handlers:
            self._handlers[lent.address] = connect.handlers(lent.address)
        return self._handlers[lent.address], lent.within or timedelta(0)

    def _completion(self) -> Settlement:
        told = self._ask("completion", most=_MOST_SECONDS).completion
        assert told is not None  # noqa: S101 - the answer to this question
        done = Done(told.value, missing=told.missing)
        return Settlement(_lease.decode(told.lease), done, told.ran, told.drafts, told.check_in, told.app)

    @contextmanager
    def _settling(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # wall: whatever undid the transaction goes on
            self._ask("undone")
            raise
        self._ask("completed")

    def _ask(self, verb: words.Verb, *, most: float | None = None, **given: Any) -> words.Answered:
        number = next(self._numbers)
        waiting: SimpleQueue[words.Answered] = SimpleQueue()
        self._open[number] = waiting
        try:
            self._say(words.Asked(number=number, verb=verb, **given))
            answer = waiting.get(timeout=most)
        except Empty:
            raise errors.StoreUnavailable(f"the worker has not answered for {most} s; try again") from None
        finally:
            del self._open[number]
        if answer.error:
            raise _error(answer)
        return answer


def _error(answer: words.Answered) -> Exception:
    """What the worker met, as its own context would have raised it."""
    kind = getattr(errors, answer.error, errors.Refused)
    error: Exception = kind.__new__(kind)
    Exception.__init__(error, answer.message)
    return error
