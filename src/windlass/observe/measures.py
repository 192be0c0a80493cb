"""Measured values, and conditions over them: evaluated here, or by Prometheus as PromQL."""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial, partialmethod

from windlass.duration import parse_duration

Labels = frozenset[tuple[str, str]]


class Series(dict[Labels, float]):
    """Values of one metric by their labels."""


class Measures(abc.ABC):
    """Where the values come from."""

    @abc.abstractmethod
    def now(self, name: str) -> Series:
        """The newest value of each series of a metric."""

    @abc.abstractmethod
    def increase(self, name: str, within: timedelta) -> Series:
        """By how much each series of a counter has risen within this time until now."""

    @abc.abstractmethod
    def delta(self, name: str, within: timedelta) -> Series:
        """By how much each series of a gauge has changed within this time until now."""


_Read = Callable[[Measures], Series]
_Operator = Callable[[float, float], float]
# How closely the parts of an expression belong together, in PromQL as here.
_AND, _COMPARED, _ADDED, _MULTIPLIED, _WHOLE = range(5)


def _divided(a: float, b: float) -> float:
    # 0 / 0 is not a number, and no comparison with that holds.
    return a / b if b else math.inf if a else math.nan


_OPERATORS: dict[str, tuple[int, _Operator]] = {
    ">": (_COMPARED, operator.gt),
    "<": (_COMPARED, operator.lt),
    "==": (_COMPARED, operator.eq),
    "+": (_ADDED, operator.add),
    "-": (_ADDED, operator.sub),
    "*": (_MULTIPLIED, operator.mul),
    "/": (_MULTIPLIED, _divided),
}


class Expression:
    """What is measured, and what follows from it; each operation means what it means in PromQL."""

    def __init__(self, text: str, read: _Read, level: int = _WHOLE) -> None:
        self.text = text
        self.read = read
        self.level = level

    def total(self, *by: str) -> Expression:
        """The sum over all labels but these."""
        return self._aggregated("sum", by, sum)

    def largest(self, *by: str) -> Expression:
        """The largest over all labels but these."""
        return self._aggregated("max", by, max)

    def also(self, other: Expression, *on: str) -> Expression:
        """Those for which the other has a value with the same labels, or the same of the labels named."""

        def read(measures: Measures) -> Series:
            there = {_key(labels, on or None) for labels in other.read(measures)}
            found = self.read(measures).items()
            return Series((labels, value) for labels, value in found if _key(labels, on or None) in there)

        named = f" on ({', '.join(on)})" if on else ""
        return Expression(f"{self.text} and{named} {other.text}", read, _AND)

    def _combined(self, sign: str, other: float | Expression, *, swapped: bool = False) -> Expression:
        """Label set by label set; a comparison keeps the values of the left for which it holds."""
        if not isinstance(other, Expression):
            number = Series({_NUMBER: other})
            other = Expression(f"{other:g}", lambda _: number)
        both = (self, other)
        left, right = both[::-1] if swapped else both
        level, make = _OPERATORS[sign]

        def read(measures: Measures) -> Series:
            found, a, b = Series(), left.read(measures), right.read(measures)
            for labels in b if _NUMBER in a else a:
                mine, theirs = (side.get(labels, side.get(_NUMBER)) for side in (a, b))
                if mine is not None and theirs is not None:
                    made = make(mine, theirs)
                    if level != _COMPARED:
                        found[labels] = made
                    elif made:
                        found[labels] = mine
            return found

        before = left.text if left.level >= level else f"({left.text})"
        behind = right.text if right.level > level else f"({right.text})"
        return Expression(f"{before} {sign} {behind}", read, level)

    # Those greater or less than a bound, or than the other's value with the same labels; those that equal it.
    above = partialmethod(_combined, ">")
    below = partialmethod(_combined, "<")
    equals = partialmethod(_combined, "==")
    __add__ = partialmethod(_combined, "+")
    __sub__ = partialmethod(_combined, "-")
    __rsub__ = partialmethod(_combined, "-", swapped=True)
    __rmul__ = partialmethod(_combined, "*", swapped=True)
    __truediv__ = partialmethod(_combined, "/")

    def _aggregated(self, name: str, by: Collection[str], fold: Callable[[list[float]], float]) -> Expression:
        def read(measures: Measures) -> Series:
            groups: dict[Labels, list[float]] = {}
            for labels, value in self.read(measures).items():
                groups.setdefault(_key(labels, by), []).append(value)
            return Series((labels, fold(values)) for labels, values in groups.items())

        grouped = f" by ({', '.join(by)})" if by else ""
        return Expression(f"{name}{grouped} ({self.text})", read)


def now(name: str, **labels: str | tuple[str, ...]) -> Expression:
    """A metric's newest values; of those series alone whose labels have this value, or one of these."""
    return Expression(_selector(name, labels), lambda measures: _selected(measures.now(name), labels))


def _over(function: str, name: str, within: str, **labels: str | tuple[str, ...]) -> Expression:
    """A function of what a metric did within a time such as `10m`."""
    time = parse_duration(within)
    per = time.total_seconds() if function == "rate" else 1.0

    def read(measures: Measures) -> Series:
        measure = measures.delta if function == "delta" else measures.increase
        return _selected(measure(name, time), labels, per)

    return Expression(f"{function}({_selector(name, labels)}[{within}])", read)


# By how much a counter rose, and per second; by how much a gauge changed.
increase = partial(_over, "increase")
rate = partial(_over, "rate")
delta = partial(_over, "delta")
# A number is a series that has its value under these labels, whatever it is combined with.
_NUMBER: Labels = frozenset({("", "")})


def _selector(name: str, labels: Mapping[str, str | tuple[str, ...]]) -> str:
    matched = (
        f'{label}="{value}"' if isinstance(value, str) else f'{label}=~"{"|".join(value)}"'
        for label, value in labels.items()
    )
    return f"{name}{{{','.join(matched)}}}" if labels else name


def _selected(series: Series, wanted: Mapping[str, str | tuple[str, ...]], per: float = 1.0) -> Series:
    allowed = {name: (value,) if isinstance(value, str) else value for name, value in wanted.items()}
    return Series(
        (labels, value / per)
        for labels, value in series.items()
        if all(dict(labels).get(name, "") in values for name, values in allowed.items())
    )


def _key(labels: Labels, names: Collection[str] | None) -> Labels:
    return labels if names is None else frozenset(pair for pair in labels if pair[0] in names)
