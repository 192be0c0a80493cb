"""Requests share a commit; what was stored of it is told to workers, whatever becomes of the rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

from tests.waiting import PATIENCE
from windlass.clock import uuid7
from windlass.errors import StoreUnavailable
from windlass.job import NewJob
from windlass.queue import Queue
from windlass.server.group_commit import RequestGroups, Stored
from windlass.store.engine import Enqueued
from windlass.store.group_commit import Withdrawn


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
    groups = RequestGroups(cast("Queue", queue))
    jobs = [NewJob(id=uuid7(), type="a", payload=b"{}") for _ in range(2)]

    async def send() -> list[Any]:
        sent = (groups.accept(lambda job=job: [job]) for job in jobs)  # type: ignore[misc]
        return await asyncio.gather(*sent, return_exceptions=True)

    first, second = asyncio.run(send())
    groups.close()
    assert ([each.id for each in first.done], type(second)) == (queue.taken, StoreUnavailable)
    assert queue.notified == 1


class Held(Failing):
    """Stands for a queue whose store takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self.begun.set()
        assert self.go.wait(PATIENCE)
        self.sizes.append(len(jobs))
        return [Enqueued(job.id, None, created=True, due=False) for job in jobs]


def test_who_comes_while_others_are_written_for_shares_the_next_commit() -> None:
    queue = Held()
    groups = RequestGroups(cast("Queue", queue))

    async def send() -> list[Stored]:
        first = asyncio.create_task(groups.accept(a_job))
        await asyncio.to_thread(queue.begun.wait, PATIENCE)
        others = [asyncio.create_task(groups.accept(a_job)) for _ in range(3)]
        await asyncio.sleep(0)
        queue.go.set()
        return await asyncio.gather(first, *others)

    stored = asyncio.run(send())
    groups.close()
    assert queue.sizes == [1, 3]
    assert len({each.id for answer in stored for each in answer.done}) == 4


def test_a_post_that_waits_too_long_is_answered_and_is_never_begun_afterwards() -> None:
    queue = Held()
    since: list[float | None] = []
    groups = RequestGroups(cast("Queue", queue), patience=0.4, doubt=since.append)

    async def send() -> list[Any]:
        begun = asyncio.create_task(groups.accept(a_job))
        await asyncio.to_thread(queue.begun.wait, PATIENCE)
        return list(await asyncio.gather(begun, groups.accept(a_job), return_exceptions=True))

    begun, unbegun = asyncio.run(send())
    queue.go.set()
    groups.close()
    assert "may or may not be stored" in str(begun)
    assert "nothing was stored" in str(unbegun)
    # Of the second nothing was ever written.
    assert queue.sizes == [1]
    assert since


def test_all_who_wait_are_answered_as_soon_as_the_store_is_known_to_be_away() -> None:
    queue = Held()
    groups = RequestGroups(cast("Queue", queue), patience=PATIENCE)

    async def send() -> list[Any]:
        sent = [asyncio.create_task(groups.accept(a_job)) for _ in range(3)]
        await asyncio.to_thread(queue.begun.wait, PATIENCE)
        sent += [asyncio.create_task(groups.accept(a_job)) for _ in range(3)]
        await asyncio.sleep(0)
        groups.refuse_all()
        return await asyncio.gather(*sent, return_exceptions=True)

    answers = asyncio.run(send())
    queue.go.set()
    groups.close()
    told = ["may or may not be stored" in str(each) for each in answers]
    assert told == [True, True, True, False, False, False]


def test_who_has_left_is_dropped_and_the_others_of_the_group_are_stored() -> None:
    queue = Held()
    groups = RequestGroups(cast("Queue", queue))
    gone = threading.Event()

    async def send() -> list[Any]:
        first = asyncio.create_task(groups.accept(a_job))
        await asyncio.to_thread(queue.begun.wait, PATIENCE)
        others = [asyncio.create_task(groups.accept(a_job, gone.is_set)) for _ in range(2)]
        others.append(asyncio.create_task(groups.accept(a_job)))
        await asyncio.sleep(0)
        gone.set()
        queue.go.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    first, *left, stays = asyncio.run(send())
    groups.close()
    assert len(first.done) == len(stays.done) == 1
    assert {type(each) for each in left} == {Withdrawn}
    assert queue.sizes == [1, 1]


def test_who_is_cancelled_does_not_keep_back_the_others() -> None:
    queue = Held()
    groups = RequestGroups(cast("Queue", queue))

    async def send() -> Stored:
        first = asyncio.create_task(groups.accept(a_job))
        await asyncio.to_thread(queue.begun.wait, PATIENCE)
        first.cancel()
        queue.go.set()
        return await groups.accept(a_job)

    stored = asyncio.run(send())
    groups.close()
    assert [each.created for each in stored.done] == [True]


def test_however_many_are_sent_again_at_once_each_is_told_how_its_jobs_stand() -> None:
    batches = [[a_job()[0] for _ in range(100)] for _ in range(12)]
    with Queue("sqlite:///:memory:") as queue:
        groups = RequestGroups(queue)

        async def send() -> list[Stored]:
            sent = (groups.accept(lambda jobs=jobs: jobs, weight=len(jobs)) for jobs in batches)  # type: ignore[misc]
            return await asyncio.gather(*sent)

        async def send_twice() -> tuple[list[Stored], list[Stored]]:
            return await send(), await send()

        first, again = asyncio.run(send_twice())
        groups.close()
    assert all(each.created for answer in first for each in answer.done)
    for jobs, answer in zip(batches, again, strict=True):
        assert {job.id for job in jobs} <= answer.before.keys()


def a_job() -> list[NewJob]:
    return [NewJob(id=uuid7(), type="a", payload=b"{}")]
