"""RQ on Redis."""

from __future__ import annotations

import redis
from rq import Queue, Retry

from bench.drive import contract


class Driver(contract.Driver):
    """Each job runs in a process of its own, which is forked for it."""

    package = "rq"
    settings = (
        "Redis, the default worker (a fork a job), `Retry(3)` so that a job whose worker died may run again"
    )

    def setup(self) -> None:
        """Connect."""
        self._redis = redis.Redis.from_url(contract.url())
        self._queue = Queue(connection=self._redis)

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        self._queue.enqueue(f"bench.drive.tasks.{name}", body, retry=Retry(3))

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs in one pipeline."""
        function = f"bench.drive.tasks.{name}"
        self._queue.enqueue_many(
            [Queue.prepare_data(function, args=(body,), retry=Retry(3)) for body in bodies]
        )

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        if concurrency is not None and concurrency > 1:
            raise contract.Cannot("runs one job at a time a process")
        return [contract.program("rq"), "worker", "--url", contract.url(), "--quiet"]

    def unfinished(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._queue.count or self._queue.started_job_registry.get_job_count(cleanup=False))

    def crowd(self, kind: str, count: int) -> None:
        """Another queue is another list."""
        raise contract.Cannot(f"{count} {kind} jobs: another queue is another Redis list")


driver = Driver
