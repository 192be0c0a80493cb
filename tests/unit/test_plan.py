"""Capacity on paper: the figures that are right come out, and those that are wrong do not."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import Any

import pytest

from windlass.errors import InvalidValue
from windlass.ops.plan import Load, drain_time, plan, slots_for


def load(**changes: Any) -> Load:
    """500 jobs a second of 2 s."""
    return Load(**{"rate": 500.0, "run": timedelta(seconds=2), **changes})


def test_500_jobs_a_second_of_2_seconds_are_a_thousand_slots() -> None:
    found = plan(load())
    assert found.busy == 1_000
    assert found.slots_in_time == pytest.approx(1_000, rel=0.01)
    # A hundred workers of ten slots, not ten; with 30 % to spare.
    assert found.workers == 131


def test_a_hundred_workers_of_ten_slots_carry_500_such_jobs_a_second_and_not_2500() -> None:
    assert 100 * 10 / 2 == 500
    assert plan(load(rate=2_500.0)).workers > 500


def test_a_day_is_43_million_jobs_and_21_6_gigabytes() -> None:
    found = plan(load())
    assert found.jobs_per_day == 43_200_000
    assert found.bytes_per_day == pytest.approx(21.6e9)
    assert found.bytes_kept == pytest.approx(151.2e9)
    assert found.bytes_with_indexes == pytest.approx(196.56e9)


def test_ten_times_the_rate_for_half_an_hour_is_nine_million_jobs() -> None:
    found = plan(load(spike=10, spike_for=timedelta(minutes=30)))
    assert found.spike_jobs == 9_000_000
    assert found.backlog == (5_000 - found.capacity) * 1_800
    assert found.spike_workers == 1_000
    assert found.drain == timedelta(seconds=found.backlog / (found.capacity - 500))


def test_two_million_jobs_at_50_a_second_take_eleven_hours() -> None:
    drain = drain_time(2_000_000, 50, 0)
    assert drain is not None
    assert 11.0 < drain / timedelta(hours=1) < 11.2


def test_ten_workers_with_30_percent_to_spare_are_thirteen() -> None:
    # So many busy slots that chance plays no part.
    assert plan(load(rate=50.0, wait=timedelta(hours=1))).workers == 14
    assert math.ceil(100 * 1.3 / 10) == 13


def test_half_a_million_payloads_of_64_kilobytes_are_32_gigabytes() -> None:
    one = plan(load(payload=64_000)).bytes_per_job - plan(load()).bytes_per_job
    assert one * 500_000 == 32e9


def test_nothing_to_spare_means_never() -> None:
    assert drain_time(1, 5, 5) is None
    assert drain_time(0, 5, 5) == timedelta(0)


# --- the wait -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "run", "wait"), [(5.0, 2.0, 1.0), (50.0, 0.5, 0.1), (0.2, 10.0, 5.0)])
def test_the_slots_that_it_names_are_enough_and_one_fewer_is_not(
    rate: float, run: float, wait: float
) -> None:
    slots = slots_for(rate, run, wait)
    assert _share_late(rate, run, wait, slots) <= 0.015
    assert _share_late(rate, run, wait, slots - 1) > 0.01


def _share_late(rate: float, run: float, wait: float, slots: int) -> float:
    """What a simulation of so many slots says: jobs come and take their time by chance, first come first."""
    chance = random.Random(7)
    free = [0.0] * slots
    now, late, count = 0.0, 0, 60_000
    for _ in range(count):
        now += chance.expovariate(rate)
        first = min(range(slots), key=free.__getitem__)
        start = max(now, free[first])
        free[first] = start + chance.expovariate(1 / run)
        late += start - now > wait
    return late / count


def test_a_shorter_wait_takes_more_slots_and_more_load_too() -> None:
    waits = [slots_for(10, 1, wait) for wait in (60, 10, 1, 0.1, 0.01)]
    assert waits == sorted(waits)
    assert slots_for(20, 1, 1) > slots_for(10, 1, 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rate": 0}, "rate"),
        ({"run": timedelta(0)}, "run"),
        ({"spike": 0.5}, "spike"),
        ({"slots": 0}, "slots"),
        ({"rate": 10**9}, "rate"),
        ({"rate": math.nan}, "rate"),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        load(**change)
    assert refused.value.field == field
