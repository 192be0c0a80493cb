"""Handlers that run until somebody stops them; each says when it has begun. A child can import them."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

from windlass import Context


def spin(begun: str) -> None:
    Path(begun).touch()
    while True:
        pass


def careless(ctx: Context, begun: str) -> None:
    """Could look whether it shall stop, and does not."""
    assert not ctx.cancelled
    spin(begun)


def careful(ctx: Context, begun: str) -> None:
    Path(begun).touch()
    ctx.wait_cancelled()


async def wait(begun: str) -> None:
    await asyncio.to_thread(Path(begun).touch)
    await asyncio.sleep(1000)


def deaf(begun: str) -> None:
    """Hears no signal, and is in no Python code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(begun).touch()
    time.sleep(1000)  # noqa: TID251 - a handler may do as it likes
