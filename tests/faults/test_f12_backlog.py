"""F-12: a backlog of low-priority jobs. Normal ones keep their latency; the import meets its limit."""

from __future__ import annotations

import pytest

from tests.worker.stores import on_both
from windlass import Queue, QueueFull

url = on_both
BACKLOG = 10_000


def test_normal_jobs_start_at_once_before_a_backlog_and_the_import_is_held_back(url: str) -> None:
    with Queue(url) as queue:

        @queue.job(priority=1, max_priority=2)
        def imported() -> None: ...

        @queue.job
        def normal() -> None: ...

        queue.store.set_setting("imported.hard_depth", str(BACKLOG))
        queue.enqueue_many(imported.draft() for _ in range(BACKLOG))
        with pytest.raises(QueueFull, match="of type imported"):
            imported.enqueue()
        with queue.worker(concurrency=4):
            waits = []
            for _ in range(10):
                job = queue.get(normal.enqueue().wait(30).id)
                assert job.started_at is not None
                waits.append((job.started_at - job.created_at).total_seconds())
        assert sorted(waits)[len(waits) // 2] < 1


def test_a_tenant_with_few_jobs_does_not_wait_for_one_with_many(url: str) -> None:
    with Queue(url) as queue:

        @queue.job
        def work() -> None: ...

        queue.enqueue_many(work.options(tenant="a").draft() for _ in range(BACKLOG))
        few = queue.enqueue_many(work.options(tenant="b").draft() for _ in range(10))
        with queue.worker(concurrency=4):
            for job in few:
                job.wait(30)
            left = queue.store.counts()
        waiting = sum(each.count for each in left.counts if each.view == "due")
        assert waiting > BACKLOG / 2
