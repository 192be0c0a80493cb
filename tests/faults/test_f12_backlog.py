"""F-12: a backlog of low-priority jobs. Normal ones keep their latency; the import meets its limit."""

from __future__ import annotations

import pytest

from tests.waiting import PATIENCE
from tests.worker.stores import on_both
from windlass import Queue, QueueFull
from windlass.worker.pool import MOST_AHEAD

url = on_both
BACKLOG = 10_000


def test_normal_jobs_start_at_once_before_a_backlog_and_the_import_is_held_back(url: str) -> None:
    with Queue(url) as queue:
        ran: list[None] = []
        began_after: list[int] = []

        @queue.job(priority=1, max_priority=2)
        def imported() -> None:
            ran.append(None)

        @queue.job
        def normal() -> None:
            began_after.append(len(ran))

        queue.store.set_setting("imported.hard_depth", str(BACKLOG))
        queue.enqueue_many(imported.draft() for _ in range(BACKLOG))
        with pytest.raises(QueueFull, match="of type imported"):
            imported.enqueue()
        with queue.worker(concurrency=4):
            accepted_after = []
            for _ in range(5):
                job = normal.enqueue()
                accepted_after.append(len(ran))
                job.wait(PATIENCE)
        ahead = [began - accepted for accepted, began in zip(accepted_after, began_after, strict=True)]
        # A claim's worth may wait by then, and another one may be under way; nothing else goes before it.
        assert max(ahead) <= 3 * MOST_AHEAD < BACKLOG / 5, ahead


def test_a_tenant_with_few_jobs_does_not_wait_for_one_with_many(url: str) -> None:
    with Queue(url) as queue:
        ran: list[str] = []

        @queue.job
        def work(tenant: str) -> None:
            ran.append(tenant)

        queue.enqueue_many(work.options(tenant="a").draft("a") for _ in range(BACKLOG))
        few = queue.enqueue_many(work.options(tenant="b").draft("b") for _ in range(10))
        with queue.worker(concurrency=4):
            for job in few:
                job.wait(PATIENCE)
        assert ran.count("b") == 10
        # A thread that the system lets wait has its job overtaken by those of a claim or two.
        assert len(ran) - ran[::-1].index("b") <= 3 * MOST_AHEAD < BACKLOG / 5
