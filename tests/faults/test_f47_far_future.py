"""F-47: nothing is due, and yet jobs are not done: their time is far away. Can that be seen?"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from tests.observe.scene import parsed
from tests.worker.stores import on_both
from windlass import Queue
from windlass.job import JobState
from windlass.ops import Ops

url = on_both


def test_f47_jobs_of_a_far_future_are_shown_apart_from_those_that_are_due(url: str) -> None:
    with Queue(url) as queue:

        @queue.job
        def wait() -> None: ...

        jobs = [wait.options(at=datetime(2099, 12, 31, tzinfo=UTC)).enqueue() for _ in range(3)]
        with queue.worker() as worker:
            worker.drain()
        queue.store.take_sample(timedelta(0))
        depths: Counter[str] = Counter()
        for labels, value in parsed(Ops(queue.store).scrape())["windlass_queue_depth"]:
            depths[labels["view"]] += int(value)
        assert +depths == {"scheduled": 3}
        assert {job.get().state for job in jobs} == {JobState.PENDING}
