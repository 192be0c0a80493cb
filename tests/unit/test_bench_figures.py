"""What `windlass bench` says of a figure: is its aim met?"""

from __future__ import annotations

import pytest

from windlass.bench.run import Figure, steps


def figure(median: float, share: float | None, aim: str | None) -> Figure:
    return Figure(name="drain", unit="jobs/s", median=median, rounds=[median], share=share, aim=aim)


@pytest.mark.parametrize(
    ("median", "share", "aim", "reached"),
    [
        (16_000, 0.71, ">= 0.7, > 15000/s", True),
        (14_999, 0.71, ">= 0.7, > 15000/s", False),
        (16_000, 0.69, ">= 0.7, > 15000/s", False),
        (2.99, None, "< 3 ms", True),
        (3.0, None, "< 3 ms", False),
        (3_001, None, "> 3000/s on 2 cores", True),
        (16_000, None, ">= 0.7", False),
        (16_000, 0.9, None, None),
    ],
)
def test_an_aim_is_met_if_all_of_it_is(
    median: float, share: float | None, aim: str | None, *, reached: bool | None
) -> None:
    assert figure(median, share, aim).reached is reached


def test_a_server_has_more_limits_to_measure() -> None:
    assert steps(http=False, on_server=True) > steps(http=False, on_server=False) > 0
