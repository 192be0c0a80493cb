"""Celery on Redis, with the settings that its documentation names for work that must not be lost."""

from __future__ import annotations

import secrets
from typing import Any

import redis
from celery import Celery

from bench.drive import contract, tasks

app = Celery("bench", broker=contract.url())
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)
TASKS: dict[str, Any] = {name: app.task(name=name)(function) for name, function in tasks.SYNC.items()}


class Driver(contract.Driver):
    """Handlers run in the children of a prefork pool."""

    package = "celery"
    settings = (
        "Redis, `task_acks_late`, `task_reject_on_worker_lost`, no results; prefork with one child a process,"
        " 100 threads for the jobs that wait"
    )

    def setup(self) -> None:
        """Connect."""
        self._redis = redis.Redis.from_url(contract.url())

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        TASKS[name].delay(body)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [contract.program("celery"), "-A", "bench.peers.celery:app", "worker", "-l", "ERROR"]
        words += ["-n", f"{secrets.token_hex(4)}@%h"]
        pool = (
            ["-P", "prefork", "-c", "1"] if concurrency is None else ["-P", "threads", "-c", str(concurrency)]
        )
        return words + pool

    def unfinished(self) -> bool:
        """Whether a message waits or is not acknowledged."""
        return bool(self._redis.llen("celery") or self._redis.hlen("unacked"))

    def crowd(self, kind: str, count: int) -> None:
        """Another queue is another list."""
        raise contract.Cannot(f"{count} {kind} jobs: another queue is another Redis list")


driver = Driver
