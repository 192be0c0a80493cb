"""PgQueuer on PostgreSQL through asyncpg, its fastest driver.

Its command does not start with typer 0.29 (a log level stays a text), hence the older pin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.drive import contract, tasks


@asynccontextmanager
async def make() -> AsyncIterator[PgQueuer]:
    """The application that `pgq run` serves."""
    connection = await asyncpg.connect(contract.url())
    app = PgQueuer(AsyncpgDriver(connection))
    for name, function in tasks.ASYNC.items():
        app.entrypoint(name)(_taking_jobs(function))
    yield app
    await connection.close()


def _taking_jobs(function: Any) -> Any:
    async def handler(job: Job) -> None:
        await function((job.payload or b"").decode())

    return handler


class Driver(contract.AsyncDriver):
    """Producers share a pool; workers are started by its own command."""

    package = "pgqueuer"
    settings = (
        "asyncpg, uvloop, `pgq run` with its default batches of 10, durable tables (its default),"
        " `pgq autovac` as its guide asks for"
    )
    batch = 10
    _queries: Queries
    _pool: Any

    def setup(self) -> None:
        """Connect and install the schema."""
        self.run(self._open())

    async def _open(self) -> None:
        self._pool = await asyncpg.create_pool(contract.url(), min_size=10, max_size=10)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        await self._queries.install()
        await self._queries.optimize_autovacuum()

    async def send(self, name: str, body: str) -> None:
        """Enqueue one job."""
        await self._queries.enqueue(name, body.encode())

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops in one statement."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs in one statement."""
        payloads = [body.encode() for body in bodies]
        self.run(self._queries.enqueue([name] * len(bodies), payloads, [0] * len(bodies)))

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [contract.program("pgq"), "run", "bench.peers.pgqueuer:make", "--log-level", "WARNING"]
        # A claim is never for more than a batch, so a batch must be as large as what shall run at once.
        return [*words, "--batch-size", str(max(self.batch, concurrency or 0))]

    def unfinished(self) -> bool:
        """Whether a row is left: what is done moves to the log."""
        text = "select exists (select from pgqueuer where entrypoint <> 'other')"
        return bool(self.run(self._pool.fetchval(text)))

    def crowd(self, kind: str, count: int) -> None:
        """Rows of another entrypoint, for next week, or in the log."""
        texts = {
            "other": "insert into pgqueuer (priority, status, entrypoint, payload, execute_after)"
            " select 0, 'queued', 'other', 'x', now() from generate_series(1, $1::int)",
            "scheduled": "insert into pgqueuer (priority, status, entrypoint, payload, execute_after)"
            " select 0, 'queued', 'noop', 'x', now() + interval '7 days' from generate_series(1, $1::int)",
        }
        if kind not in texts:
            raise contract.Cannot("keeps no finished jobs, only a log of events")
        self.run(self._pool.execute(texts[kind], count, timeout=600))

    def close(self) -> None:
        """Let go of the connections."""
        self.run(self._pool.close())


driver = Driver
