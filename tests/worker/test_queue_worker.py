"""A worker inside the caller's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE
from windlass import Context, FatalError, InvalidValue, JobState, JobUnsuccessful, Queue


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{tmp_path}/jobs.db") as queue:
        yield queue


def test_jobs_run_as_long_as_the_block_lasts(queue: Queue) -> None:
    @queue.job
    def add(one: int, two: int) -> int:
        return one + two

    @queue.job
    async def repeat(ctx: Context, text: str, times: int = 2) -> dict[str, str]:
        return {"id": ctx.id, "text": text * times}

    @queue.job
    def fail() -> None:
        raise FatalError("no")

    early = add.enqueue(1, 2)
    with queue.worker(concurrency=4):
        assert early.result(timeout=PATIENCE) == 3
        late = repeat.enqueue("ab")
        assert late.result(timeout=PATIENCE) == {"id": late.id, "text": "abab"}
        with pytest.raises(JobUnsuccessful, match=r"dead \(exception\).*FatalError: no"):
            fail.enqueue().result(timeout=PATIENCE)
    assert add.enqueue(1, 2).state is JobState.PENDING


def test_a_handler_enqueues_further_jobs(queue: Queue) -> None:
    last = threading.Event()

    @queue.job
    def count_down(number: int) -> None:
        if number:
            count_down.enqueue(number - 1)
        else:
            last.set()

    with queue.worker():
        count_down.enqueue(3)
        assert last.wait(PATIENCE)


def test_hooks_are_called_around_the_work(queue: Queue) -> None:
    said: list[str] = []

    @queue.on_worker_start
    def start() -> None:
        said.append("start")

    @queue.on_worker_stop
    def stop() -> None:
        said.append("stop")

    @queue.job
    def work() -> None:
        said.append("work")

    with queue.worker():
        work.enqueue().wait(timeout=PATIENCE)
    assert said == ["start", "work", "stop"]


def test_types_are_in_the_catalogue_once_a_worker_has_started(queue: Queue) -> None:
    @queue.job
    def work() -> None: ...

    with queue.worker():
        assert set(queue.store.types()) == {"work"}


def test_shell_commands_run_where_they_are_switched_on(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/jobs.db", shell=True) as queue, queue.worker():  # noqa: S604
        result = queue.enqueue("shell", {"command": ["echo", "hi"]}).result(timeout=PATIENCE)
    assert result["stdout"] == "hi\n"


def test_the_worker_stops_when_the_block_raises(queue: Queue) -> None:
    stopped = threading.Event()
    queue.on_worker_stop(stopped.set)

    @queue.job
    def work() -> None: ...

    with pytest.raises(ZeroDivisionError), queue.worker():
        raise ZeroDivisionError
    assert stopped.is_set()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"slots": 4}, "worker option must be one of threads, coroutines, .*got 'slots'"),
        ({"concurrency": 0}, "concurrency must be between 1 and 10000, got 0"),
        ({"concurrency": "4"}, "concurrency must be a whole number, got '4'"),
        ({"threads": True}, "threads must be a whole number, got True"),
        ({"lease": 59}, "lease must be between 60s and 3600s"),
        ({"lease": "long"}, "lease must be a duration"),
        ({"types": "work"}, "types must be a list of types or patterns"),
        ({"shell": 1}, 'shell must be True, False or "local", got 1'),
    ],
)
def test_a_wrong_worker_option_is_refused(queue: Queue, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint), queue.worker(**options):
        pass


def test_a_worker_serves_only_the_types_that_it_was_given(queue: Queue) -> None:
    @queue.job(name="mail.send")
    def send() -> None: ...

    @queue.job
    def report() -> None: ...

    unserved = report.enqueue()
    with queue.worker(types=["mail.*"]) as worker:
        assert worker.types == ("mail.send",)
        send.enqueue().wait(timeout=PATIENCE)
    assert unserved.state is JobState.PENDING
