"""One lease in a worker's hands: it is settled once, by whoever comes first."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.scene import THEN, running
from windlass.job import Lease, Output, Request
from windlass.outcome import (
    Again,
    Interrupted,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Unstarted,
    describe,
)
from windlass.worker.run import Run, settlement

MINUTE = timedelta(minutes=1)
SOON = {"halt_at": 1.0, "cut_at": 2.0}


class Carrier:
    """Notes who was broken off."""

    def __init__(self) -> None:
        self.halted: list[Run] = []

    def halt(self, run: Run) -> bool:
        self.halted.append(run)
        return True


def a_run(name: str = "t") -> Run:
    handler: Any = SimpleNamespace(kind="thread")
    pool: Any = None
    run = Run(Lease(running("j"), name, "w", THEN + MINUTE), handler, pool, 100.0)
    run.carrier = Carrier()
    return run


def halted(run: Run) -> int:
    assert isinstance(run.carrier, Carrier)
    return len(run.carrier.halted)


def test_only_the_first_result_counts() -> None:
    run = a_run()
    assert run.close(Returned(b"1")) == Returned(b"1")
    assert run.close(Returned(b"2")) is None
    assert not run.open


def test_a_run_that_was_told_to_stop_ends_as_told_whatever_it_returns() -> None:
    run = a_run()
    assert run.begin(100.0, MINUTE)
    assert run.stop(Stopped(Request.CANCEL), **SOON)
    assert run.notice.stop
    assert run.close(Returned(b"1")) == Stopped(Request.CANCEL)


def test_the_first_reason_to_stop_stands() -> None:
    run = a_run()
    assert run.stop(Stopped(Request.CANCEL), **SOON)
    assert not run.stop(TimedOut(MINUTE), **SOON)
    assert run.close(Raised(ValueError())) == Stopped(Request.CANCEL)


def test_what_a_command_said_is_kept_however_it_ended() -> None:
    run = a_run()
    run.stop(TimedOut(MINUTE, message="too long"), **SOON)
    output = Output(-15, "out", "err")
    assert run.close(Returned(b"1", output)) == TimedOut(MINUTE, output, "too long")


def test_a_run_told_before_it_began_does_not_begin() -> None:
    run = a_run()
    run.stop(Interrupted(), **SOON)
    assert not run.begin(100.0, MINUTE)
    assert run.started is None


def test_a_run_given_back_before_it_began_does_not_begin() -> None:
    run = a_run()
    run.close(Unstarted())
    assert not run.begin(100.0, MINUTE)


def test_a_run_knows_when_its_time_is_over_until_it_is_told_to_stop() -> None:
    run = a_run()
    run.begin(100.0, MINUTE)
    assert run.ends == 160.0
    run.stop(Interrupted(), **SOON)
    assert (run.ends, run.halt_at, run.cut_at) == (float("inf"), 1.0, 2.0)


def test_of_a_lost_run_nothing_is_settled() -> None:
    run = a_run()
    run.begin(100.0, MINUTE)
    assert run.lose()
    assert run.notice.lease_lost
    assert run.close(Returned(b"1")) is None


def test_a_run_whose_result_is_on_its_way_is_not_lost_here() -> None:
    run = a_run()
    run.close(Returned(b"1"))
    assert not run.lose()
    assert halted(run) == 0


def test_the_stores_time_is_counted_on_from_the_claim() -> None:
    assert a_run().store_time(102.5) == THEN + timedelta(seconds=2.5)


@pytest.mark.parametrize(("started", "seconds"), [(None, None), (101.0, 1.5)])
def test_how_long_it_ran(started: float | None, seconds: float | None) -> None:
    run = a_run()
    run.started = started
    ran = settlement(run, Again(MINUTE, describe(ValueError())), 102.5, "").ran
    assert ran == (None if seconds is None else timedelta(seconds=seconds))
