"""How do metrics look on the wire? As text that Prometheus reads, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windlass.observe.metrics import Metric

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Value(msgspec.Struct, frozen=True):
    """One line: what stands behind the metric's name, the labels, the value."""

    suffix: str
    labels: Labels
    value: float


class Family(msgspec.Struct, frozen=True):
    """A metric with all its values."""

    metric: Metric
    values: list[Value]


def family(metric: Metric, values: Iterable[tuple[Sequence[str], float]]) -> Family:
    """A counter or gauge; each value comes with its labels' values in the metric's order."""
    return Family(
        metric,
        [Value("", tuple(zip(metric.labels, labels, strict=True)), float(value)) for labels, value in values],
    )


def histogram(
    metric: Metric, bounds: Sequence[float], measured: Iterable[tuple[Sequence[str], Sequence[int], float]]
) -> Family:
    """A histogram: of each series its labels' values, how many fell into each bucket, and the sum."""
    values: list[Value] = []
    for named, buckets, total in measured:
        labels = tuple(zip(metric.labels, named, strict=True))
        count = 0
        for bound, number in zip((*map(_number, bounds), "+Inf"), buckets, strict=True):
            count += number
            values.append(Value("_bucket", (*labels, ("le", bound)), count))
        values += [Value("_sum", labels, total), Value("_count", labels, count)]
    return Family(metric, values)


def render(families: Iterable[Family]) -> str:
    """The whole text."""
    lines: list[str] = []
    for each in families:
        metric = each.metric
        lines += [f"# HELP {metric.name} {_escaped(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [
            f"{metric.name}{value.suffix}{_labels(value.labels)} {_number(value.value)}"
            for value in each.values
        ]
    return "\n".join([*lines, ""])


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
