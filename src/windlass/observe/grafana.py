"""Which charts does an operator want in Grafana? A dashboard that is written from this list."""

from __future__ import annotations

import json
from typing import Any

import msgspec


class Panel(msgspec.Struct, frozen=True):
    """One chart: its title, its unit, and its lines as (expression, legend)."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 12


_TYPE = 'type=~"$type"'


def _rate(metric: str) -> str:
    # The largest of what several servers say, which all say the same.
    return f"max by (type) (rate({metric}{{{_TYPE}}}[$__rate_interval]))"


def _of_attempts(metric: str) -> str:
    """So much for each attempt, by release."""
    of, each = (
        f"sum by (version) (rate({name}{{{_TYPE}}}[$__rate_interval]))"
        for name in (metric, "windlass_release_attempts_total")
    )
    return f"{of} / {each}"


def _quantile(share: str, measure: str) -> str:
    return (
        f"histogram_quantile({share}, sum by (le, type) "
        f"(rate(windlass_job_{measure}_seconds_bucket{{{_TYPE}}}[$__rate_interval])))"
    )


def _claim(share: str) -> str:
    # Several servers say the same: adding up their buckets leaves the quantile as it is.
    return f"histogram_quantile({share}, sum by (le) (rate(windlass_claim_seconds_bucket[$__rate_interval])))"


def _of_release(share: str) -> str:
    buckets = f"windlass_release_duration_seconds_bucket{{{_TYPE}}}"
    return f"histogram_quantile({share}, sum by (le, version) (rate({buckets}[$__rate_interval])))"


_SENT_AWAY = (
    "max by (service, result) "
    '(rate(windlass_service_requests_total{result=~"refused|broken"}[$__rate_interval])) > 0'
)
_BUSY = 'max by (pool) (windlass_pool_slots{state="busy"}) / max by (pool) (windlass_pool_slots{state="all"})'

PANELS: tuple[Panel, ...] = (
    Panel("Store answers", "short", (("min(windlass_store_up)", "up"),), "stat", 4),
    Panel("Workers alive", "short", (('max(windlass_workers{state="alive"})', "alive"),), "stat", 4),
    Panel("Workers wanted", "short", (("max(windlass_desired_workers)", "desired"),), "stat", 4),
    Panel(
        "Due",
        "short",
        (('sum(max by (type, priority) (windlass_queue_depth{view="due"}))', "due"),),
        "stat",
        4,
    ),
    Panel("Oldest due", "s", (("max(windlass_oldest_due_age_seconds)", "oldest"),), "stat", 4),
    Panel("Dead letters", "short", (("sum(max by (type) (windlass_dlq_depth))", "dead"),), "stat", 4),
    Panel(
        "Enqueued and completed",
        "ops",
        (
            (_rate("windlass_jobs_enqueued_total"), "{{type}} enqueued"),
            (_rate("windlass_jobs_completed_total"), "{{type}} completed"),
        ),
    ),
    Panel(
        "Failed and dead",
        "ops",
        (
            (_rate("windlass_jobs_failed_total"), "{{type}} failed"),
            (_rate("windlass_jobs_dead_total"), "{{type}} dead"),
        ),
    ),
    Panel(
        "Waiting, by view",
        "short",
        (
            (
                f"sum by (type, view) (max by (type, priority, view) (windlass_queue_depth{{{_TYPE}}}))",
                "{{type}} {{view}}",
            ),
        ),
    ),
    Panel(
        "Oldest due job, by priority",
        "s",
        (
            (
                f"max by (type, priority) (windlass_oldest_due_age_seconds{{{_TYPE}}})",
                "{{type}} priority {{priority}}",
            ),
        ),
    ),
    Panel(
        "Wait", "s", ((_quantile("0.5", "wait"), "{{type}} p50"), (_quantile("0.99", "wait"), "{{type}} p99"))
    ),
    Panel(
        "Run", "s", ((_quantile("0.5", "run"), "{{type}} p50"), (_quantile("0.99", "run"), "{{type}} p99"))
    ),
    Panel("From end to end", "s", ((_quantile("0.99", "end_to_end"), "{{type}} p99"),)),
    Panel(
        "Failures by reason",
        "ops",
        (
            (
                f"max by (type, reason) (rate(windlass_job_failures_total{{{_TYPE}}}[$__rate_interval])) > 0",
                "{{type}} {{reason}}",
            ),
        ),
    ),
    Panel(
        "Failures by class of error",
        "ops",
        (
            (
                f"max by (type, error) (rate(windlass_job_errors_total{{{_TYPE}}}[$__rate_interval])) > 0",
                "{{type}} {{error}}",
            ),
        ),
    ),
    Panel(
        "Run, by release",
        "s",
        tuple((_of_release(share), f"{{{{version}}}} p{share[2:]}") for share in ("0.50", "0.99")),
    ),
    Panel(
        "Share of attempts that fail, by release",
        "percentunit",
        ((_of_attempts("windlass_release_failures_total"), "{{version}}"),),
    ),
    Panel(
        "Average run, by release",
        "s",
        ((_of_attempts("windlass_release_run_seconds_total"), "{{version}}"),),
    ),
    Panel(
        "Slots",
        "short",
        (("max by (state) (windlass_slots)", "{{state}}"),),
    ),
    Panel("Workers, by pool", "short", (("max by (pool) (windlass_pool_workers)", "{{pool}}"),)),
    Panel("Share of slots that are busy, by pool", "percentunit", ((_BUSY, "{{pool}}"),)),
    Panel(
        "Claim",
        "s",
        tuple((_claim(share), f"p{share.removeprefix('0.')}") for share in ("0.50", "0.99")),
    ),
    Panel(
        "Claims, and errors of the store",
        "ops",
        (
            ("max by (result) (rate(windlass_claims_total[$__rate_interval]))", "claims {{result}}"),
            (
                "max by (part, error) (rate(windlass_store_errors_total[$__rate_interval]))",
                "{{part}}: store {{error}}",
            ),
        ),
    ),
    Panel(
        "Enqueued and confirmed",
        "ops",
        (
            (_rate("windlass_jobs_enqueued_total"), "{{type}} enqueued"),
            (_rate("windlass_jobs_confirmed_total"), "{{type}} confirmed"),
        ),
    ),
    Panel(
        "Workers that died, and records that were pruned",
        "short",
        (
            ('max(windlass_workers{state="missing"})', "missing"),
            (
                "max by (worker) (increase(windlass_worker_place_restarts_total[1h])) > 0",
                "{{worker}} restarts",
            ),
            ("max(increase(windlass_records_pruned_total[1h]))", "pruned"),
        ),
    ),
    Panel(
        "Leases and late results",
        "ops",
        (
            ("max(rate(windlass_leases_renewed_total[$__rate_interval]))", "renewed"),
            ("max(rate(windlass_leases_lost_total[$__rate_interval]))", "lost"),
            (_rate("windlass_jobs_reaped_total"), "{{type}} reaped"),
            (_rate("windlass_results_late_total"), "{{type}} late"),
        ),
    ),
    Panel(
        "Enqueue requests over HTTP",
        "ops",
        (("max by (result) (rate(windlass_enqueue_requests_total[$__rate_interval]))", "{{result}}"),),
    ),
    Panel(
        "Enqueued over HTTP, by service",
        "ops",
        (
            (
                "max by (service) (rate(windlass_service_enqueued_total[$__rate_interval]))",
                "{{service}}",
            ),
            (_SENT_AWAY, "{{service}} {{result}}"),
        ),
    ),
    Panel(
        "Sent away over HTTP (429 and 5xx)",
        "ops",
        (
            (
                "max by (route, status) (rate(windlass_http_refusals_total[$__rate_interval]))",
                "{{status}} {{route}}",
            ),
        ),
    ),
    Panel(
        "Held back",
        "short",
        (
            (f"max by (type) (windlass_type_paused{{{_TYPE}}}) > 0", "{{type}} paused"),
            ("max by (breaker) (windlass_breaker_open) > 0", "{{breaker}} open"),
        ),
    ),
    Panel(
        "Waiting, of the tenants that are named",
        "short",
        (('max by (tenant) (windlass_tenant_jobs{view="due"})', "{{tenant}}"),),
    ),
)


def dashboard() -> str:
    """The dashboard, in JSON."""
    return json.dumps(_document(), indent=2) + "\n"


def _document() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(PANELS, 1):
        height = _LOW if panel.kind == "stat" else _HIGH
        panels.append(_panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
        if x >= _WIDTH:
            x, y = 0, y + height
    return {
        "uid": "windlass",
        "title": "Windlass",
        "tags": ["windlass"],
        "timezone": "browser",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source(), _types()]},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (expression, legend) in enumerate(panel.lines)
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _types() -> dict[str, Any]:
    return {
        "name": "type",
        "type": "query",
        "label": "Type",
        "datasource": _SOURCE,
        "query": {"query": "label_values(windlass_jobs_enqueued_total, type)", "refId": "types"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_LOW = 4
_HIGH = 8
