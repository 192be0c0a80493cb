"""What does an expression come to?"""

from __future__ import annotations

import pytest

from windlass.observe.promql import BadExpression, Series, evaluate


class Fixed:
    """A source of fixed values."""

    def __init__(self, **series: Series) -> None:
        self._series = series

    def instant(self, name: str) -> Series:
        return self._series.get(name, ())

    def increase(self, name: str, seconds: float) -> Series:
        return [(labels, value * seconds / 60) for labels, value in self.instant(name)]

    def delta(self, name: str, seconds: float) -> Series:
        return [(labels, -value * seconds / 60) for labels, value in self.instant(name)]


SOURCE = Fixed(
    depth=[
        ({"type": "a", "priority": "5"}, 3.0),
        ({"type": "a", "priority": "9"}, 4.0),
        ({"type": "b", "priority": "5"}, 1.0),
    ],
    workers=[({"type": "a"}, 0.0), ({"type": "b"}, 2.0)],
    nothing=[({"type": "a"}, 0.0)],
)


def found(expression: str) -> dict[str, float]:
    """Values by their labels' values, in words."""
    return {
        " ".join(value for _, value in sorted(labels, reverse=True)): value
        for labels, value in evaluate(expression, SOURCE).items()
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("depth", {"a 5": 3.0, "a 9": 4.0, "b 5": 1.0}),
        ('depth{type="a"}', {"a 5": 3.0, "a 9": 4.0}),
        ('depth{type!="a"}', {"b 5": 1.0}),
        ('depth{priority=~"8|9"}', {"a 9": 4.0}),
        ("depth > 2", {"a 5": 3.0, "a 9": 4.0}),
        ("2 < depth", {"a 5": 3.0, "a 9": 4.0}),
        ("sum by (type) (depth)", {"a": 7.0, "b": 1.0}),
        ("max by (priority) (depth)", {"5": 3.0, "9": 4.0}),
        ("count (depth)", {"": 3.0}),
        ("sum (depth) == 8", {"": 8.0}),
        ("sum by (type) (depth) > 0 and on (type) workers == 0", {"a": 7.0}),
        ("depth > 0 and on (type) workers > 0", {"b 5": 1.0}),
        ("depth unless on (type) workers == 0", {"b 5": 1.0}),
        ("workers or on (type) nothing", {"a": 0.0, "b": 2.0}),
        ("increase(depth[2m])", {"a 5": 6.0, "a 9": 8.0, "b 5": 2.0}),
        ("rate(workers[2m]) * 60", {"a": 0.0, "b": 2.0}),
        ("1 - workers / 4 > 0.5", {"a": 1.0}),
        ("workers - nothing", {"a": 0.0}),
        ("1 + 2 * 3 == 7", {"": 1.0}),
        ("nothing / nothing > 0.5", {}),
        ("missing > 0", {}),
    ],
)
def test_an_expression_comes_to_what_prometheus_makes_of_it(
    expression: str, expected: dict[str, float]
) -> None:
    assert found(expression) == expected


@pytest.mark.parametrize(
    "expression",
    ["", "depth >", "depth)", "sum by type (depth)", "rate(depth)", 'depth{type~"a"}', "depth[5m]", "§"],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        evaluate(expression, SOURCE)
