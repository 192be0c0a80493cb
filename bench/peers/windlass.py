"""Windlass, on SQLite or PostgreSQL by the URL alone."""

from __future__ import annotations

import sys

from bench.drive import contract, tasks
from windlass import JobState, Queue
from windlass.store.protocol import Filter

queue = Queue(contract.url())
HANDLERS = {name: queue.job(name=name)(function) for name, function in tasks.ASYNC.items()}
_UNFINISHED = Filter(types=tasks.NAMES, states=(JobState.PENDING, JobState.PROCESSING))
_WEEK = 7 * 86_400
_CHUNK = 10_000


@queue.job(name="other")
async def other(body: str) -> None:
    """A type that no worker here serves."""


class Windlass(contract.Driver):
    """Handlers are coroutines; everything is at its defaults."""

    settings = "defaults: `async def` handlers, 100 slots, an answer after a durable commit"

    def setup(self) -> None:
        """The first use makes the tables."""
        self.unfinished()

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        HANDLERS[name].enqueue(body)

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs."""
        queue.enqueue_many(HANDLERS[name].draft(body) for body in bodies)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [
            sys.executable,
            "-m",
            "windlass",
            "worker",
            "start",
            "bench.peers.windlass:queue",
            "--no-shell",
        ]
        words += ["--types", ",".join(tasks.NAMES)]
        return words if concurrency is None else [*words, "--concurrency", str(concurrency)]

    def unfinished(self) -> bool:
        """Whether a job is pending or processing."""
        return queue.store.count(_UNFINISHED, limit=1) > 0

    def crowd(self, kind: str, count: int) -> None:
        """Rows of another type, or for next week."""
        if kind == "archived":
            raise contract.Cannot("measured by `make growth`")
        job = other.options(delay=_WEEK) if kind == "scheduled" else other
        for start in range(0, count, _CHUNK):
            queue.enqueue_many(job.draft("x") for _ in range(min(_CHUNK, count - start)))

    def close(self) -> None:
        """Let go of the store."""
        queue.close()

    def version(self) -> str:
        """This tree."""
        return "this tree"


driver = Windlass
