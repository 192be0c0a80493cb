"""Oban for Python on PostgreSQL. It needs Python 3.12."""

from __future__ import annotations

from typing import Any

from oban import Oban, worker
from oban.schema import install

from bench.drive import contract, tasks

_SLOTS = 10


def _worker(name: str, function: Any) -> Any:
    async def process(_: Any, job: Any) -> None:
        await function(job.args["body"])

    # A worker process finds a class by the path that is stored with the job.
    return worker(queue="default")(type(name, (), {"process": process, "__module__": __name__}))


WORKERS: dict[str, Any] = {name: _worker(name, function) for name, function in tasks.ASYNC.items()}
globals().update(WORKERS)


class Driver(contract.AsyncDriver):
    """Handlers are coroutines."""

    package = "oban"
    settings = (
        "psycopg, uvloop, `oban start` with 10 slots (as in its guide),"
        " finished jobs kept for a day (its default)"
    )

    def setup(self) -> None:
        """Connect and install the schema."""
        self.run(self._open())

    async def _open(self) -> None:
        self._pool = await Oban.create_pool(contract.url(), min_size=10, max_size=10)
        await install(self._pool)
        self._oban = Oban(pool=self._pool)

    async def send(self, name: str, body: str) -> None:
        """Enqueue one job."""
        await self._oban.enqueue(WORKERS[name].new({"body": body}))

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs by one call."""
        self.run(self._oban.enqueue_many([WORKERS[name].new({"body": body}) for body in bodies]))

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [contract.program("oban"), "start", "--dsn", contract.url(), "--log-level", "WARNING"]
        return [*words, "--queues", f"default:{concurrency or _SLOTS}", "--cron-modules", __name__]

    def unfinished(self) -> bool:
        """Whether a job waits or runs."""
        text = (
            "select exists (select from oban_jobs where queue = 'default'"
            " and state in ('available', 'executing', 'retryable'))"
        )
        return bool(self.run(self._one(text)))

    async def _one(self, text: str) -> Any:
        async with self._pool.connection() as connection:
            row = await (await connection.execute(text)).fetchone()
            return row and row[0]

    def crowd(self, kind: str, count: int) -> None:
        """Rows of another queue, for next week, or completed."""
        queue, state, later = {
            "other": ("other", "available", 0),
            "scheduled": ("default", "scheduled", 7),
            "archived": ("default", "completed", 0),
        }[kind]
        text = (
            "insert into oban_jobs (state, queue, worker, args, scheduled_at, completed_at)"
            f" select '{state}', '{queue}', 'bench.peers.oban.noop', '{{\"body\": \"x\"}}',"
            f" timezone('UTC', now()) + {later} * interval '1 day', timezone('UTC', now())"
            f" from generate_series(1, {count}) returning true"
        )
        self.run(self._one(text))

    def close(self) -> None:
        """Let go of the connections."""
        self.run(self._pool.close())


driver = Driver
