"""Procrastinate on PostgreSQL."""

from __future__ import annotations

from typing import Any

from procrastinate import App, PsycopgConnector

from bench.drive import contract, tasks

_CONCURRENCY = 10
app = App(connector=PsycopgConnector(conninfo=contract.url(), min_size=1, max_size=20))
TASKS: dict[str, Any] = {name: app.task(name=name, queue="bench")(each) for name, each in tasks.ASYNC.items()}


class Driver(contract.AsyncDriver):
    """Handlers are coroutines."""

    package = "procrastinate"
    settings = (
        f"psycopg, concurrency {_CONCURRENCY} (its default is 1), LISTEN on, finished jobs kept (its default)"
    )

    def setup(self) -> None:
        """Connect and install the schema."""
        self.run(self._open())

    async def _open(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    async def send(self, name: str, body: str) -> None:
        """Enqueue one job."""
        await TASKS[name].defer_async(body=body)

    def bulk(self, bodies: list[str]) -> None:
        """Enqueue many no-ops."""
        self.fill("noop", bodies)

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs in one statement."""
        self.run(TASKS[name].batch_defer_async(*({"body": body} for body in bodies)))

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process."""
        words = [
            contract.program("procrastinate"),
            "--app=bench.peers.procrastinate.app",
            "worker",
            "-q",
            "bench",
        ]
        return [*words, "-c", str(concurrency or _CONCURRENCY)]

    def unfinished(self) -> bool:
        """Whether a job waits or runs."""
        text = (
            "select exists (select from procrastinate_jobs"
            " where status in ('todo', 'doing') and queue_name = 'bench' and scheduled_at is null) as any"
        )
        return bool(self.run(app.connector.execute_query_one_async(text))["any"])

    def crowd(self, kind: str, count: int) -> None:
        """Rows of another queue, for next week, or finished."""
        queue, status, at = {
            "other": ("other", "todo", "null"),
            "scheduled": ("bench", "todo", "now() + interval '7 days'"),
            "archived": ("bench", "succeeded", "null"),
        }[kind]
        text = (
            "insert into procrastinate_jobs (queue_name, task_name, args, status, scheduled_at)"
            f" select '{queue}', 'noop', '{{\"body\": \"x\"}}', '{status}', {at}"
            f" from generate_series(1, {count})"
        )
        # As a dump that is read back would: the triggers would write an event and two notifications a row.
        trigger = "alter table procrastinate_jobs {} trigger user"
        for statement in (trigger.format("disable"), text, trigger.format("enable")):
            self.run(app.connector.execute_query_async(statement))

    def close(self) -> None:
        """Let go of the connections."""
        self.run(app.close_async())


driver = Driver
