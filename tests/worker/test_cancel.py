"""A running job that is cancelled stops, whatever runs it, on both stores; our own pauses allow 2 s."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE, until
from tests.worker import canceljobs
from tests.worker.stores import on_both
from windlass.job import JobState
from windlass.queue import Queue
from windlass.worker import shell, timeouts
from windlass.worker.children import child
from windlass.worker.heartbeat import LOOK_EVERY

url = on_both
WITHIN_SECONDS = 2.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits of time are Linux's")

KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "thread": (canceljobs.spin, {}),
    "thread that could look": (canceljobs.careless, {}),
    "thread that looks": (canceljobs.careful, {}),
    "coroutine": (canceljobs.wait, {}),
    "child": (canceljobs.spin, {"executor": "process"}),
    "child that could look": (canceljobs.careless, {"executor": "process"}),
    "child that is deaf": (canceljobs.deaf, {"executor": "process"}),
    "coroutine in a child": (canceljobs.wait, {"executor": "process"}),
}
COMMANDS = {
    "command": "touch {begun}; sleep 1000",
    "command that is deaf": "trap '' TERM; touch {begun}; while true; do sleep 1000; done",
}


def test_what_we_wait_for_ourselves_is_within_two_seconds() -> None:
    """A look tells of the request; then one who can see it has a moment, and one who is deaf is killed."""
    for moment in (timeouts._TIME_TO_LOOK, child.LOOK_SECONDS, shell.TERM_SECONDS):  # noqa: SLF001
        assert LOOK_EVERY.total_seconds() + moment < WITHIN_SECONDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_handler_stops(url: str, kind: str, tmp_path: Path) -> None:
    function, options = KINDS[kind]
    with Queue(url) as queue:
        job_type = queue.job(name="stops", **options)(function)

        def enqueue(begun: Path) -> str:
            return str(job_type.enqueue(str(begun)).id)

        assert_stops(queue, enqueue, tmp_path)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_cancelled_command_stops(url: str, kind: str, tmp_path: Path) -> None:
    with Queue(url, shell=True) as queue:  # noqa: S604 - a command of ours

        def enqueue(begun: Path) -> str:
            return queue.enqueue("shell", {"command": COMMANDS[kind].format(begun=begun)}).id

        assert_stops(queue, enqueue, tmp_path)


def assert_stops(queue: Queue, enqueue: Callable[[Path], str], folder: Path) -> None:
    """Cancel a job as it runs: nothing of it is left, and its slot is free."""
    begun = folder / "begun"
    with queue.worker() as worker:
        job_id = enqueue(begun)
        until(begun.exists, "it runs")
        queue.cancel(job_id)
        job = queue.wait(job_id, PATIENCE)
        until(lambda: all(pool.busy == pool.held == 0 for pool in worker.parts.pools), "its slot is free")
    assert job.state is JobState.CANCELLED
    assert [entry.outcome for entry in job.history] == ["cancelled"]
