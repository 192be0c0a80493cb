"""F-07: one message in twenty between workers and database is held up or costs its connection."""

from __future__ import annotations

import time

import pytest

from tests.faults.scene import Yard
from tests.servers.proxy import Proxy
from tests.waiting import until
from windlass.job import JobState
from windlass.store.protocol import Filter

pytestmark = pytest.mark.timeout(120)
JOBS = 300
THREADS = 8
# Long enough for a lost claim, which is tried again after a second, to cost less than that second.
ERRAND_SECONDS = 0.4


def test_f07_every_job_runs_and_none_is_doubled_while_messages_are_lost(yard: Yard, proxy: Proxy) -> None:
    yard.put(1)
    _bad_weather(proxy)
    with yard.queue.worker(threads=4) as worker:
        handles = [yard.work.enqueue(number) for number in range(1, JOBS)]
        yard.finish()
        _fair_weather(proxy)
        assert worker.parts.settler.late == 0
    assert yard.ran == dict.fromkeys(range(JOBS), 1)
    assert len({handle.id for handle in handles}) == JOBS - 1
    assert yard.store.count(Filter(states=(JobState.COMPLETED,)), limit=2 * JOBS) == JOBS
    assert yard.store.check() == []


def test_f07_seven_tenths_of_the_throughput_are_left_while_messages_are_lost(
    yard: Yard, proxy: Proxy
) -> None:
    spans: list[tuple[float, float]] = []

    @yard.queue.job
    def errand() -> None:
        begun = time.perf_counter()
        time.sleep(ERRAND_SECONDS)
        spans.append((begun, time.perf_counter()))

    def rate(count: int) -> float:
        """Errands a second, from the first start to the last end."""
        yard.queue.enqueue_many(errand.draft() for _ in range(count))
        until(lambda: len(spans) == count, "every errand ends")
        ran, spans[:] = list(spans), []
        return count / (max(end for _, end in ran) - min(begun for begun, _ in ran))

    with yard.queue.worker(threads=THREADS):
        fair = rate(10 * THREADS)
        _bad_weather(proxy)
        bad = rate(15 * THREADS)
        _fair_weather(proxy)
        yard.finish()
    assert proxy.harmed > 0
    assert bad >= 0.7 * fair


def _bad_weather(proxy: Proxy) -> None:
    proxy.stalled, proxy.cut = 0.04, 0.01


def _fair_weather(proxy: Proxy) -> None:
    proxy.stalled = proxy.cut = 0.0
