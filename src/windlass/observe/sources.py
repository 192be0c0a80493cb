"""Where do an expression's values come from, if there is no Prometheus? From the store's own history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from windlass.observe import metrics, names
from windlass.observe.counted import Shown, counted
from windlass.observe.expose import Family
from windlass.observe.gather import Facts, away, families, shown
from windlass.observe.promql import Series
from windlass.store.store import Store


class StoreSource:
    """Metrics as a scrape would show them now, and what was counted in a stretch of time before now."""

    def __init__(self, store: Store | None, facts: Facts | None) -> None:
        """Without facts the store is away, and that is all that can be said."""
        self._store = store
        self._shown = Shown([]) if facts is None else shown(facts)
        self._now = _by_name(away() if facts is None else families(facts))
        self._before: dict[float, dict[str, Series]] = {}

    def instant(self, name: str) -> Series:
        """The newest values."""
        return self._now.get(name, ())

    def increase(self, name: str, seconds: float) -> Series:
        """By how much they rose; nothing was counted while the store is away."""
        if self._store is None:
            return ()
        if seconds not in self._before:
            stretch = timedelta(seconds=seconds)
            amounts = self._store.increases([stretch])[stretch]
            self._before[seconds] = _by_name(counted(amounts, self._shown))
        return self._before[seconds].get(name, ())

    def delta(self, name: str, seconds: float) -> Series:
        """By how much they changed; of a type of which nobody knew then nothing can be said."""
        kept = _KEPT.get(name)
        if self._store is None or kept is None:
            return ()
        before: Counter[str] = Counter()
        for job_type, value in self._store.gauge_at(kept, timedelta(seconds=seconds)).items():
            before[self._shown.label(job_type)] += value
        return [
            (labels, value - before[labels["type"]])
            for labels, value in self.instant(name)
            if labels["type"] in before
        ]


# Gauges whose past the store keeps.
_KEPT = {metrics.QUEUE_DUE.name: names.DUE}


def _by_name(found: Sequence[Family]) -> dict[str, Series]:
    series: dict[str, list[tuple[dict[str, str], float]]] = {}
    for each in found:
        for value in each.values:
            series.setdefault(each.metric.name + value.suffix, []).append((dict(value.labels), value.value))
    return dict(series)
