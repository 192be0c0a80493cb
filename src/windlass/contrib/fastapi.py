"""How does a FastAPI or Starlette application enqueue jobs, and run them beside its requests?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Unpack

from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from windlass.queue import Queue
from windlass.queue.options import WorkerOptions

_STATE = "windlass"

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(queue: Queue, *, worker: bool = True, **options: Unpack[WorkerOptions]) -> Lifespan:
    """What goes to `FastAPI(lifespan=...)`: the queue for `get_queue`, and a worker while the server runs.

    Every process of the server has its worker. `worker=False` leaves the work to `windlass worker start`.
    """

    @contextlib.asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        setattr(app.state, _STATE, queue)
        if not worker:
            # A store that cannot be used is noticed when the server starts, not by its first request.
            await asyncio.to_thread(queue.open)
            yield
            return
        working = queue.worker(**options)
        # Starting touches the store, and stopping waits for running jobs: neither may hold up the loop.
        await asyncio.to_thread(working.__enter__)
        try:
            yield
        finally:
            await asyncio.to_thread(working.__exit__, None, None, None)

    return live


def get_queue(connection: HTTPConnection) -> Queue:
    """A dependency: `queue: Annotated[Queue, Depends(get_queue)]`."""
    queue: Queue = getattr(connection.app.state, _STATE)
    return queue
