"""When does a scheduler look again?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.waiting import PATIENCE
from windlass import connect
from windlass.clock import ManualClock
from windlass.connect import Opened
from windlass.schedule import NewSchedule, Timing
from windlass.store.jobs import Filter
from windlass.upkeep.scheduler import Scheduler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(clock: ManualClock) -> Iterator[Opened]:
    made = connect.open("sqlite:///:memory:", clock=clock)
    yield made
    made.close()


def every(seconds: float, **changes: object) -> NewSchedule:
    timing = Timing(every=timedelta(seconds=seconds), overlap="queue", **changes)  # type: ignore[arg-type]
    return NewSchedule(name="tick", timing=timing, type="tick")


def test_it_sleeps_until_the_next_fire_time_but_not_for_long(opened: Opened, clock: ManualClock) -> None:
    scheduler = Scheduler(opened.store, opened.wakeup)
    hints: list[None] = []
    opened.wakeup.subscribe(lambda: hints.append(None))
    assert scheduler.tick() is None
    opened.store.add_schedule(every(60))
    assert scheduler.tick() == 5.0
    clock.advance(57.5)
    assert scheduler.tick() == 2.5
    assert hints == []
    clock.advance(2.5)
    assert scheduler.tick() == 5.0
    assert len(hints) == 1


def test_what_one_look_does_not_get_done_is_done_at_once(opened: Opened, clock: ManualClock) -> None:
    scheduler = Scheduler(opened.store, opened.wakeup)
    opened.store.add_schedule(every(1, catch_up="all"))
    clock.advance(250)
    assert [scheduler.tick() for _ in range(3)] == [0.0, 0.0, 1.0]
    assert opened.store.count(Filter(), limit=1000) == 250


def test_a_worker_is_told_by_its_look_when_the_next_fire_time_comes(
    opened: Opened, clock: ManualClock
) -> None:
    scheduler = Scheduler(opened.store, opened.wakeup, told=True)
    ticked = threading.Event()
    opened.wakeup.subscribe(ticked.set)
    assert opened.store.look("me", {}).next_fire is None
    scheduler.loop.start()
    try:
        opened.store.add_schedule(every(60))
        assert opened.store.look("me", {}).next_fire == timedelta(seconds=60)
        clock.advance(61)
        seen = opened.store.look("me", {})
        assert seen.next_fire == timedelta(seconds=-1)
        scheduler.saw(seen.next_fire)
        assert ticked.wait(PATIENCE)
    finally:
        scheduler.loop.stop()


def test_who_is_told_looks_less_often(opened: Opened) -> None:
    scheduler = Scheduler(opened.store, opened.wakeup, told=True)
    opened.store.add_schedule(every(60))
    assert scheduler.tick() == 30.0
