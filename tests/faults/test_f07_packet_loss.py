"""F-07: one message in twenty between workers and database is held up or costs its connection."""

from __future__ import annotations

import logging
import time

import pytest

from tests.faults.scene import CLAIM, Yard
from tests.servers.proxy import Proxy, Where
from tests.waiting import until
from windlass.job import JobState
from windlass.store.jobs import Filter

JOBS = 150
THREADS = 8
ROUNDS = 6
ERRANDS = 5 * THREADS
ERRAND_SECONDS = 0.1


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
    yard: Yard, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """What a lost claim costs is the pause after it, in which no slot is filled: added up, never measured."""
    errands: list[None] = []

    @yard.queue.job
    def errand() -> None:
        time.sleep(ERRAND_SECONDS)
        errands.append(None)

    yard.put(1)
    with caplog.at_level(logging.DEBUG, "windlass.loop"), yard.queue.worker(threads=THREADS):
        yard.finish()
        _bad_weather(proxy)
        for number in range(1, ROUNDS + 1):
            # By chance as well; this one surely.
            with proxy.failing(CLAIM, Where.BEFORE) as point:
                yard.queue.enqueue_many(errand.draft() for _ in range(ERRANDS))
                point.wait()
            until(lambda number=number: len(errands) >= number * ERRANDS, "every errand ends")  # type: ignore[misc] # bound early
        _fair_weather(proxy)
        yard.finish()
    assert proxy.harmed > 0
    failed = [each for each in caplog.records if each.getMessage() == "loop.tick_failed"]
    pauses = [each.__dict__["again_in"] for each in failed if each.__dict__.get("loop") == "claimer"]
    assert len(pauses) >= ROUNDS
    worked, idle = ROUNDS * ERRANDS * ERRAND_SECONDS, sum(pauses) * THREADS
    assert worked / (worked + idle) >= 0.7, f"{len(pauses)} lost claims cost {idle:.1f} of {worked:.1f} s"


def _bad_weather(proxy: Proxy) -> None:
    proxy.stalled, proxy.cut = 0.04, 0.01


def _fair_weather(proxy: Proxy) -> None:
    proxy.stalled = proxy.cut = 0.0
