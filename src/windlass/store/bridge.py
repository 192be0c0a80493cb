"""How does a synchronous verb speak over an async connection? From a thread, statement by statement."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Bridge:
    """Held by the verb on its thread: each call runs on the loop to which the connection belongs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and give its answer."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def across(work: Callable[[Bridge], T]) -> T:
    """Do the work on a thread while this loop runs its statements."""
    done = asyncio.ensure_future(asyncio.to_thread(work, Bridge(asyncio.get_running_loop())))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # The connection is the caller's: it goes back when our last statement has ended, and not before.
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        raise


@contextlib.asynccontextmanager
async def across_block(make: Callable[[], contextlib.AbstractContextManager[T]]) -> AsyncIterator[T]:
    """A synchronous block for async callers: entering and leaving it may wait, and do so on a thread."""
    block = make()
    entered = await across(lambda _: block.__enter__())
    try:
        yield entered
    except BaseException as error:  # wall: the block hears of whatever ends it, as `with` would tell it
        raised = (type(error), error, error.__traceback__)
        if not await across(lambda _: block.__exit__(*raised)):
            raise
    else:
        await across(lambda _: block.__exit__(None, None, None))
