"""Dramatiq on Redis."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.drive import contract, tasks

broker = RedisBroker(url=contract.url())
dramatiq.set_broker(broker)
ACTORS: dict[str, Any] = {
    name: dramatiq.actor(actor_name=name, broker=broker)(function) for name, function in tasks.SYNC.items()
}


class Driver(contract.Driver):
    """Handlers run on threads."""

    package = "dramatiq"
    settings = "Redis, 8 threads a process (its default), acknowledged after the work (its default)"

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        ACTORS[name].send(body)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [contract.program("dramatiq"), "bench.peers.dramatiq", "--processes", "1"]
        words += ["--threads", str(concurrency or 8), "--skip-logging"]
        return words

    def unfinished(self) -> bool:
        """Whether a message waits or is not acknowledged."""
        return bool(broker.client.hlen("dramatiq:default.msgs"))

    def crowd(self, kind: str, count: int) -> None:
        """Another queue is another list."""
        raise contract.Cannot(f"{count} {kind} jobs: another queue is another Redis list")


driver = Driver
