"""A running job that is cancelled stops within two seconds, whatever runs it, on both stores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker import canceljobs
from tests.worker.stores import on_both
from tests.worker.test_children import PATIENCE
from windlass.job import Job, JobState
from windlass.queue import Queue

url = on_both
WITHIN_SECONDS = 2.0
# A busy machine may take longer once; what is slow by itself is slow each time.
_TRIES = 3

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


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_handler_stops_within_two_seconds(url: str, kind: str, tmp_path: Path) -> None:
    function, options = KINDS[kind]
    with Queue(url) as queue:
        job_type = queue.job(name="stops", **options)(function)

        def enqueue(begun: Path) -> str:
            return str(job_type.enqueue(str(begun)).id)

        assert_stops(queue, enqueue, tmp_path)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_cancelled_command_stops_within_two_seconds(url: str, kind: str, tmp_path: Path) -> None:
    with Queue(url, shell=True) as queue:  # noqa: S604 - a command of ours

        def enqueue(begun: Path) -> str:
            return queue.enqueue("shell", {"command": COMMANDS[kind].format(begun=begun)}).id

        assert_stops(queue, enqueue, tmp_path)


def assert_stops(queue: Queue, enqueue: Callable[[Path], str], folder: Path) -> None:
    """Cancel jobs as they run; the record tells how long each took to end."""
    took = []
    with queue.worker():
        for number in range(_TRIES):
            begun = folder / f"begun{number}"
            job_id = enqueue(begun)
            until(begun.exists, "it runs")
            queue.cancel(job_id)
            job = queue.wait(job_id, PATIENCE)
            assert job.state is JobState.CANCELLED
            assert [entry.outcome for entry in job.history] == ["cancelled"]
            took.append(seconds_to_end(job))
            if took[-1] <= WITHIN_SECONDS:
                return
    raise AssertionError(f"it took {took} seconds")


def seconds_to_end(job: Job) -> float:
    [asked] = [change.at for change in job.changes if change.verb == "cancel"]
    assert job.finished_at is not None
    return (job.finished_at - asked).total_seconds()
