"""F-07: one message in twenty between workers and database is held up or costs its connection."""

from __future__ import annotations

import pytest

from tests.faults.scene import Yard
from tests.servers.proxy import Proxy
from windlass.job import JobState
from windlass.store.protocol import Filter

pytestmark = pytest.mark.timeout(120)
JOBS = 300


def test_f07_every_job_runs_and_none_is_doubled_while_messages_are_lost(yard: Yard, proxy: Proxy) -> None:
    yard.put(1)
    proxy.stalled, proxy.cut = 0.04, 0.01
    with yard.queue.worker(threads=4) as worker:
        handles = [yard.work.enqueue(number) for number in range(1, JOBS)]
        yard.finish()
        proxy.stalled = proxy.cut = 0.0
        assert worker.parts.settler.late == 0
    assert yard.ran == dict.fromkeys(range(JOBS), 1)
    assert len({handle.id for handle in handles}) == JOBS - 1
    assert yard.store.count(Filter(states=(JobState.COMPLETED,)), limit=2 * JOBS) == JOBS
    assert yard.store.check() == []
