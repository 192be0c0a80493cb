"""Requests share a commit; what was stored of it is told to workers, whatever becomes of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from windlass.clock import uuid7
from windlass.errors import StoreUnavailable
from windlass.job import NewJob
from windlass.queue import Queue
from windlass.server.intake import Intake
from windlass.store.protocol import Enqueued


class Failing:
    """Stands for a queue whose store refuses two jobs at once, takes one, and then goes away."""

    def __init__(self) -> None:
        self.store = self.wakeup = self
        self.taken: list[str] = []
        self.notified = 0

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if len(jobs) > 1:
            raise ValueError("one of them is known")
        if self.taken:
            raise StoreUnavailable("away")
        self.taken += (job.id for job in jobs)
        return [Enqueued(job.id, None, created=True, due=True) for job in jobs]

    def notify(self) -> None:
        self.notified += 1


def test_workers_are_told_of_what_was_stored_before_the_store_went_away() -> None:
    queue = Failing()
    intake = Intake(cast("Queue", queue))
    jobs = [NewJob(id=uuid7(), type="a", payload=b"{}") for _ in range(2)]

    async def send() -> list[Any]:
        sent = (intake.accept(lambda job=job: [job]) for job in jobs)  # type: ignore[misc]
        return await asyncio.gather(*sent, return_exceptions=True)

    first, second = asyncio.run(send())
    intake.close()
    assert ([each.id for each in first.done], type(second)) == (queue.taken, StoreUnavailable)
    assert queue.notified == 1
