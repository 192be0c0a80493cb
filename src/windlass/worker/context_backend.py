"""Carry out what a running handler asks of its context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any

from windlass.clock import Clock
from windlass.errors import Refused
from windlass.job import MAX_PROGRESS_MESSAGE, NewJob
from windlass.observe import tracing
from windlass.outcome import Done, clean
from windlass.store.engine import Settlement
from windlass.store.running import Said
from windlass.store.store import Store
from windlass.worker.run import Run, kept, settlement


class ContextBackend:
    """Between one run's context and the store."""

    def __init__(
        self, run: Run, store: Store, *, on_extend: Callable[[float], None], clock: Clock, app: str = ""
    ) -> None:
        self._run = run
        self._app = app
        self._store = store
        self._on_extend = on_extend
        self._clock = clock
        self._said = Said(0)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """The store's transaction for this run; after its commit the job is completed."""
        with (
            self._settling(),
            self._store.handlers().transaction(self.completion, within=self._left()) as connection,
        ):
            yield connection

    @asynccontextmanager
    async def transaction_async(self) -> AsyncIterator[Any]:
        """The same on the running event loop."""
        with self._settling():
            async with self._store.handlers().transaction_async(
                self.completion, within=self._left()
            ) as connection:
                yield connection

    def lend(self) -> tuple[str, timedelta]:
        """For a child, which has connections of its own: where the store is, and how long it may take."""
        return self._store.shared_address(), self._left()

    def completion(self) -> Settlement:
        """What is written as the last thing in the handler's transaction, which is about to be committed."""
        run = self._run
        run.completing = True
        return settlement(
            run, Done(run.result, missing=run.result_missing), self._clock.monotonic(), self._app
        )

    def completed(self) -> None:
        """The transaction is committed, and with it the job's completion."""
        self._run.completed = True

    def undone(self) -> None:
        """The transaction came to nothing."""
        self._run.completing = False

    def keep_result(self, value: Any) -> None:
        """What is kept as the job's result; raises what a return of it would have raised."""
        found = kept(value, self._run.handler.result)
        self.keep(found.value, found.missing)

    def keep(self, result: bytes | None, missing: str | None = None) -> None:
        """The same for what is JSON already, or why it cannot be."""
        self._check_open("set_result")
        self._run.result = result
        self._run.result_missing = missing

    def enqueue(self, drafts: tuple[NewJob, ...]) -> None:
        """To be stored with the completion."""
        self._check_open("enqueue")
        self._run.enqueues += tracing.carrying(drafts)

    def progress(self, done: int | None, total: int | None, message: str | None) -> None:
        """Written with the worker's next look, once a second; what is left out stays as it was."""
        before = self._said
        if done is None:
            done, total = before.done, before.total
        message = before.message if message is None else clean(message, MAX_PROGRESS_MESSAGE)
        self._run.progress = self._said = Said(done, total, message or None)

    def extend(self, seconds: float) -> tuple[float, datetime] | None:
        """The new end by our steady clock and by the store's; None if the job was told to stop."""
        ends = self._clock.monotonic() + seconds
        if not self._run.extend(ends):
            return None
        self._on_extend(ends)
        return ends, self._run.store_time(ends)

    def begin_once(self, key: str) -> str:
        """Begin a side effect, or say what became of it."""
        return self._store.begin_once(self._run.lease, key).value

    def end_once(self, key: str) -> None:
        """It is done."""
        self._store.end_once(self._run.lease, key)

    def undo_once(self, key: str) -> None:
        """It surely did not happen."""
        self._store.undo_once(self._run.lease, key)

    async def on_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        """For async handlers: the store may wait, the loop must not."""
        return await asyncio.to_thread(call, *args)

    @contextmanager
    def _settling(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # wall: whatever undid the transaction goes on
            self.undone()
            raise
        self.completed()

    def _check_open(self, verb: str) -> None:
        if self._run.completed:
            # It would be lost without a word.
            raise Refused(f"the job is completed; ctx.{verb}() belongs into the block of ctx.transaction()")

    def _left(self) -> timedelta:
        return timedelta(seconds=max(0.001, self._run.ends - self._clock.monotonic()))
