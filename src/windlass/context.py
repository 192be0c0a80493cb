"""What can a handler learn about the job that it runs?"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, Self

from windlass.checks import check_text
from windlass.clock import Clock
from windlass.errors import Refused, must_be
from windlass.job import MAX_KEY, Job, NewJob, named

log = logging.getLogger("windlass.job")

_MOST_STEPS = 2**53
_LONGEST_EXTENSION = 7 * 86_400


class Stopping(BaseException):
    """Raised inside a `def` handler whose job shall stop: past its deadline, cancelled, or at a shutdown.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it; `finally` blocks run.
    """


class Notice:
    """Whether a running job shall stop; the worker writes it, the handler's Context reads it."""

    # On the class: nearly every job is never stopped, and needs none of its own.
    stop = False
    lease_lost = False
    _event: threading.Event | None = None

    def give(self) -> None:
        """Ask the job to stop."""
        self.stop = True
        with _making_events:
            event = self._event
        if event is not None:
            event.set()

    def lose(self) -> None:
        """The job's lease is gone: whatever it does now, its result is dropped."""
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


class Backend(ABC):
    """What carries out the calls of a handler's context: a worker, or a child's pipe to one."""

    # Whether somebody must be asked for the store, which may take a moment.
    remote = False

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """See Context.transaction; after its commit the job is completed."""
        store, within = self.lend()
        with self._settling(), store.transaction(self.completion, within=within) as connection:
            yield connection

    @asynccontextmanager
    async def transaction_async(self) -> AsyncIterator[Any]:
        """The same on the running event loop."""
        store, within = await asyncio.to_thread(self.lend) if self.remote else self.lend()
        with self._settling():
            async with store.transaction_async(self.completion, within=within) as connection:
                yield connection

    @contextmanager
    def _settling(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # wall: whatever undid the transaction goes on
            self.undone()
            raise
        self.committed()

    @abstractmethod
    def lend(self) -> tuple[Any, timedelta]:
        """What opens the transaction, and how long it may take."""

    @abstractmethod
    def completion(self) -> Any:
        """What is written as the last thing in the handler's transaction, which is about to be committed."""

    @abstractmethod
    def committed(self) -> None:
        """The transaction is committed, and with it the job's completion."""

    @abstractmethod
    def undone(self) -> None:
        """The transaction came to nothing."""

    @abstractmethod
    def keep_result(self, value: Any) -> None:
        """See Context.set_result; raises what a return of it would have raised."""

    @abstractmethod
    def enqueue(self, drafts: tuple[NewJob, ...]) -> None:
        """See Context.enqueue."""

    @abstractmethod
    def progress(self, done: int | None, total: int | None, message: str | None) -> None:
        """See Context.progress."""

    @abstractmethod
    def extend(self, seconds: float) -> tuple[float, datetime] | None:
        """The new end by the machine's steady clock and by the store's; None if the job was told to stop."""

    @abstractmethod
    def once(self, key: str, step: OnceStep) -> str:
        """Begin a side effect, or say what became of it; it is done; or it surely did not happen."""


OnceStep = Literal["begin", "end", "undo"]


class Context:
    """The job's own view of itself while it runs. Handlers ask for one by annotating a parameter with it."""

    __slots__ = ("_check_draft", "_clock", "_ends", "_notice", "_worker", "deadline", "job", "log")

    def __init__(
        self,
        job: Job,
        notice: Notice,
        *,
        deadline: datetime,
        ends: float,
        clock: Clock,
        worker: Backend | None = None,
        check_draft: Callable[[object, str], object] | None = None,
    ) -> None:
        self.job = job
        self.deadline = deadline
        self.log = _JobLogger(log, named(job))
        self._notice = notice
        self._ends = ends
        self._clock = clock
        self._worker = worker
        self._check_draft = check_draft

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

    # --- with the completion ---

    def transaction(self) -> Transaction:
        """`with ctx.transaction() as conn:` your writes and the job's completion commit together, or neither.

        `conn` is a connection to the queue's own database: psycopg's on PostgreSQL, sqlite3's on SQLite. With
        `async with`, on PostgreSQL, an async one. When the block is left the job is completed; an exception
        in it undoes everything, and the attempt fails as ever. What comes after it cannot fail the job.
        """
        return Transaction(self._backend())

    def set_result(self, value: Any) -> None:
        """What `job.result()` gives after `transaction()`, which commits before the handler returns."""
        self._backend().keep_result(value)

    def enqueue(self, *drafts: NewJob) -> list[str]:
        """Enqueue drafts together with this job's completion, in one transaction; their ids.

        If the attempt fails, they are dropped; the next attempt enqueues its own. A draft that was made for
        another store is refused: enqueue it with the queue that made it.
        """
        for place, draft in enumerate(drafts):
            field = "draft" if len(drafts) == 1 else f"drafts[{place}]"
            if not isinstance(draft, NewJob):
                raise must_be(field, draft, "a draft, as made by .draft(...)")
            if self._check_draft is not None:
                self._check_draft(draft, field)
        self._backend().enqueue(drafts)
        return [draft.id for draft in drafts]

    # --- meanwhile ---

    def progress(self, done: int | None = None, of: int | None = None, *, message: str | None = None) -> None:
        """Say how far the job has come, and in a `message` what it does; what is left out stays as it was.

        Written at most once a second; shown by `windlass show` and on the job's page. A message of more than
        500 characters is cut; an empty one takes the last one away.
        """
        if done is None and (of is not None or message is None):
            raise must_be("done", done, "a whole number from 0 up, or left out beside message=")
        given: tuple[tuple[str, object], ...] = (("done", done or 0), ("of", of or 0))
        for name, value in given:
            if not isinstance(value, int) or not 0 <= value < _MOST_STEPS:
                raise must_be(name, value, "a whole number from 0 up; a text is given as message=")
        if done is not None and of is not None and done > of:
            raise must_be("done", done, f"at most {of}, of which it is a part")
        if message is not None and not isinstance(message, str):
            raise must_be("message", message, "a text")
        self._backend().progress(done, of, message)

    def extend(self, by: float | timedelta) -> bool:
        """Give this attempt so many seconds from now; False if it was told to stop already.

        The lease needs no such help: it is renewed for as long as the worker lives.
        """
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if not 0 < seconds <= _LONGEST_EXTENSION:
            raise must_be("by", by, f"between 0 and {_LONGEST_EXTENSION} seconds")
        extended = self._backend().extend(seconds)
        if extended is None:
            return False
        self._ends, self.deadline = extended
        return True

    def once(self, key: str) -> OnceGuard:
        """A guard for a side effect that shall happen once in all attempts of this job."""
        return OnceGuard(self._backend(), check_text("key", key, MAX_KEY))

    def _backend(self) -> Backend:
        if self._worker is None:
            raise Refused("this context was made without a worker; only a running job can do that")
        return self._worker

    def wait_cancelled(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the job shall stop; False if `timeout` (seconds) was over first. For `def` handlers.

        A pause in a handler's work written with this ends at once when the job shall stop.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return self._notice.wait(seconds)


class Transaction:
    """What `ctx.transaction()` gives: a block for `with` or `async with`."""

    def __init__(self, worker: Backend) -> None:
        self._worker = worker
        self._block: Any = None

    def __enter__(self) -> Any:
        self._block = self._worker.transaction()
        return self._block.__enter__()

    def __exit__(self, *raised: object) -> Any:
        return self._block.__exit__(*raised)

    async def __aenter__(self) -> Any:
        self._block = self._worker.transaction_async()
        return await self._block.__aenter__()

    async def __aexit__(self, *raised: object) -> Any:
        return await self._block.__aexit__(*raised)


class OnceGuard:
    """What `ctx.once(key)` gives: a block for `with` or `async with` that knows what happened before.

    Left without an exception, the side effect counts as done. Left with one, or with the whole process, it is
    in doubt; unless `undo()` has said that it surely did not happen.
    """

    def __init__(self, worker: Backend, key: str) -> None:
        self._worker = worker
        self._undone = False
        self.key = key
        self.answer = ""

    @property
    def new(self) -> bool:
        """Nobody has begun it: do it now."""
        return self.answer == "new"

    @property
    def done(self) -> bool:
        """An earlier attempt has done it: leave it."""
        return self.answer == "done"

    @property
    def in_doubt(self) -> bool:
        """An earlier attempt began it and never said how it ended: ask the other side, or decide."""
        return self.answer == "in doubt"

    def undo(self) -> None:
        """It surely did not happen: the next attempt is told that it is new."""
        self._undone = True

    def __enter__(self) -> Self:
        self.answer = self._worker.once(self.key, "begin")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self.done and (self._undone or kind is None):
            self._worker.once(self.key, "undo" if self._undone else "end")

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.to_thread(self.__exit__, *raised)


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields to what the handler says, and keeps the handler's own."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
