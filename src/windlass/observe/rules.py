"""How does Prometheus learn of our alerts? By a rule file that is written from the table, never by hand."""

from __future__ import annotations

import json
import re
from datetime import timedelta

from windlass.observe.alerts import ALERTS, RUNBOOK, Alert

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
    # A text in JSON is one in YAML as well, whatever stands in it.
    lines = [
        f"      - alert: {alert.name}",
        f"        expr: {json.dumps(alert.expression)}",
        f"        for: {_span(alert.lasting)}",
        "        labels:",
        f"          severity: {alert.severity}",
        "        annotations:",
        f"          summary: {json.dumps(_template(alert.summary))}",
        f"          runbook_url: {json.dumps(f'{RUNBOOK}#{alert.anchor}')}",
    ]
    return "\n".join([*lines, ""])


def _span(lasting: timedelta) -> str:
    seconds = int(lasting.total_seconds())
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"


def _template(summary: str) -> str:
    """Labels in the way that Prometheus fills them in."""
    return re.sub(r"\{(\w+)\}", r"{{ $labels.\1 }}", summary)
