"""Is a pace kept?"""

from __future__ import annotations

import pytest

from windlass.clock import ManualClock
from windlass.errors import InvalidValue
from windlass.ops import Pace


def test_whoever_is_faster_than_the_pace_is_told_by_how_much() -> None:
    clock = ManualClock()
    pace = Pace(10, clock=clock)
    clock.advance(1)
    pace.passed(10)
    assert pace.ahead() == pytest.approx(0)
    clock.advance(-0.5)
    assert pace.ahead() == pytest.approx(0.5)
    clock.advance(3)
    assert pace.ahead() == pytest.approx(-2.5)


def test_without_a_rate_nobody_waits() -> None:
    pace = Pace(None)
    pace.passed(1_000_000)
    assert (pace.ahead(), pace.step) == (0.0, None)


@pytest.mark.parametrize(("rate", "step"), [(1, 1), (10, 1), (100, 10), (5000, 500), (0.5, 1)])
def test_the_steps_are_small_enough_to_look_even(rate: float, step: int) -> None:
    assert Pace(rate).step == step


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(InvalidValue, match="rate must be more than 0 per second"):
        Pace(rate)
