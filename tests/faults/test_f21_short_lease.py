"""F-21: a typing error makes leases ten times shorter. Is it refused, and seen if it is forced?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from tests.observe.test_real_faults import hold
from tests.server.conftest import serving
from tests.worker.conftest import clock, queue, still
from tests.worker.scene import Still
from tests.worker.stores import on_both
from windlass import Queue, connect
from windlass.clock import ManualClock
from windlass.connect import Opened
from windlass.errors import InvalidValue
from windlass.job import JobState, Reason

__all__ = ["clock", "queue", "still"]

url = on_both
JOBS = 6
RUN_SECONDS = 60
DUPLICATES = {"WindlassDoneTwice"}


@pytest.fixture
def opened(url: str, clock: ManualClock) -> Iterator[Opened]:
    with closing(connect.open(url, clock=clock)) as opened:
        yield opened


def test_f21_a_lease_of_half_a_minute_is_refused(queue: Queue) -> None:
    refused = pytest.raises(InvalidValue, match="lease must be between 60s and 3600s, got '30s'")
    with refused, queue.worker(lease="30s"):
        pytest.fail("it works")

    @queue.job
    def work() -> None: ...

    queue.publish()
    with serving(queue) as house:
        api = house.caller()
        claim = {"worker": "w1", "types": ["work"]}
        refusal = api.post("/leases", json=claim | {"lease": "30s"})
        assert (refusal.status_code, refusal.json()["errors"][0]["field"]) == (400, "lease")
        assert api.post("/leases", json=claim | {"lease": "60s"}).status_code == 200


def test_f21_a_short_lease_that_is_forced_does_no_harm_as_long_as_it_is_renewed(still: Still) -> None:
    parts = still.build(threads=JOBS, lease=timedelta(seconds=30), unsafe_lease=True)
    jobs = still.put(JOBS)
    still.run_claimed(JOBS)
    for _ in range(RUN_SECONDS):
        still.pass_time(1)
        parts.reaper.work()
    still.finish()
    assert {(still.job(job).state, still.job(job).attempts) for job in jobs} == {(JobState.COMPLETED, 1)}
    assert (parts.reaper.reaped, parts.settler.late) == (0, 0)


@pytest.mark.parametrize(("seconds", "lost"), [(30, JOBS), (300, 0)])
def test_f21_a_short_lease_that_is_forced_and_not_renewed_lets_jobs_run_twice_and_an_alert_fires(
    still: Still, seconds: int, lost: int
) -> None:
    """The worker lives and beats, and its renewals do not arrive. A longer lease outlasts the jobs."""
    parts = still.build(threads=JOBS, lease=timedelta(seconds=seconds), unsafe_lease=True)
    jobs = still.put(JOBS)
    still.run_claimed(JOBS)
    other = Still(still.opened, still.clock)
    watching = other.build(threads=JOBS)
    try:
        for _ in range(RUN_SECONDS):
            other.pass_time(1)
            still.store.beat(parts.membership.id, parts._vitals())  # noqa: SLF001 - all but the renewals
            watching.reaper.work()
        watching.triggers.hint()
        other.run_claimed(lost)
        other.finish()
        still.finish()
        for each in (parts, watching):
            each.ledger.tick()
        still.store.take_sample(timedelta(0))
        runs = [entry.worker for job in jobs for entry in still.job(job).history]
        assert runs.count(watching.membership.id) == lost, "another worker has run them"
        assert parts.settler.late == lost, "and what the first one did was a duplicate"
        expired = [
            entry.number
            for job in jobs
            for entry in still.job(job).history
            if entry.error is not None and entry.error.reason is Reason.LEASE_EXPIRED
        ]
        assert expired == [1] * lost
        assert {still.job(job).state for job in jobs} == {JobState.COMPLETED}
        assert hold(still.store) & DUPLICATES == (DUPLICATES if lost else set())
    finally:
        other.close()
