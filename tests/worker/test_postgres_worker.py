"""Does a worker on PostgreSQL do its work, and go on by itself when the server goes away?"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.servers import postgres
from tests.waiting import PATIENCE
from windlass.job import JobState
from windlass.queue import Queue
from windlass.store.jobs import Filter

UNFINISHED = (JobState.PENDING, JobState.PROCESSING)


@pytest.fixture(params=postgres.MAJORS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres.fresh(request.param) as url:
        yield url


def test_jobs_of_every_kind_run_with_nothing_changed_but_the_url(url: str) -> None:
    with Queue(url, shell=True) as queue:  # noqa: S604 - one of the kinds

        @queue.job
        def add(a: int, b: int) -> int:
            return a + b

        @queue.job
        async def greet(name: str) -> str:
            return f"hello {name}"

        @queue.job(max_attempts=1)
        def fail() -> None:
            raise ValueError("boom \0 with a NUL")

        with queue.worker():
            handles = [add.enqueue(1, 2), greet.enqueue("ä"), queue.enqueue("shell", {"command": "echo hi"})]
            failed = fail.enqueue()
            for handle in (*handles, failed):
                handle.wait(timeout=PATIENCE)
        assert [handle.get().state for handle in handles] == [JobState.COMPLETED] * 3
        assert handles[0].result() == 3
        dead = failed.get()
        assert dead.state is JobState.DEAD
        assert dead.error is not None
        assert dead.error.message.startswith("boom")


def test_nothing_is_lost_when_the_server_is_killed_twice_under_load() -> None:
    with postgres.running(15, durable=True) as server, Queue(server.new_database()) as queue:
        ran: Counter[int] = Counter()
        some = threading.Event()

        @queue.job
        async def count(number: int) -> None:
            ran[number] += 1
            some.set()

        pause = threading.Event()
        with queue.worker():
            for first in (0, 3_000):
                some.clear()
                queue.enqueue_many(count.draft(number) for number in range(first, first + 3_000))
                assert some.wait(PATIENCE)
                server.kill()
                server.start()
                # While the worker still has it to find out.
                count.enqueue(-1)
            for _ in range(int(PATIENCE / 0.1)):
                if _left(queue) == 0:
                    break
                pause.wait(0.1)
        assert _left(queue) == 0
        assert set(ran) == {-1, *range(6_000)}


def _left(queue: Queue) -> int:
    return queue.store.count(Filter(states=UNFINISHED), limit=10)
