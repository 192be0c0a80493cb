"""A job in a child completes together with its own writes, or neither happens: on both stores."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE, until
from tests.worker import transactionjobs
from tests.worker.stores import beside_a_table, on_both, sent
from tests.worker.test_children import AT_ONCE, error, lose_twice, result, run
from windlass.job import JobState, Reason
from windlass.queue import Queue
from windlass.store.jobs import Filter

url = on_both
queue = beside_a_table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_its_writes_its_result_and_what_it_enqueues_commit_with_the_completion(
    queue: Queue, url: str
) -> None:
    job = run(queue, transactionjobs.send, "ann")
    told = result(job)
    assert (sent(url), told["name"], told["pid"] != os.getpid()) == (["ann"], "ann", True)
    assert queue.store.count(Filter(types=("next",)), limit=9) == 1
    [attempt] = job.history
    assert attempt.outcome == "completed"
    assert attempt.seconds is not None


def test_the_same_for_a_coroutine(queue: Queue, url: str) -> None:
    assert result(run(queue, transactionjobs.send_async, "ann")) is None
    assert sent(url) == ["ann"]


def test_one_child_has_one_transaction_after_the_other(queue: Queue, url: str) -> None:
    send = queue.job(executor="process")(transactionjobs.send_async)
    with queue.worker(processes=1) as worker:
        for number in range(20):
            assert send.enqueue(f"{number:02}").wait(PATIENCE).state is JobState.COMPLETED
    assert worker.parts.settler.done == 20
    assert worker.parts.settler.failed == worker.parts.settler.late == 0
    assert sent(url) == [f"{number:02}" for number in range(20)]


@pytest.mark.parametrize("function", [transactionjobs.send, transactionjobs.send_async])
def test_a_suspect_has_its_transaction_too(queue: Queue, url: str, function: Callable[..., Any]) -> None:
    handle = queue.job(max_attempts=3)(function).enqueue("ann")
    lose_twice(queue, handle.id)
    with queue.worker():
        assert handle.wait(PATIENCE).state is JobState.COMPLETED
    assert sent(url) == ["ann"]


def test_an_exception_in_the_block_undoes_both(queue: Queue, url: str) -> None:
    assert error(run(queue, transactionjobs.fail_within)) == (Reason.EXCEPTION, "on second thoughts")
    assert sent(url) == []


def test_a_child_that_dies_in_the_block_has_written_nothing(queue: Queue, url: str) -> None:
    job = run(queue, transactionjobs.die_within, max_attempts=2)
    assert [attempt.error and attempt.error.reason for attempt in job.history] == [Reason.CHILD_CRASHED] * 2
    assert (job.state, sent(url)) == (JobState.DEAD, [])


def test_a_child_that_dies_before_it_has_told_of_the_commit_is_completed_once(queue: Queue, url: str) -> None:
    handle = queue.job(executor="process", retry=AT_ONCE)(transactionjobs.die_untold).enqueue()
    with queue.worker() as worker:
        until(lambda: worker.parts.settler.failed, "the worker settles what it takes for a crash")
        worker.stop()
    job = handle.get()
    assert (job.state, job.attempts, sent(url)) == (JobState.COMPLETED, 1, ["ann"])


@pytest.mark.parametrize("function", [transactionjobs.die_after, transactionjobs.fail_after])
def test_what_comes_after_the_block_cannot_fail_the_job(
    queue: Queue, url: str, function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    handle = queue.job(executor="process")(function).enqueue()
    with caplog.at_level(logging.WARNING, "windlass"), queue.worker() as worker:
        assert handle.wait(PATIENCE).state is JobState.COMPLETED
        worker.stop()
    assert sent(url) == ["ann"]
    assert (worker.parts.settler.done, worker.parts.settler.failed) == (1, 0)
    assert "job.failed_after_completion" in caplog.messages


def test_a_timeout_undoes_both(queue: Queue, url: str) -> None:
    assert error(run(queue, transactionjobs.linger, timeout=0.5))[0] is Reason.TIMEOUT
    assert sent(url) == []


def test_who_has_lost_the_lease_writes_nothing(queue: Queue, url: str) -> None:
    table = "windlass_jobs" if url.startswith("sqlite") else "windlass.jobs"
    lost = queue.job(executor="process")(transactionjobs.give_away).enqueue(table)
    with queue.worker() as worker:
        while worker.parts.settler.failed == 0:
            worker.stopping.wait(0.01)
    assert sent(url) == []
    error = lost.get().error
    assert error is not None
    assert error.kind == "windlass.errors.LeaseLost"


def test_what_would_be_lost_after_the_commit_is_refused(queue: Queue, tmp_path: Path) -> None:
    told = tmp_path / "told"
    for number, executor in enumerate(("process", None)):
        options: dict[str, Any] = {"executor": executor} if executor else {}
        late = queue.job(name=f"late{number}", **options)(transactionjobs.come_too_late)
        with queue.worker() as worker:
            handle = late.options(payload_ref=str(told)).enqueue()
            assert handle.result(PATIENCE) == "before"
            worker.stop()
        assert told.read_text() == "refused 2"
        told.unlink()


# A file has no password.
@pytest.mark.parametrize("url", ["postgres-15"], indirect=True)
def test_a_password_in_the_address_is_seen_by_nobody(
    queue: Queue, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), Queue(f"{url}&password=hunter2") as with_password:
        told = result(run(with_password, transactionjobs.tell_all))
    assert queue.store.count(Filter(), limit=9) == 1
    assert "hunter2" not in "".join(told) + caplog.text
