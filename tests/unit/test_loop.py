"""A background thread that repeats itself, and survives what it repeats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.waiting import PATIENCE
from windlass.clock import ManualClock
from windlass.errors import StoreBusy, StoreUnavailable
from windlass.loop import Failures, Loop, pause_after

NEVER = timedelta(hours=1)
SOON = timedelta(milliseconds=5)
LOST = StoreUnavailable("the connection was lost")


class Ticks:
    """Counts ticks and lets a test wait for the n-th."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self._answers = list(answers)
        self._changed = threading.Condition()
        self.at: list[float] = []

    def __call__(self) -> float | None:
        with self._changed:
            self.at.append(time.monotonic())
            self._changed.notify_all()
            answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reach(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.at) >= number, PATIENCE), (
                f"only {len(self.at)} ticks"
            )


@pytest.fixture
def started() -> Iterator[Callable[[Loop], Loop]]:
    loops: list[Loop] = []

    def start(loop: Loop) -> Loop:
        loops.append(loop)
        loop.start()
        return loop

    yield start
    for loop in loops:
        assert loop.stop(PATIENCE)


def test_a_loop_ticks_at_once_and_again_after_its_interval(started: Callable[[Loop], Loop]) -> None:
    ticks = Ticks()
    started(Loop("test", ticks, every=SOON))
    ticks.reach(3)


def test_a_wake_up_brings_the_next_tick_forward(started: Callable[[Loop], Loop]) -> None:
    ticks = Ticks()
    loop = started(Loop("test", ticks, every=NEVER))
    ticks.reach(1)
    loop.wake()
    ticks.reach(2)


def test_a_tick_says_itself_when_the_next_one_comes(started: Callable[[Loop], Loop]) -> None:
    ticks = Ticks(0.0, 0.001)
    started(Loop("test", ticks, every=NEVER))
    ticks.reach(3)


def test_the_first_tick_can_be_put_off(started: Callable[[Loop], Loop]) -> None:
    ticks = Ticks()
    loop = started(Loop("test", ticks, every=NEVER, first=NEVER))
    assert ticks.at == []
    loop.wake()
    ticks.reach(1)


def test_jitter_lengthens_the_interval_by_a_random_part(
    started: Callable[[Loop], Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.loop.chance", lambda: 0.5)
    ticks = Ticks()
    started(Loop("test", ticks, every=timedelta(milliseconds=40), jitter=1.0))
    ticks.reach(2)
    assert ticks.at[1] - ticks.at[0] >= 0.06


def test_a_loop_outlives_a_tick_that_raises(started: Callable[[Loop], Loop]) -> None:
    ticks = Ticks(ValueError("broken"), KeyError("again"))
    started(Loop("test", ticks, every=SOON, longest_pause=SOON))
    ticks.reach(3)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0), (5000, 4.0)])
def test_the_pauses_after_failures_double_up_to_their_bound(failures: int, seconds: float) -> None:
    assert pause_after(failures, 4.0) == seconds


def test_pauses_may_begin_with_less() -> None:
    assert [pause_after(failures, 4.0, first=0.05) for failures in (1, 2, 3, 7, 8, 5000)] == [
        0.05,
        0.1,
        0.2,
        3.2,
        4.0,
        4.0,
    ]


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the loop of the test said: whoever still runs in this process may have something to say, too."""
    ours = [record for record in caplog.records if record.__dict__.get("loop") == "test"]
    return [record for record in ours if record.getMessage() == "loop.tick_failed"]


def pauses(caplog: pytest.LogCaptureFixture) -> list[float]:
    """How long the loop said that it would pause, each time."""
    return [record.__dict__["again_in"] for record in told(caplog)]


@pytest.mark.parametrize(("chance", "expected"), [(0.0, [0.025, 0.05, 0.075]), (1.0, [0.05, 0.1, 0.15])])
def test_what_lost_its_connection_is_tried_again_soon_and_not_by_all_at_one_moment(
    chance: float,
    expected: list[float],
    started: Callable[[Loop], Loop],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("windlass.loop.chance", lambda: chance)
    ticks = Ticks(LOST, LOST, LOST)
    longest = timedelta(seconds=0.15)
    with caplog.at_level(logging.DEBUG, "windlass.loop"):
        started(Loop("test", ticks, every=NEVER, longest_pause=longest))
        ticks.reach(4)
    assert pauses(caplog) == pytest.approx(expected)


def test_the_pauses_begin_anew_after_a_tick_that_succeeds(
    started: Callable[[Loop], Loop], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.loop.chance", lambda: 1.0)
    ticks = Ticks(LOST, LOST, 0.0, LOST)
    with caplog.at_level(logging.DEBUG, "windlass.loop"):
        started(Loop("test", ticks, every=NEVER))
        ticks.reach(5)
    assert pauses(caplog) == pytest.approx([0.05, 0.1, 0.05])


def test_where_success_says_little_a_row_of_failures_is_over_when_it_has_lasted() -> None:
    clock = ManualClock()
    row = Failures("test", timedelta(seconds=10), clock)

    def seen(*happened: float | None) -> int:
        """Seconds after the last time: it went well; None: it failed."""
        for each in happened:
            if each is None:
                row.failed(LOST, 1.0)
            else:
                clock.advance(each)
                row.went_well()
        return row.count

    assert seen(0, None, 100) == 1, "how long it took to go well again says nothing"
    assert seen(9.9) == 1
    assert seen(None, 0, 9.9) == 2
    assert seen(0.2) == 0
    assert seen(None) == 1


def test_a_wake_up_does_not_shorten_the_pause_after_a_failure(started: Callable[[Loop], Loop]) -> None:
    ticks = Ticks(ValueError("broken"))
    loop = started(Loop("test", ticks, every=NEVER, longest_pause=timedelta(seconds=0.3)))
    ticks.reach(1)
    loop.wake()
    ticks.reach(2)
    assert ticks.at[1] - ticks.at[0] >= 0.3


def test_a_stop_ends_the_pause_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.loop.pause_after", lambda *_: NEVER.total_seconds())
    ticks = Ticks(ValueError("broken"))
    loop = Loop("test", ticks, every=NEVER)
    loop.start()
    ticks.reach(1)
    assert loop.stop(PATIENCE), "it goes on pausing"


@pytest.mark.parametrize(
    ("error", "traced"), [(StoreBusy("somebody holds the lock"), False), (ValueError("a bug"), True)]
)
def test_a_failure_is_logged_and_only_a_bug_with_its_traceback(
    error: Exception, *, traced: bool, started: Callable[[Loop], Loop], caplog: pytest.LogCaptureFixture
) -> None:
    ticks = Ticks(error)
    with caplog.at_level(logging.DEBUG, "windlass.loop"):
        started(Loop("test", ticks, every=NEVER, longest_pause=SOON))
        ticks.reach(2)
    [record] = told(caplog)
    assert record.getMessage() == "loop.tick_failed"
    assert record.__dict__["error"] == str(error)
    assert bool(record.exc_info) is traced


def test_stop_says_when_a_tick_takes_too_long() -> None:
    entered, release = threading.Event(), threading.Event()

    def tick() -> None:
        entered.set()
        release.wait(PATIENCE)

    loop = Loop("test", tick, every=NEVER)
    loop.start()
    assert entered.wait(PATIENCE)
    assert not loop.stop(0.01)
    release.set()
    assert loop.stop(PATIENCE)


def test_a_loop_can_be_stopped_from_within_its_own_tick() -> None:
    done = threading.Event()
    loops: list[Loop] = []

    def tick() -> None:
        assert loops[0].stop()
        done.set()

    loops.append(Loop("test", tick, every=SOON))
    loops[0].start()
    assert done.wait(PATIENCE)
    assert loops[0].stop(PATIENCE)


def test_a_loop_whose_thread_was_never_started_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loop = Loop("idle", lambda: None, every=timedelta(seconds=1))
    assert loop.stop()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        loop.start()
    assert loop.stop()


def test_an_outage_is_logged_once_then_once_a_minute_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """One worker logged 209 warnings in 100 seconds without its database."""
    clock = ManualClock()
    row = Failures("test", timedelta(seconds=5), clock)
    with caplog.at_level(logging.WARNING, "windlass.loop"):
        for _ in range(100):
            row.failed(StoreUnavailable("the server is away"), 1.0)
            row.went_well()
            clock.advance(1)
        for _ in range(3):
            row.went_well()
            clock.advance(5)
    seen = [(record.getMessage(), record.__dict__["failures"]) for record in caplog.records]
    assert seen == [("loop.tick_failed", 1), ("loop.tick_failed", 61), ("loop.recovered", 100)]
    assert caplog.records[-1].__dict__["seconds"] == 105


def test_another_kind_of_failure_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    row = Failures("test", timedelta(0), ManualClock())
    with caplog.at_level(logging.WARNING, "windlass.loop"):
        for error in (StoreUnavailable("away"), StoreUnavailable("away"), ValueError("a bug")):
            row.failed(error, 1.0)
    assert [record.__dict__["error"] for record in caplog.records] == ["away", "a bug"]
