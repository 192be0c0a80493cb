"""FlexiQ on SQLite or PostgreSQL."""

from __future__ import annotations

import os
from typing import Any

from flexiq import Queue

from bench.drive import contract, tasks

_CONCURRENCY = "BENCH_CONCURRENCY"
_SLOTS = int(os.environ.get(_CONCURRENCY, "100"))
_TUNED: dict[str, Any] = {
    "workers": _SLOTS,
    "scheduler_poll_interval_ms": 10,
    # Far fewer than there are threads: what it claims beyond them it puts off, and drains next to nothing.
    # Without push dispatch, with which it sometimes stood still here.
    "scheduler_batch_size": 32,
}
_ON_POSTGRES = contract.url().startswith("postgresql:")
queue = (
    Queue(backend="postgres", db_url=contract.url(), **_TUNED)
    if _ON_POSTGRES
    else Queue(db_path=contract.url(), **_TUNED)
)
TASKS: dict[str, Any] = {name: queue.task(name=name)(function) for name, function in tasks.SYNC.items()}


@queue.task(name="other", queue="other")
def other(body: str) -> None:
    """A task whose queue no worker here serves."""


class Driver(contract.Driver):
    """Handlers run on threads."""

    package = "flexiq"
    settings = (
        "100 threads, polls every 10 ms (its default is 50), claims 32 at once (its default is 1);"
        " its SQLite commits are not on disk when they are answered (`synchronous=NORMAL`, not to be set)"
    )

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        TASKS[name].delay(body)

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs in one transaction."""
        queue.enqueue_many(name, [(body,) for body in bodies])

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        chosen = [] if concurrency is None else [f"{_CONCURRENCY}={concurrency}"]
        words = [
            contract.program("flexiq"),
            "worker",
            "--app",
            "bench.peers.flexiq:queue",
            "--queues",
            "default",
        ]
        return ["/usr/bin/env", *chosen, *words]

    def unfinished(self) -> bool:
        """Whether a job waits or runs."""
        counts = queue.stats_by_queue("default")
        return bool(counts["pending"] or counts["running"])

    def crowd(self, kind: str, count: int) -> None:
        """Jobs of another queue, or for next week."""
        if kind == "archived":
            raise contract.Cannot("no quick way to fill its archive")
        later = {"delay": 604_800.0} if kind == "scheduled" else {}
        for start in range(0, count, 10_000):
            queue.enqueue_many("other", [("x",)] * min(10_000, count - start), queue="other", **later)


driver = Driver
