"""Requests share a commit; what was stored of it is told to workers, whatever becomes of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from windlass.clock import uuid7
from windlass.errors import StoreUnavailable
from windlass.job import NewJob
from windlass.queue import Queue
from windlass.server.intake import Intake, Stored
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


class Taking(Failing):
    """Stands for a queue whose store takes everything."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [Enqueued(job.id, None, created=True, due=False) for job in jobs]


def a_job() -> list[NewJob]:
    return [NewJob(id=uuid7(), type="a", payload=b"{}")]


def test_an_answer_that_cannot_be_told_keeps_nobody_waiting() -> None:
    intake = Intake(cast("Queue", Taking()))

    def broken(*_: object) -> None:
        raise OSError("nobody is there")

    async def send() -> Stored:
        intake.put(a_job, broken)
        return await intake.accept(a_job)

    assert [each.created for each in asyncio.run(send()).done] == [True]
    intake.close()


def test_who_comes_while_answers_are_told_is_written_for_as_well() -> None:
    intake = Intake(cast("Queue", Taking()))

    async def send() -> Stored:
        later: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()

        def put_another(*_: object) -> None:
            intake.put(a_job, lambda stored, _: later.set_result(stored))

        intake.put(a_job, put_another)
        async with asyncio.timeout(30):
            return await later

    assert [each.created for each in asyncio.run(send()).done] == [True]
    intake.close()
