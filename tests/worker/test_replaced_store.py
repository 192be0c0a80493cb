"""What do workers and producers do when another file is put in the place of a SQLite store?"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.worker.scene import LEASE, Still, another_worker
from windlass import Queue, connect
from windlass.clock import ManualClock, uuid7
from windlass.errors import StoreUnavailable
from windlass.job import Job, JobState, NewJob
from windlass.schedule import NewSchedule, Timing
from windlass.store.engine import Want
from windlass.store.store import Store

JOB = uuid7()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def still(path: Path) -> Iterator[Still]:
    clock = ManualClock()
    with contextlib.closing(connect.open(f"sqlite:///{path}", clock=clock)) as opened:
        made = Still(opened, clock)
        made.registry.add_schedule(
            NewSchedule(name="hourly", type="wait", timing=Timing(every=timedelta(hours=1)))
        )
        made.build()
        made.parts.publish()
        made.parts.live.tick()
        yield made
        made.close()


def replace(path: Path, fill: Callable[[Store], object] = lambda _: None) -> None:
    """Another store is put in the place of the one at this path: empty, or with what `fill` puts into it."""
    other = path.with_name("other.db")
    with contextlib.closing(connect.open(f"sqlite:///{other}", clock=ManualClock())) as opened:
        fill(opened.store)
    other.rename(path)


def notice(still: Still) -> None:
    """Another thread of the worker is the first to find the new file; the next use goes on with it."""
    with pytest.raises(StoreUnavailable, match="was replaced"):
        still.store.types()


def one_job(store: Store) -> None:
    store.enqueue([NewJob(id=JOB, type="wait", payload=b"{}")])


def test_a_worker_enters_its_types_and_schedules_into_the_new_file_at_its_next_tick(
    still: Still, path: Path
) -> None:
    assert [each.name for each in still.store.schedules()] == ["hourly"]
    replace(path)
    with pytest.raises(StoreUnavailable, match="was replaced"):
        still.parts.heartbeat.tick()
    still.parts.live.tick()
    assert [each.name for each in still.store.schedules()] == ["hourly"]
    assert "wait" in still.store.types()


def test_a_worker_reads_the_settings_of_the_new_file_at_its_next_tick(still: Still, path: Path) -> None:
    still.store.set_setting("wait.timeout", "1m")
    still.parts.live.refresh()
    assert still.parts.live.in_force["wait"].timeout == timedelta(minutes=1)
    replace(path)
    with pytest.raises(StoreUnavailable):
        still.parts.heartbeat.tick()
    still.parts.live.tick()
    assert still.parts.live.in_force["wait"].timeout != timedelta(minutes=1)


def test_a_worker_whose_store_was_replaced_says_so(
    still: Still, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    still.put(1)
    still.run_claimed(1)
    replace(path)
    with caplog.at_level(logging.WARNING), pytest.raises(StoreUnavailable):
        still.parts.heartbeat.tick()
    still.pass_time(2)
    notes = {record.msg: record.__dict__ for record in caplog.records}
    assert notes["worker.renamed"]["why"] == "the store's file was replaced"
    assert notes["lease.lost"]["note"] == "the store's file was replaced: this attempt is not in the new file"


def test_a_result_that_comes_after_the_replacement_says_so(
    still: Still, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    still.put(1)
    still.run_claimed(1)
    replace(path)
    with pytest.raises(StoreUnavailable):
        still.store.types()
    with caplog.at_level(logging.WARNING):
        still.finish()
    [lost] = [record for record in caplog.records if record.msg == "lease.lost"]
    assert lost.__dict__["note"] == "the store's file was replaced: this attempt is not in the new file"


def stored(still: Still) -> Job:
    found = still.store.get(JOB)
    assert found is not None
    return found


def test_a_worker_claims_from_the_new_file_only_after_it_has_joined_it(still: Still, path: Path) -> None:
    before = still.parts.membership.id
    replace(path, one_job)
    notice(still)
    still.parts.claimer.tick()
    assert (stored(still).state, stored(still).attempts) == (JobState.PENDING, 0)
    still.parts.heartbeat.tick()
    still.run_claimed(1)
    assert (stored(still).state, stored(still).attempts) == (JobState.PROCESSING, 1)
    [lease] = still.store.held_by(still.parts.membership.id)
    assert lease.id == JOB
    assert still.parts.membership.id != before
    assert still.store.orphans(limit=10) == []


def test_a_claim_that_is_the_first_to_find_the_new_file_takes_nothing(still: Still, path: Path) -> None:
    still.put(1)
    replace(path, one_job)
    with pytest.raises(StoreUnavailable, match="was replaced"):
        still.parts.claimer.tick()
    still.parts.claimer.tick()
    assert (stored(still).state, stored(still).attempts) == (JobState.PENDING, 0)


def test_a_claim_that_was_on_its_way_takes_nothing_from_the_new_file(still: Still, path: Path) -> None:
    standing = still.parts.membership
    want = Want(worker=standing.id, types={"wait": 1}, limit=1, lease=LEASE, generation=standing.generation)
    replace(path, one_job)
    notice(still)
    with pytest.raises(StoreUnavailable, match="nothing was claimed"):
        still.store.claim(want)
    assert (stored(still).state, stored(still).attempts) == (JobState.PENDING, 0)


def test_a_worker_that_the_new_file_knows_keeps_its_id_and_claims_after_its_next_beat(
    still: Still, path: Path
) -> None:
    known = still.parts.membership.id

    def fill(store: Store) -> None:
        store.join(another_worker(known))
        one_job(store)

    replace(path, fill)
    notice(still)
    still.parts.claimer.tick()
    assert stored(still).state is JobState.PENDING
    still.parts.heartbeat.tick()
    still.run_claimed(1)
    assert still.parts.membership.id == known
    assert stored(still).state is JobState.PROCESSING


def test_leases_that_the_new_file_brings_along_are_reaped(still: Still, path: Path) -> None:
    def fill(store: Store) -> None:
        one_job(store)
        store.claim(Want(worker="gone-1-aa", types={"wait": 1}, limit=1, lease=LEASE))

    replace(path, fill)
    notice(still)
    still.parts.heartbeat.tick()
    still.parts.reaper.work()
    back = stored(still)
    assert (back.state, back.attempts, back.losses) == (JobState.PENDING, 1, 1)


def test_a_producer_publishes_its_types_with_the_first_job_in_the_new_file(path: Path) -> None:
    with Queue(path) as queue:

        @queue.job
        def greet(name: str) -> None: ...

        greet.enqueue("ann")
        replace(path)
        with pytest.raises(StoreUnavailable):
            greet.enqueue("bob")
        greet.enqueue("cid")
        assert "greet" in queue.store.types()
