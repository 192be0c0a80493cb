"""How many workers does a load ask for?"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.observe.scene import MAIL, REPORT, Stage, staged
from windlass.observe.fleet import Load, ScaleTargets, desired
from windlass.store.flow import BreakerState

TARGETS = ScaleTargets(target=timedelta(seconds=60), least=3, most=200)


def test_ten_workers_of_load_ask_for_thirteen() -> None:
    """30 % of room to spare."""
    load = Load(type=MAIL, arrivals=100.0, service=1.0)
    assert desired([load], slots=10, targets=TARGETS) == 13


def test_without_load_the_least_stay_and_with_too_much_the_most() -> None:
    assert desired([], slots=10, targets=TARGETS) == 3
    assert desired([Load(type=MAIL, arrivals=1e6, service=1.0)], slots=10, targets=TARGETS) == 200


def test_what_waits_shall_have_started_within_the_target() -> None:
    # 6,000 jobs of a second each within a minute are 100 slots.
    assert desired([Load(type=MAIL, waiting=6_000, service=1.0)], slots=10, targets=TARGETS) == 13


def test_a_limit_bounds_what_more_workers_could_do() -> None:
    load = Load(type=MAIL, waiting=6_000, service=1.0, limit=5)
    assert desired([load], slots=1, targets=TARGETS) == 7


def _a_load(stage: Stage) -> None:
    """A hundred jobs of 30 s each wait, after a few that showed how long they take."""
    stage.enqueue(105)
    stage.work(5, ran=30.0)
    stage.look()


def test_a_spike_is_seen_at_once_and_forgotten_after_the_cool_down(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.look()
        assert stage.ops.autoscale().desired == 1
        _a_load(stage)
        # 100 x 30 s within 60 s, and 105 arrivals in ten minutes: 55 slots, and 30 % more.
        assert stage.ops.autoscale().desired == 8
        assert dict(stage.scrape())["windlass_desired_workers"] == [({}, 8.0)]
        stage.minutes(2)
        stage.work(100, ran=30.0)
        stage.look()
        scale = stage.ops.autoscale()
        assert (scale.now, scale.desired) == (1, 7)
        stage.minutes(11)
        assert stage.ops.autoscale().desired == 1


PEAK, OFF_PEAK = 200, 2
RAN = 30.0


def test_a_series_of_depths_asks_for_thirteen_at_the_peak_and_for_three_off_it() -> None:
    """Jobs of 30 s come 200 a minute, which is the work of ten workers, and later 2 a minute."""
    workers, depth, asked = 3, 0, []
    for coming in [PEAK] * 30 + [OFF_PEAK] * 30:
        depth = max(0, depth + coming - workers * 20)
        load = Load(type=MAIL, waiting=depth, arrivals=coming / 60, service=RAN)
        workers = desired([load], slots=10, targets=TARGETS)
        asked.append(workers)
    # In the first minute more, for what has piled up with only three.
    assert asked == [23] + [13] * 29 + [3] * 30


def test_a_fleet_that_follows_has_grown_within_five_minutes_and_shrinks_off_peak(tmp_path: Path) -> None:
    """The same on a store, from its own counts and with the cool-down."""
    with staged(tmp_path) as stage:
        stage.ops.set_settings({"autoscale.least": "3"})
        workers, depth, asked, depths = 3, 0, [], []
        for coming in [PEAK] * 30 + [OFF_PEAK] * 30:
            stage.enqueue(coming)
            ended = min(depth + coming, workers * 20)
            stage.work(ended, ran=RAN)
            depth += coming - ended
            stage.minutes(1)
            workers = stage.ops.autoscale().desired
            asked.append(workers)
            depths.append(depth)
        assert min(asked[4:30]) >= 13
        assert depths[4:] == [0] * 56
        assert asked[-5:] == [3] * 5


def test_a_long_cool_down_is_looked_at_by_the_hour(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.ops.set_settings({"autoscale.cooldown": "3h"})
        _a_load(stage)
        stage.minutes(1)
        stage.work(100, ran=30.0)
        stage.clock.advance(7_200)
        stage.look()
        scale = stage.ops.autoscale()
        assert (scale.now, scale.desired > 1) == (1, True)
        stage.clock.advance(3 * 3_600)
        stage.look()
        assert stage.ops.autoscale().desired == 1


def test_jobs_that_are_held_back_ask_for_no_worker(tmp_path: Path) -> None:
    """More workers on a dependency that is down would only make it worse."""
    with staged(tmp_path) as stage:
        _a_load(stage)
        stage.minutes(6)
        assert stage.ops.autoscale().now > 1
        stage.store.set_breaker(MAIL, BreakerState.OPEN)
        assert stage.ops.autoscale().now == 1
        stage.store.set_breaker(MAIL, BreakerState.CLOSED)
        stage.store.pause(MAIL)
        assert stage.ops.autoscale().desired == 1
        assert REPORT not in [each.type for each in stage.ops.autoscale().types if each.slots]
