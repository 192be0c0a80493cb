"""What does a rule's expression come to? The part of PromQL that our alerts are written in, and no more.

`windlass alerts` and the server judge by the very text that stands in the rule file, so the two cannot
differ. There are selectors with `=`, `!=` and `=~`, `rate`, `increase` and `delta` over a range, `sum`,
`min`, `max` and `count` with `by`, arithmetic, comparisons, `and`, `or` and `unless`, with `on`. Nothing is
extrapolated: an increase is what was counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from windlass.duration import parse_duration
from windlass.errors import WindlassError

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Result = Vector | float
Series = Iterable[tuple[Mapping[str, str], float]]


class Source(Protocol):
    """Where values come from."""

    def instant(self, name: str) -> Series:
        """The newest value of each series of that name."""

    def increase(self, name: str, seconds: float) -> Series:
        """By how much each series of that name has risen in the last so many seconds."""

    def delta(self, name: str, seconds: float) -> Series:
        """By how much each series of a gauge of that name has changed in the last so many seconds."""


class BadExpression(WindlassError):
    """A text that is no expression of ours."""


def evaluate(expression: str, source: Source) -> Vector:
    """The series for which an expression holds; a number alone has no labels."""
    result = _Reader(expression).read()(source)
    return result if isinstance(result, dict) else {frozenset(): result}


# --- reading ------------------------------------------------------------------------------------

_Step = Callable[[Source], Result]
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<word>[a-zA-Z_:][\w:]*)"
    r'|(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[\w+\])|(?P<mark>=~|!=|==|>=|<=|[-+*/(){},=<>]))'
)
_AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "count": len,
}
_RATES = ("rate", "increase", "delta")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    # As PromQL has it: nothing of nothing is no number, and no comparison holds for that.
    "/": lambda a, b: a / b if b else (float("nan") if not a else float("inf")),
}
# From the loosest to the tightest.
_LEVELS: tuple[tuple[str, ...], ...] = (("or",), ("and", "unless"), tuple(_COMPARE), ("+", "-"), ("*", "/"))


class _Token(NamedTuple):
    kind: str
    text: str


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = list(self._split(expression))
        self._at = 0

    def read(self) -> _Step:
        step = self._level(0)
        if self._peek() is not None:
            raise self._wrong()
        return step

    def _split(self, text: str) -> Iterator[_Token]:
        place, text = 0, text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None or found.lastgroup is None:
                raise BadExpression(f"cannot read {text[place:]!r} in {text!r}")
            yield _Token(found.lastgroup, found[found.lastgroup])
            place = found.end()

    def _level(self, number: int) -> _Step:
        if number == len(_LEVELS):
            return self._operand()
        left = self._level(number + 1)
        while (token := self._peek()) is not None and token.text in _LEVELS[number]:
            self._at += 1
            on = self._names() if self._takes("on") else None
            left = _combined(token.text, left, self._level(number + 1), on)
        return left

    def _operand(self) -> _Step:
        token = self._next()
        if token.kind == "number":
            number = float(token.text)
            return lambda _: number
        if token.text == "(":
            inner = self._level(0)
            self._must(")")
            return inner
        if token.kind != "word":
            raise self._wrong()
        if token.text in _AGGREGATES:
            return self._aggregate(_AGGREGATES[token.text])
        if token.text in _RATES:
            return self._rate(token.text)
        return self._selector(token.text)

    def _aggregate(self, fold: Callable[[Sequence[float]], float]) -> _Step:
        by = self._names() if self._takes("by") else ()
        self._must("(")
        inner = self._level(0)
        self._must(")")
        return lambda source: _aggregated(_vector(inner(source)), by, fold)

    def _rate(self, function: str) -> _Step:
        self._must("(")
        name = self._next().text
        matches = self._matchers()
        token = self._next()
        if token.kind != "range":
            raise self._wrong()
        self._must(")")
        seconds = parse_duration(token.text[1:-1]).total_seconds()
        share = 1 / seconds if function == "rate" else 1.0
        return lambda source: {
            frozenset(labels.items()): value * share
            for labels, value in (source.delta if function == "delta" else source.increase)(name, seconds)
            if matches(labels)
        }

    def _selector(self, name: str) -> _Step:
        matches = self._matchers()
        return lambda source: {
            frozenset(labels.items()): value for labels, value in source.instant(name) if matches(labels)
        }

    def _matchers(self) -> Callable[[Mapping[str, str]], bool]:
        asked: list[tuple[str, str, str]] = []
        if self._takes("{"):
            while not self._takes("}"):
                name, how, value = self._next().text, self._next().text, self._next().text[1:-1]
                asked.append((name, how, value))
                self._takes(",")
        return lambda labels: all(_fits(labels.get(name, ""), how, value) for name, how, value in asked)

    def _names(self) -> tuple[str, ...]:
        self._must("(")
        found: list[str] = []
        while not self._takes(")"):
            found.append(self._next().text)
            self._takes(",")
        return tuple(found)

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> _Token:
        token = self._peek()
        if token is None:
            raise self._wrong()
        self._at += 1
        return token

    def _takes(self, text: str) -> bool:
        token = self._peek()
        if token is None or token.text != text:
            return False
        self._at += 1
        return True

    def _must(self, text: str) -> None:
        if not self._takes(text):
            raise self._wrong()

    def _wrong(self) -> BadExpression:
        token = self._peek()
        where = "its end" if token is None else repr(token.text)
        return BadExpression(f"not understood at {where}: {self._expression!r}")


# --- computing ----------------------------------------------------------------------------------


def _combined(operator: str, left: _Step, right: _Step, on: tuple[str, ...] | None) -> _Step:
    def step(source: Source) -> Result:
        a, b = left(source), right(source)
        if operator in ("and", "or", "unless"):
            return _set(operator, _vector(a), _vector(b), on)
        if operator in _COMPARE:
            return _compared(_COMPARE[operator], a, b, on)
        return _computed(_ARITHMETIC[operator], a, b, on)

    return step


def _computed(
    operator: Callable[[float, float], float], a: Result, b: Result, on: tuple[str, ...] | None
) -> Result:
    if isinstance(a, float) and isinstance(b, float):
        return operator(a, b)
    return {labels: operator(*pair) for labels, pair in _pairs(a, b, on)}


def _compared(
    holds: Callable[[float, float], bool], a: Result, b: Result, on: tuple[str, ...] | None
) -> Result:
    """What is compared stays if the comparison holds, with the value on its left."""
    if isinstance(a, float) and isinstance(b, float):
        return float(holds(a, b))
    value = 0 if isinstance(a, dict) else 1
    return {labels: pair[value] for labels, pair in _pairs(a, b, on) if holds(*pair)}


def _pairs(a: Result, b: Result, on: tuple[str, ...] | None) -> Iterator[tuple[Labels, tuple[float, float]]]:
    if isinstance(a, float):
        for labels, value in _vector(b).items():
            yield labels, (a, value)
    elif isinstance(b, float):
        for labels, value in a.items():
            yield labels, (value, b)
    else:
        others = {_key(labels, on): value for labels, value in b.items()}
        for labels, value in a.items():
            if (key := _key(labels, on)) in others:
                yield labels, (value, others[key])


def _set(operator: str, a: Vector, b: Vector, on: tuple[str, ...] | None) -> Vector:
    there = {_key(labels, on) for labels in b}
    if operator == "or":
        here = {_key(labels, on) for labels in a}
        return {**a, **{labels: value for labels, value in b.items() if _key(labels, on) not in here}}
    wanted = operator == "and"
    return {labels: value for labels, value in a.items() if (_key(labels, on) in there) is wanted}


def _aggregated(vector: Vector, by: Sequence[str], fold: Callable[[Sequence[float]], float]) -> Vector:
    groups: dict[Labels, list[float]] = {}
    for labels, value in vector.items():
        groups.setdefault(_key(labels, by), []).append(value)
    return {labels: float(fold(values)) for labels, values in groups.items()}


def _key(labels: Labels, on: Sequence[str] | None) -> Labels:
    return labels if on is None else frozenset((name, value) for name, value in labels if name in on)


def _vector(result: Result) -> Vector:
    if isinstance(result, float):
        raise BadExpression("a number stands where series are needed")
    return result


def _fits(value: str, how: str, wanted: str) -> bool:
    match how:
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case "=~":
            return re.fullmatch(wanted, value) is not None
        case _:
            raise BadExpression(f"unknown matcher {how!r}")
