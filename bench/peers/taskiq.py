"""taskiq on Redis streams, the one of its Redis brokers that acknowledges."""

from __future__ import annotations

from typing import Any

import redis
from taskiq_redis import RedisStreamBroker

from bench.drive import contract, tasks

broker = RedisStreamBroker(url=contract.url())
TASKS: dict[str, Any] = {name: broker.task(task_name=name)(each) for name, each in tasks.ASYNC.items()}


class Driver(contract.AsyncDriver):
    """Handlers are coroutines."""

    package = "taskiq"
    settings = "Redis streams, one child a process, 100 coroutines at once (its default), no results"

    def setup(self) -> None:
        """Connect and make the stream's consumer group."""
        self._redis = redis.Redis.from_url(contract.url())
        self.run(broker.startup())

    async def send(self, name: str, body: str) -> None:
        """Enqueue one job."""
        await TASKS[name].kiq(body)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [contract.program("taskiq"), "worker", "bench.peers.taskiq:broker", "--workers", "1"]
        words += ["--max-async-tasks", str(concurrency or 100), "--log-level", "ERROR"]
        return words

    def unfinished(self) -> bool:
        """Whether an entry waits or is not acknowledged."""
        group: Any = self._redis.xinfo_groups("taskiq")[0]
        return bool(group["pending"] or group["lag"])

    def crowd(self, kind: str, count: int) -> None:
        """Another queue is another stream."""
        raise contract.Cannot(f"{count} {kind} jobs: another queue is another Redis stream")

    def close(self) -> None:
        """Let go of the connections."""
        self.run(broker.shutdown())


driver = Driver
