"""Which alerts hold now, and have they held for long enough?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

import msgspec

from windlass.observe.alerts import ALERTS, BY_NAME, Alert
from windlass.observe.promql import Source, evaluate
from windlass.store.history import Noticed


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
        return self.alert.summary.format_map(_Known(self.labels))


class _Known(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def holding(source: Source) -> dict[tuple[str, str], float]:
    """Which conditions hold now: values by name and labels, as the store keeps them."""
    return {
        (alert.name, labels_text(dict(labels))): value
        for alert in ALERTS
        for labels, value in evaluate(alert.expression, source).items()
    }


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as the store keeps them: the same labels are the same text."""
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


def first_noticed(of: tuple[str, str], value: float, now: datetime) -> Noticed:
    """Something that holds, and of which nobody knew."""
    return Noticed(name=of[0], labels=of[1], since=now, seen_at=now, value=value)


def judge(noticed: Noticed, now: datetime) -> Firing:
    """Whether something that holds has held for long enough."""
    alert = BY_NAME[noticed.name]
    return Firing(
        alert=alert,
        labels=json.loads(noticed.labels),
        value=noticed.value,
        since=noticed.since,
        fires=now - noticed.since >= alert.lasting,
    )
