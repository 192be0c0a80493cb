"""How outcomes reach the store, also when the store is away."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.waiting import PATIENCE
from tests.worker.scene import Still, impatient
from windlass.context import Context
from windlass.errors import StoreBusy
from windlass.job import Error, JobState, Reason
from windlass.outcome import Again
from windlass.queue import Queue
from windlass.store.engine import Settlement


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else holds the write lock."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("begin immediate")
    try:
        yield
    finally:
        connection.execute("rollback")
        connection.close()


def test_what_finished_together_is_written_together(still: Still) -> None:
    still.build(threads=3)
    jobs = still.put(3)
    still.run_claimed(3)
    still.gate.let()
    still.until(still.parts.idle)
    assert len(still.parts.settler.queue) == 3
    still.parts.settler.tick()
    assert still.parts.settler.empty
    assert [still.job(job).state for job in jobs] == [JobState.COMPLETED] * 3
    assert len(still.parts.runs) == 0


def test_permits_are_let_go_behind_what_settled_their_work_however_much_else_waits(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("windlass.worker.settler._BATCH", 1)
    monkeypatch.setattr(still.store, "let_go", told.extend)
    still.build(threads=3)
    still.put(3)
    still.run_claimed(3)
    jobs = {run.token: run.lease.job for run in still.parts.runs.values()}
    still.gate.let()
    still.until(still.parts.idle)
    for token in jobs:
        still.parts.settler.let_go(token)
    for written in range(1, 4):
        still.parts.settler.tick()
        done = {token for token, job in jobs.items() if still.job(job).state is JobState.COMPLETED}
        assert (len(told), set(told)) == (written, done)
    assert still.parts.settler.empty


def test_a_lost_lease_is_logged_and_counted_and_changes_nothing(
    still: Still, caplog: pytest.LogCaptureFixture
) -> None:
    still.build()
    [job] = still.put()
    still.run_claimed(1)
    [run] = still.parts.runs.values()
    reaped = Again(timedelta(0), Error(Reason.WORKER_LOST, message="taken for dead"))
    assert still.store.settle([Settlement(run.lease, reaped, None)]) == []
    with caplog.at_level(logging.WARNING, "windlass.settler"):
        still.finish()
    [record] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.getMessage() == "lease.lost"
    assert record.__dict__["note"] == "lease already reclaimed; discarding this result"
    assert (still.parts.settler.late, still.parts.settler.done) == (1, 0)
    assert still.job(job).state is JobState.PENDING
    assert len(still.job(job).history) == 1


def test_a_store_that_is_away_keeps_outcomes_waiting_and_loses_none(still: Still, path: Path) -> None:
    still.build(threads=2)
    jobs = still.put(2)
    still.run_claimed(2)
    still.gate.let()
    still.until(still.parts.idle)
    with locked(path), impatient(still):
        for _ in range(2):
            with pytest.raises(StoreBusy):
                still.parts.settler.tick()
            assert len(still.parts.settler.queue) == 2
            assert len(still.parts.runs) == 2, "a waiting result is a lease that we know"
    still.settle()
    assert [still.job(job).state for job in jobs] == [JobState.COMPLETED] * 2


def test_a_flush_says_whether_everything_was_written(still: Still) -> None:
    still.build()
    assert still.parts.settler.flush(0.0)
    still.put()
    still.run_claimed(1)
    still.gate.let()
    still.until(still.parts.idle)
    assert not still.parts.settler.flush(0.01), "nobody writes: the loop stands still"
    still.settle()
    assert still.parts.settler.flush(0.0)


def test_jobs_run_on_while_the_file_is_locked_and_complete_once_when_it_is_free(
    queue: Queue, path: Path
) -> None:
    entered, release = threading.Event(), threading.Event()
    runs: list[int] = []

    @queue.job
    def work(ctx: Context) -> str:
        runs.append(ctx.attempt)
        entered.set()
        release.wait(PATIENCE)
        return "done meanwhile"

    @queue.job
    async def later() -> str:
        return "after"

    with queue.worker() as worker:
        handle = work.enqueue()
        assert entered.wait(PATIENCE)
        with locked(path):
            release.set()
            pause = threading.Event()
            pause.wait(3)
            assert not worker.parts.settler.flush(0)
            assert handle.state is JobState.PROCESSING
        assert handle.result(PATIENCE) == "done meanwhile"
        assert later.enqueue().result(PATIENCE) == "after"
    job = handle.get()
    assert (job.attempts, job.claims, len(job.history)) == (1, 1, 1)
    assert runs == [1]
    assert [worker.state for worker in queue.store.workers()] == ["stopped"], "nobody was taken for dead"
