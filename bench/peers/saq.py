"""SAQ on PostgreSQL."""

from __future__ import annotations

import os
from typing import Any

from psycopg_pool import AsyncConnectionPool
from saq.queue.postgres import PostgresQueue

from bench.drive import contract, tasks

_CONCURRENCY = "BENCH_CONCURRENCY"


def _queue() -> PostgresQueue:
    pool = AsyncConnectionPool(
        contract.url(), check=AsyncConnectionPool.check_connection, open=False, min_size=4, max_size=20
    )
    return PostgresQueue(pool=pool, name="bench", manage_pool_lifecycle=True)


def _taking_context(name: str, function: Any) -> tuple[str, Any]:
    async def handler(ctx: Any, *, body: str) -> None:  # noqa: ARG001 - the peer gives it
        await function(body)

    return name, handler


settings = {
    "queue": _queue(),
    "functions": [_taking_context(name, function) for name, function in tasks.ASYNC.items()],
    "concurrency": int(os.environ.get(_CONCURRENCY, "10")),
}


class Driver(contract.AsyncDriver):
    """Handlers are coroutines."""

    package = "saq"
    settings = "PostgreSQL through psycopg, concurrency 10 (its default), `retries=3` and `timeout=60` a job"

    def setup(self) -> None:
        """Connect, which makes the tables."""
        self._queue = _queue()
        self.run(self._queue.connect())

    async def send(self, name: str, body: str) -> None:
        """Enqueue one job."""
        await self._queue.enqueue(name, body=body, retries=3, timeout=60)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        chosen = [] if concurrency is None else [f"{_CONCURRENCY}={concurrency}"]
        return ["/usr/bin/env", *chosen, contract.program("saq"), "bench.peers.saq.settings", "--quiet"]

    def unfinished(self) -> bool:
        """Whether a job waits or runs."""
        text = (
            "select exists (select from saq_jobs where queue = 'bench'"
            " and status in ('new', 'queued', 'active')"
            " and scheduled <= extract(epoch from now()) + 60)"
        )
        return bool(self.run(self._one(text)))

    async def _one(self, text: str) -> Any:
        async with self._queue.pool.connection() as connection:
            row = await (await connection.execute(text)).fetchone()
            return row and row[0]

    def crowd(self, kind: str, count: int) -> None:
        """Rows of another queue, or for next week."""
        if kind == "archived":
            raise contract.Cannot("deletes finished jobs after ten minutes")
        queue, later = ("other", 0) if kind == "other" else ("bench", 604_800)
        text = (
            "insert into saq_jobs (key, job, queue, status, scheduled)"
            f" select gen_random_uuid()::text, decode(repeat('00', 300), 'hex'), '{queue}', 'queued',"
            f" extract(epoch from now()) + {later} from generate_series(1, {count}) returning true"
        )
        self.run(self._one(text))

    def close(self) -> None:
        """Let go of the connections."""
        self.run(self._queue.disconnect())


driver = Driver
