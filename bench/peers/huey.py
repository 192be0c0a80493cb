"""Huey on SQLite, with every commit on disk."""

from __future__ import annotations

from typing import Any

from huey import SqliteHuey

from bench.drive import contract, tasks

huey = SqliteHuey(name="bench", filename=contract.url(), fsync=True)
TASKS: dict[str, Any] = {name: huey.task(name=name)(function) for name, function in tasks.SYNC.items()}


class Driver(contract.Driver):
    """Handlers run on threads of the consumer."""

    package = "huey"
    settings = (
        "SQLite in WAL mode with `fsync=True`; one worker thread and a poll every 0.1 s"
        " (its defaults; with more threads it drains less)"
    )

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        TASKS[name](body)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one consumer process."""
        threads = str(concurrency or 1)
        return [
            contract.program("huey_consumer"),
            "bench.peers.huey.huey",
            "-q",
            "-w",
            threads,
            "-k",
            "thread",
        ]

    def unfinished(self) -> bool:
        """Whether one waits; Huey deletes a job before it runs, so its store never shows what is done."""
        return bool(huey.pending_count())

    def crowd(self, kind: str, count: int) -> None:
        """Rows of another queue in the same file, or for next week."""
        if kind == "archived":
            raise contract.Cannot("keeps no finished jobs")
        text = {
            "other": "insert into task (queue, data, priority) select 'other', zeroblob(400), 0 from numbers",
            "scheduled": "insert into schedule (queue, data, timestamp)"
            " select 'bench', zeroblob(400), unixepoch() + 604800 from numbers",
        }[kind]
        numbers = "with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ?) "
        with huey.storage.db(commit=True) as cursor:
            cursor.execute(numbers + text, (count,))

    def close(self) -> None:
        """Let go of the file."""
        huey.storage.close()


driver = Driver
