from datetime import timedelta

import pytest

from windlass.duration import parse_duration
from windlass.errors import InvalidValue


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (30, 30),
        (1.5, 1.5),
        (0, 0),
        ("30", 30),
        ("30s", 30),
        ("10m", 600),
        ("2h", 7_200),
        ("1h30m", 5_400),
        ("250ms", 0.25),
        ("1s250ms", 1.25),
        ("7d", 604_800),
        ("1.5h", 5_400),
        (" 5s ", 5),
        (timedelta(minutes=1), 60),
    ],
)
def test_a_duration_can_be_written_in_many_ways(written: object, seconds: float) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    [
        *("", "s", "-", "--5", "5 s", "1h1h", "1m1h", "1e5", "5y", "\uff11s", "9" * 400),
        *(10**400, float("nan"), float("inf")),
        *(True, None, []),
    ],
)
def test_what_is_no_duration_is_refused_by_name(written: object) -> None:
    with pytest.raises(InvalidValue, match=r"^grace must be a duration: .*got "):
        parse_duration(written, "grace")


@pytest.mark.parametrize("written", [-1, -0.5, "-5", "-5s", " -1h30m ", timedelta(seconds=-1)])
def test_a_duration_below_zero_is_refused_in_every_form(written: object) -> None:
    with pytest.raises(InvalidValue, match=r"^grace must be 0s or longer, got "):
        parse_duration(written, "grace")
    with pytest.raises(InvalidValue, match=r"^grace must be between 0s and 7d, got "):
        parse_duration(written, "grace", timedelta(days=7))


def test_a_duration_beyond_its_bound_is_refused_with_the_bound() -> None:
    with pytest.raises(InvalidValue, match=r"^grace must be between 0s and 7d, got '8d'"):
        parse_duration("8d", "grace", timedelta(days=7))
