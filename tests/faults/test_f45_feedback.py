"""F-45: more workers on a slow dependency. Its limit holds, however many there are."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from tests.waiting import PATIENCE
from tests.worker.stores import on_both
from windlass import Queue

url = on_both


def test_more_workers_do_not_mean_more_calls_at_once(url: str) -> None:
    with Queue(url) as queue:
        lock = threading.Lock()
        running: list[int] = [0]
        most: list[int] = [0]

        @queue.job(limit_key="slow")
        def call() -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            threading.Event().wait(0.02)
            with lock:
                running[0] -= 1

        queue.limit("slow", concurrency=2)
        jobs = queue.enqueue_many(call.draft() for _ in range(30))
        with ExitStack() as workers:
            for _ in range(3):
                workers.enter_context(queue.worker(concurrency=5))
            for job in jobs:
                job.wait(PATIENCE)
        assert 1 <= most[0] <= 2
