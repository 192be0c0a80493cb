"""When does `windlass up` restart its process, and when does it leave it alone?"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windlass.cli import fleet
from windlass.cli.fleet import Restart
from windlass.cli.session import Session
from windlass.clock import ManualClock
from windlass.worker.worker import Worker

GRACE = timedelta(seconds=7)
PATIENCE_SECONDS = 10.0


class FakeWorker:
    """A worker that says what a test lets it say, and notes what it is asked."""

    def __init__(self) -> None:
        self.restart_reason = ""
        self.begun = True
        self.retired = False
        self.asked: list[Any] = []

    def retire(self, within: timedelta) -> None:
        # As a real one: it is leaving now, and so needs nothing more.
        self.retired, self.restart_reason = True, ""
        self.asked.append(within)

    def request_stop(self) -> None:
        self.asked.append("stop")

    def abandon(self) -> None:
        self.asked.append("abandon")

    def health(self) -> str:
        return "its health"


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def restart(worker: FakeWorker, clock: ManualClock) -> Restart:
    config = SimpleNamespace(worker=lambda: SimpleNamespace(grace=GRACE))
    here = cast("Session", SimpleNamespace(config=config))
    return Restart(here, cast("Worker", worker), clock=clock)


@pytest.fixture
def restarted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The sessions whose process was replaced."""
    found: list[object] = []
    monkeypatch.setattr(fleet, "restart_process", found.append)
    return found


def test_a_worker_that_is_well_is_left_alone(
    restart: Restart, worker: FakeWorker, clock: ManualClock, restarted: list[object]
) -> None:
    for _ in range(5):
        clock.advance(PATIENCE_SECONDS)
        restart.look()
    restart.end()
    assert (worker.asked, restarted) == ([], [])


def test_late_work_may_end_by_itself_before_anything_is_drained(
    restart: Restart, worker: FakeWorker, clock: ManualClock
) -> None:
    worker.restart_reason = "4 jobs run on past their end"
    restart.look()
    clock.advance(PATIENCE_SECONDS - 1)
    restart.look()
    worker.restart_reason = ""
    restart.look()
    # Needed again, the time counts from then.
    worker.restart_reason = "4 jobs run on past their end"
    clock.advance(PATIENCE_SECONDS)
    restart.look()
    assert worker.asked == []


def test_a_worker_that_stays_worn_drains_for_the_grace_and_the_process_restarts(
    restart: Restart, worker: FakeWorker, clock: ManualClock, restarted: list[object]
) -> None:
    worker.restart_reason = "the event loop is blocked"
    restart.look()
    clock.advance(PATIENCE_SECONDS)
    restart.look()
    restart.look()
    assert worker.asked == [GRACE]
    restart.end()
    assert len(restarted) == 1


def test_a_worker_that_was_asked_to_stop_is_not_restarted(
    restart: Restart, worker: FakeWorker, restarted: list[object]
) -> None:
    restart.request_stop()
    restart.end()
    assert (worker.asked, restarted) == (["stop"], [])


def test_signals_and_health_are_the_worker_s(restart: Restart, worker: FakeWorker) -> None:
    assert restart.begun
    assert cast("Any", restart.health()) == "its health"
    restart.abandon()
    assert worker.asked == ["abandon"]
