"""What does Windlass look like at work? Six kinds of jobs, and somebody who keeps asking for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from windlass.context import Context
from windlass.errors import FatalError, RetryableError
from windlass.loop import Loop
from windlass.policy import Retry
from windlass.queue import Queue
from windlass.registry import SHELL, shell_handler


def make_queue(url: str | None = None) -> Queue:
    """A queue with the demo's handlers."""
    queue = Queue(url)
    queue.registry.add(shell_handler())
    queue.job(name="demo.email", retry=Retry(base=2, cap=30, jitter=1), timeout="10s")(send_email)
    queue.job(name="demo.report", timeout="1m")(build_report)
    queue.job(name="demo.fetch", max_attempts=3, retry=Retry(kind="fixed", base=5, jitter=0))(fetch_page)
    queue.job(name="demo.video", timeout="2m", priority=2)(convert_video)
    queue.job(name="demo.invoice", max_attempts=3)(print_invoice)
    return queue


def send_email(ctx: Context, to: str, subject: str) -> str:
    """A server that does not always answer: some attempts fail, and a later one succeeds."""
    ctx.wait_cancelled(random.uniform(0.05, 0.3))
    if random.random() < _UNLUCKY:
        raise ConnectionError("the mail server did not answer")
    return f"sent {subject!r} to {to}"


def build_report(ctx: Context, account_id: int) -> dict[str, Any]:
    """Ordinary work with a result that `windlass show` tells."""
    ctx.wait_cancelled(random.uniform(0.2, 1.0))
    return {"account": account_id, "rows": random.randint(10, 5000)}


async def fetch_page(url: str) -> int:
    """A coroutine: hundreds of these wait at the same time on one thread."""
    await asyncio.sleep(random.uniform(0.1, 2.0))
    if random.random() < _UNLUCKY:
        raise RetryableError(f"{url} answered 503", delay=3)
    return 200


def convert_video(ctx: Context, name: str) -> str:
    """A long one: cancel it with `windlass cancel`, or stop the worker, and see it end early."""
    for percent in range(0, 100, 25):
        ctx.log.info("video.converted", extra={"percent": percent})
        if ctx.wait_cancelled(random.uniform(1, 4)):
            return f"stopped at {percent} %"
    return f"{name} converted"


def print_invoice(number: int) -> None:
    """A poison job: no further attempt can help, so it goes to the dead letters at once."""
    raise FatalError(f"invoice {number} has no address")


class Producer:
    """Keeps a modest trickle of demo jobs going, as long as they are wanted."""

    def __init__(self, queue: Queue, types: Collection[str], *, wanted: Callable[[], bool]) -> None:
        """`types`: what the worker runs; shell jobs may not be among them."""
        self._queue = queue
        self._types = types
        self._wanted = wanted
        self._sent = 0
        self.loop = Loop("demo", self.tick, every=timedelta(seconds=2), jitter=0.5)

    def tick(self) -> None:
        """Enqueue the next job; the first ones show each kind once."""
        if not self._wanted():
            return
        kinds = tuple(name for name in _KINDS if name in self._types)
        weights = [_WEIGHTS[name] for name in kinds]
        name = kinds[self._sent] if self._sent < len(kinds) else random.choices(kinds, weights)[0]
        self._sent += 1
        options: dict[str, Any] = {"delay": random.choice((None, None, 20))} if name == "demo.report" else {}
        self._queue.enqueue(name, _KINDS[name](), **options)


_UNLUCKY = 0.25
_KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "demo.email": lambda: {"to": f"user{random.randint(1, 99)}@example.com", "subject": "Your order"},
    "demo.report": lambda: {"account_id": random.randint(1, 99)},
    "demo.fetch": lambda: {"url": f"https://example.com/page/{random.randint(1, 99)}"},
    SHELL: lambda: {"command": "echo hello from the shell"},
    "demo.video": lambda: {"name": f"holiday-{random.randint(1, 99)}.mov"},
    "demo.invoice": lambda: {"number": random.randint(1000, 9999)},
}
_WEIGHTS = {"demo.email": 8, "demo.report": 4, "demo.fetch": 8, SHELL: 3, "demo.video": 1, "demo.invoice": 1}
