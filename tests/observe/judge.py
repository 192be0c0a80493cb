"""Compare our predicates with Prometheus: its own engine judges the expressions on the same scrapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.observe.scene import APART, Scrape, Scrapes
from tests.servers.prometheus import promtool
from windlass.observe.alerts import Alert

Moment = tuple[float, set[frozenset[tuple[str, str]]]]


class Judged:
    """One alert, judged by its predicate at several moments of a stage, and by Prometheus afterwards."""

    def __init__(self, alert: Alert, scrapes: Scrapes) -> None:
        self._alert = alert
        self._expression = alert.condition.text
        self._scrapes = scrapes
        self._moments: list[Moment] = []

    def holds(self) -> bool:
        """Whether it holds now, by its predicate; that is remembered."""
        found = self._alert.condition.read(self._scrapes)
        self._moments.append((self._scrapes.last, set(found)))
        return bool(found)

    def compare(self, folder: Path) -> None:
        """Prometheus finds it to hold for the same series, at each of these moments."""
        scrapes = [(self._tick(at), scrape) for at, scrape in self._scrapes.all]
        test = {
            "interval": f"{APART}s",
            "input_series": list(_series(self._expression, scrapes)),
            "promql_expr_test": [self._expected(self._tick(at), found) for at, found in self._moments],
        }
        file = folder / "test.yml"
        # What is JSON is YAML as well.
        file.write_text(json.dumps({"evaluation_interval": f"{APART}s", "tests": [test]}))
        promtool("test", "rules", file)

    def _tick(self, at: float) -> int:
        """When that was, in steps of a few seconds; without a stretch in it only the order matters."""
        if "[" in self._expression:
            return round(at / APART)
        return [when for when, _ in self._scrapes.all].index(at)

    def _expected(self, tick: int, found: Iterable[frozenset[tuple[str, str]]]) -> dict[str, object]:
        # The values differ, since Prometheus extrapolates: compared is for which series it holds.
        return {
            "expr": f"clamp({self._expression}, 1, 1)",
            "eval_time": f"{tick * APART}s",
            "exp_samples": [{"labels": _labels(dict(labels)), "value": 1} for labels in found],
        }


def _series(expression: str, scrapes: Sequence[tuple[int, Scrape]]) -> Iterable[dict[str, str]]:
    """What was scraped of the metrics that an expression names."""
    wanted = set(re.findall(r"windlass_\w+", expression))
    series: dict[str, dict[int, float]] = {}
    for tick, scrape in scrapes:
        for name in wanted & scrape.keys():
            for labels, value in scrape[name]:
                series.setdefault(name + _labels(labels), {})[tick] = value
    for name, samples in series.items():
        yield {"series": name, "values": " ".join(_values(samples, [tick for tick, _ in scrapes]))}


def _values(samples: Mapping[int, float], ticks: Iterable[int]) -> Iterable[str]:
    """Nothing between two scrapes; what a scrape shows no longer is gone at once, as Prometheus has it."""
    following = 0
    for tick in ticks:
        if tick > following:
            yield f"_x{tick - following}"
        yield repr(samples[tick]) if tick in samples else "stale"
        following = tick + 1


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items())) + "}"
