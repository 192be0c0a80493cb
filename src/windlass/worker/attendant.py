"""Who does for a running handler what it asks of its context?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any

from windlass.clock import Clock
from windlass.job import NewJob
from windlass.outcome import Done, Raised
from windlass.store.protocol import Settlement, Store
from windlass.worker.returned import returned
from windlass.worker.run import Run


class Attendant:
    """Stands between one run's context and the store."""

    def __init__(self, run: Run, store: Store, *, on_extend: Callable[[float], None], clock: Clock) -> None:
        self._run = run
        self._store = store
        self._on_extend = on_extend
        self._clock = clock

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """The store's transaction for this run; after its commit the job is completed."""
        with self._store.transaction(self._completion, within=self._left()) as connection:
            yield connection
        self._run.complete()

    @asynccontextmanager
    async def transaction_async(self) -> AsyncIterator[Any]:
        """The same on the running event loop."""
        async with self._store.transaction_async(self._completion, within=self._left()) as connection:
            yield connection
        self._run.complete()

    def keep_result(self, value: Any) -> None:
        """What is kept as the job's result; raises what a return of it would have raised."""
        kept = returned(value)
        if isinstance(kept, Raised):
            raise kept.exception
        self._run.result = kept.value

    def enqueue(self, drafts: tuple[NewJob, ...]) -> None:
        """To be stored with the completion."""
        self._run.enqueues += drafts

    def progress(self, done: int, total: int | None) -> None:
        """Written with the worker's next look, once a second."""
        self._run.progress = (done, total)

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

    def _completion(self) -> Settlement:
        run = self._run
        seconds = run.ran(self._clock.monotonic())
        ran = None if seconds is None else timedelta(seconds=seconds)
        return Settlement(run.lease, Done(run.result), ran, run.enqueues)

    def _left(self) -> timedelta:
        return timedelta(seconds=max(0.001, self._run.ends - self._clock.monotonic()))
