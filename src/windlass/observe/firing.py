"""Which alerts hold by the store's own values, and which of them have held for long enough to fire.

Also the rule file for Prometheus, which judges the same alerts by what it scraped.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass.observe import names
from windlass.observe.alerts import ALERTS, BY_NAME, RUNBOOK, Alert
from windlass.observe.exposition import Family, Shown, counted
from windlass.observe.gather import Facts, away, families, shown
from windlass.observe.measures import Measures, Series
from windlass.store.history import Noticed
from windlass.store.store import Store


class StoreMeasures(Measures):
    """Metrics as a scrape would show them now, and what was counted in the time before now."""

    def __init__(self, store: Store | None, facts: Facts | None) -> None:
        """Without facts the store is away, and that is the only thing known."""
        self._store = store
        self._shown = Shown([]) if facts is None else shown(facts)
        self._now = _by_name(away() if facts is None else families(facts))
        self._before: dict[timedelta, dict[str, Series]] = {}

    def now(self, name: str) -> Series:
        """The newest values."""
        return self._now.get(name) or _NOTHING

    def increase(self, name: str, within: timedelta) -> Series:
        """By how much they rose; nothing was counted while the store is away."""
        if self._store is None:
            return _NOTHING
        if within not in self._before:
            amounts = self._store.increases([within])[within]
            self._before[within] = _by_name(counted(amounts, self._shown))
        return self._before[within].get(name, _NOTHING)

    def delta(self, name: str, within: timedelta) -> Series:
        """By how much they changed; a type that was unknown then is left out."""
        kept = _KEPT.get(name)
        if self._store is None or kept is None:
            return _NOTHING
        before: Counter[str] = Counter()
        for job_type, value in self._store.gauge_at(kept, within).items():
            before[self._shown.label(job_type)] += value
        return Series(
            (labels, value - before[job_type])
            for labels, value in self.now(name).items()
            if (job_type := dict(labels)["type"]) in before
        )


# Gauges whose past the store keeps.
_KEPT = {"windlass_queue_due": names.DUE}
_NOTHING = Series()


def _by_name(found: Sequence[Family]) -> dict[str, Series]:
    series: dict[str, Series] = {}
    for each in found:
        for value in each.values:
            of = series.setdefault(each.metric.name + value.suffix, Series())
            of[frozenset(value.labels)] = value.value
    return series


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert whose condition holds now."""

    alert: Alert
    labels: Mapping[str, str]
    value: float
    since: datetime
    # Whether it has held for long enough.
    fires: bool

    @property
    def summary(self) -> str:
        """What is wrong, with the labels filled in."""
        return self.alert.summary.format_map(defaultdict(lambda: "?", self.labels))


def holding(measures: Measures) -> dict[tuple[str, str], float]:
    """Which conditions hold now: values by name and labels, as the store keeps them."""
    return {
        (alert.name, labels_text(dict(labels))): value
        for alert in ALERTS
        for labels, value in alert.condition.read(measures).items()
    }


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as the store keeps them: the same labels are the same text."""
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


def first_noticed(of: tuple[str, str], value: float, now: datetime) -> Noticed:
    """A condition that holds and was not known before."""
    return Noticed(name=of[0], labels=of[1], since=now, seen_at=now, value=value)


def judge(noticed: Noticed, now: datetime) -> Firing:
    """Whether a condition has held for long enough."""
    alert = BY_NAME[noticed.name]
    return Firing(
        alert=alert,
        labels=json.loads(noticed.labels),
        value=noticed.value,
        since=noticed.since,
        fires=now - noticed.since >= alert.lasting,
    )


_HEAD = """\
# Written by `windlass alerts --rules`, and compared by a test: change windlass/observe/alerts.py instead.
groups:
  - name: windlass
    rules:
"""


def rules() -> str:
    """The rule file, in YAML."""
    return _HEAD + "".join(_rule(alert) for alert in ALERTS)


def _rule(alert: Alert) -> str:
    # Labels in the way that Prometheus fills them in.
    summary = re.sub(r"\{(\w+)\}", r"{{ $labels.\1 }}", alert.summary)
    # JSON strings are YAML strings, too.
    return f"""\
      - alert: {alert.name}
        expr: {json.dumps(alert.condition.text)}
        for: {alert.after}
        labels:
          severity: {alert.severity}
        annotations:
          summary: {json.dumps(summary)}
          runbook_url: {json.dumps(f"{RUNBOOK}#{alert.anchor}")}
"""
