"""Is what is exposed whole, well named, and what the files and the page say?"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.observe.scene import MAIL, Stage, parsed, staged
from windlass.observe import gather, names
from windlass.observe.alerts import ALERTS, RUNBOOK
from windlass.observe.expose import family, render
from windlass.observe.metrics import COUNTED, FAILURES, METRICS, OWN, REQUESTS, STANDING, Kind, Metric
from windlass.worker.exposing import expose
from windlass.worker.health import Health

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "windlass.rules.yml"


def _busy(stage: Stage) -> None:
    stage.enqueue(5)
    stage.enqueue(1, type='od"d')
    stage.work(3)
    stage.look()


def test_a_scrape_is_read_by_prometheus_own_client_and_has_every_metric_once(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        _busy(stage)
        found = list(text_string_to_metric_families(stage.ops.scrape()))
    told = {each.name: each for each in found}
    assert len(told) == len(found)
    for metric in (*COUNTED, FAILURES, REQUESTS, *STANDING):
        each = told[metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name]
        assert each.type == metric.kind
        assert each.documentation == metric.help
        for sample in each.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_a_worker_exposes_its_own_metrics_and_no_others() -> None:
    found = parsed(expose([Health(ok=True, worker="w1", slots=10, busy=3, done=7, resident_bytes=9)]))
    assert set(found) == {metric.name for metric in OWN}
    assert found["windlass_worker_completed_total"] == [({"worker": "w1"}, 7.0)]
    assert found["windlass_worker_resident_bytes"] == [({"worker": "w1"}, 9.0)]
    assert not {metric.name for metric in OWN} & {metric.name for metric in (*COUNTED, *STANDING)}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_keep_to_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"windlass_[a-z][a-z_]*[a-z]", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert not re.search(r"_(ms|milliseconds|minutes|hours|count|sum|bucket)$", metric.name)
    assert "seconds" not in metric.help or metric.name.endswith(("_seconds", "_jobs", "_total"))
    assert "tenant" not in metric.labels
    assert metric.help
    assert not metric.help.endswith(".")


def test_the_names_that_are_promised_are_there() -> None:
    promised = {
        "windlass_queue_depth": ("type", "priority", "view"),
        "windlass_dlq_depth": ("type",),
        "windlass_oldest_due_age_seconds": ("type", "priority"),
        **{f"windlass_jobs_{what}_total": ("type",) for what in ("enqueued", "completed", "failed", "dead")},
    }
    assert promised.items() <= {metric.name: metric.labels for metric in METRICS}.items()


def test_two_servers_say_the_same_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        _busy(stage)
        first = stage.ops.scrape()
    with staged(tmp_path) as again:
        again.beat()
        second = again.ops.scrape()
    steady = [line for line in first.splitlines() if "_seconds" not in line or "bucket" in line]
    assert steady == [line for line in second.splitlines() if "_seconds" not in line or "bucket" in line]


def test_types_beyond_the_bound_are_counted_together(tmp_path: Path) -> None:
    many = gather.MOST_TYPES + 5
    with staged(tmp_path) as stage:
        stage.store.add_history({(f"t{number:04}", names.COMPLETED): 2 for number in range(many)})
        completed = parsed(stage.ops.scrape())["windlass_jobs_completed_total"]
    assert len(completed) == gather.MOST_TYPES + 1
    assert completed[-1] == ({"type": "other"}, 10.0)
    assert sum(value for _, value in completed) == 2 * many


def test_odd_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    text = render(
        [family(Metric(name="windlass_odd", kind=Kind.GAUGE, help="x", labels=("type",)), [((odd,), 1)])]
    )
    assert parsed(text)["windlass_odd"] == [({"type": odd}, 1.0)]


def test_a_store_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.hide()
        assert parsed(stage.ops.scrape()) == {"windlass_store_up": [({}, 0.0)]}


def test_history_is_a_point_for_each_minute_and_type(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.clock.advance(5)
        _busy(stage)
        stage.minutes(3)
        [mail, odd] = stage.ops.history().series
        assert (mail.type, odd.type) == (MAIL, 'od"d')
        assert [point.completed for point in mail.points[-4:]] == [3, 0, 0, 0]
        assert [point.depth for point in mail.points[-4:]] == [2, 2, 2, 2]
        assert mail.points[-4].run_ms == 1_000.0
        assert mail.points[-1].run_ms is None
        assert mail.points[-1].oldest_due_age == 180.0
        assert len(mail.points) == 181


# --- files --------------------------------------------------------------------------------------


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("observability", ROOT / "scripts" / "observability.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rule_file_the_dashboard_and_the_page_are_what_the_tables_say() -> None:
    for path, text in _script().files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run scripts/observability.py"


def test_the_page_has_every_metric_and_alert() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    for name in (*(metric.name for metric in METRICS), *(alert.name for alert in ALERTS)):
        assert f"| `{name}` |" in page


@pytest.mark.skipif(not (ROOT / RUNBOOK).exists(), reason="there is no runbook")
def test_every_alert_names_an_entry_of_the_runbook() -> None:
    heads = re.findall(r"^## (.+)$", (ROOT / RUNBOOK).read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert {alert.anchor for alert in ALERTS} <= anchors


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "windlass.json").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"windlass_\w+", target["expr"])
    }
    known = {metric.name for metric in METRICS}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool: apt-get install prometheus")
def test_promtool_takes_the_rule_file_and_the_scrape(tmp_path: Path) -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    with staged(tmp_path) as stage:
        _busy(stage)
        text = stage.ops.scrape()
    linted = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stderr
