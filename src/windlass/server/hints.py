"""How does a waiting request learn that something may have happened in the store?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.server.parts import Parts


@contextlib.asynccontextmanager
async def hints(parts: Parts) -> AsyncIterator[asyncio.Event]:
    """An event that is set at each hint, for as long as the block lasts."""
    loop, hint = asyncio.get_running_loop(), asyncio.Event()
    wakeup = parts.queue.wakeup

    def wake() -> None:
        # A hint may be on its way when the loop is already closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(hint.set)

    await parts.run(wakeup.subscribe, wake)
    try:
        yield hint
    finally:
        await parts.run(wakeup.unsubscribe, wake)


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, so long; whether it happened."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
