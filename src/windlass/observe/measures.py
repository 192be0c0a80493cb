"""Measured values, and the few operations on them that alerts are written in."""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta

Labels = frozenset[tuple[str, str]]


class Series(dict[Labels, float]):
    """Values of one metric by their labels.

    Each operation means what it means in PromQL, since every alert is also a rule of Prometheus: two series
    are combined label set by label set, and a comparison keeps the values for which it holds.
    """

    @classmethod
    def of(cls, values: Iterable[tuple[Mapping[str, str], float]]) -> Series:
        """From label mappings and their values."""
        return cls((frozenset(labels.items()), value) for labels, value in values)

    def where(self, **wanted: str | Collection[str]) -> Series:
        """Only those whose labels have these values, or one of these."""
        return Series(
            (labels, value)
            for labels, value in self.items()
            if all(_fits(dict(labels).get(name, ""), allowed) for name, allowed in wanted.items())
        )

    def total(self, *by: str) -> Series:
        """The sum over all labels but these."""
        return self._grouped(by, lambda a, b: a + b)

    def largest(self, *by: str) -> Series:
        """The largest over all labels but these."""
        return self._grouped(by, max)

    def above(self, bound: float | Series) -> Series:
        """Those greater than the bound, or than the other series' value with the same labels."""
        return self._kept(bound, lambda a, b: a > b)

    def below(self, bound: float | Series) -> Series:
        """Those less than the bound, or than the other series' value with the same labels."""
        return self._kept(bound, lambda a, b: a < b)

    def equal(self, bound: float) -> Series:
        """Those with exactly this value."""
        return self._kept(bound, lambda a, b: a == b)

    def also(self, other: Series, *on: str) -> Series:
        """Those for which the other has a value with the same labels, or the same of the labels named."""
        there = {_key(labels, on) for labels in other}
        return Series((labels, value) for labels, value in self.items() if _key(labels, on) in there)

    def __add__(self, other: float | Series) -> Series:
        return self._combined(other, lambda a, b: a + b)

    def __sub__(self, other: float | Series) -> Series:
        return self._combined(other, lambda a, b: a - b)

    def __mul__(self, other: float) -> Series:
        return self._combined(other, lambda a, b: a * b)

    def __truediv__(self, other: float | Series) -> Series:
        # As in PromQL: 0 / 0 is not a number, and no comparison with that holds.
        return self._combined(other, lambda a, b: a / b if b else (float("nan") if not a else float("inf")))

    def _combined(self, other: float | Series, make: Callable[[float, float], float]) -> Series:
        if not isinstance(other, Series):
            return Series((labels, make(value, other)) for labels, value in self.items())
        return Series(
            (labels, make(value, other[labels])) for labels, value in self.items() if labels in other
        )

    def _kept(self, bound: float | Series, holds: Callable[[float, float], bool]) -> Series:
        held = self._combined(bound, holds)
        return Series((labels, value) for labels, value in self.items() if held.get(labels))

    def _grouped(self, by: Collection[str], fold: Callable[[float, float], float]) -> Series:
        groups = Series()
        for labels, value in self.items():
            key = frozenset(pair for pair in labels if pair[0] in by)
            groups[key] = fold(groups[key], value) if key in groups else value
        return groups


def _fits(value: str, allowed: str | Collection[str]) -> bool:
    return value == allowed if isinstance(allowed, str) else value in allowed


def _key(labels: Labels, on: Collection[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] in on) if on else labels


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

    def rate(self, name: str, within: timedelta) -> Series:
        """By how much a counter has risen per second."""
        return self.increase(name, within) / within.total_seconds()
