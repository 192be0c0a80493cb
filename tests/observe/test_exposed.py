"""Is what is exposed whole, well named, and what the files and the page say?"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from tests.observe.scene import DEAD, MAIL, REPORT, Stage, parsed, staged
from tests.waiting import PATIENCE, until
from windlass.cli.metrics import alerts
from windlass.errors import InvalidValue, StoreBusy, StoreUnavailable
from windlass.job import Error, Reason
from windlass.loop import Loop
from windlass.observe import exposition, names
from windlass.observe.alerts import ALERTS, RUNBOOK
from windlass.observe.exposition import family, render
from windlass.observe.fleet import SILENT_AFTER
from windlass.observe.gather import swings
from windlass.observe.metrics import METRICS, OWN, SERVICES, TENANTS, Kind, Metric
from windlass.ops.access import KeyWish
from windlass.outcome import Again
from windlass.store.fleet import PoolInfo
from windlass.store.upkeep import Retention
from windlass.upkeep.maintenance import Pruner
from windlass.worker.health import Health, expose

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "windlass.rules.yml"
SERVERS = [metric for metric in METRICS if metric not in OWN]


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
    assert len(found) == len(SERVERS)
    for metric in SERVERS:
        each = told[metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name]
        assert each.type == metric.kind
        assert each.documentation == metric.help
        for sample in each.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_a_worker_exposes_its_own_metrics_and_no_others() -> None:
    health = Health(ok=True, worker="w1", slots=10, busy=3, done=7, app="2.4.1", resident_bytes=9)
    health = msgspec.structs.replace(health, ticks_failed={"claimer": 2})
    found = parsed(expose([health]))
    assert set(found) == {metric.name for metric in OWN}
    assert found["windlass_worker_completed_total"] == [({"worker": "w1"}, 7.0)]
    failed = [({"worker": "w1", "part": "claimer"}, 2.0)]
    assert found["windlass_worker_ticks_failed_total"] == failed
    assert found["windlass_worker_resident_bytes"] == [({"worker": "w1"}, 9.0)]
    assert found["windlass_worker_info"] == [({"worker": "w1", "version": "2.4.1"}, 1.0)]
    assert not {metric.name for metric in OWN} & {metric.name for metric in SERVERS}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_keep_to_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"windlass_[a-z][a-z_]*[a-z]", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert not re.search(r"_(ms|milliseconds|minutes|hours|count|sum|bucket)$", metric.name)
    assert "seconds" not in metric.help or metric.name.endswith(("_seconds", "_jobs", "_total"))
    assert ("tenant" in metric.labels) == (metric in TENANTS)
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


def test_a_worker_that_says_nothing_any_more_is_alive_for_one_time_out_and_no_longer(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for name in ("worker-2", "worker-3"):
            stage.worker(name)
        alive: list[float] = []
        for _ in range(SILENT_AFTER // timedelta(seconds=1) + 2):
            stage.clock.advance(1)
            for name in ("worker-1", "worker-2"):
                stage.beat(name)
            states = {labels["state"]: value for labels, value in stage.scrape()["windlass_workers"]}
            alive.append(states["alive"])
        assert alive == [3] * (SILENT_AFTER // timedelta(seconds=1)) + [2] * 2


def test_types_beyond_the_bound_are_counted_together(tmp_path: Path) -> None:
    # Two are registered already.
    many = exposition.MOST_TYPES + 3
    with staged(tmp_path) as stage:
        stage.store.add_history({(f"t{number:04}", names.COMPLETED): 2 for number in range(many)})
        completed = parsed(stage.ops.scrape())["windlass_jobs_completed_total"]
    assert len(completed) == exposition.MOST_TYPES + 1
    assert completed[-1] == ({"type": "other"}, 10.0)
    assert sum(value for _, value in completed) == 2 * many


def test_pools_beyond_the_bound_are_counted_together(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for number in range(60):
            stage.worker(f"w{number}", pools={f"p{number:02}": PoolInfo(2, busy=1), "threads": PoolInfo(3)})
        found = parsed(stage.ops.scrape())
    workers = {labels["pool"]: value for labels, value in found["windlass_pool_workers"]}
    # The commonest first: those of all, and one more that came before.
    assert (len(workers), workers["threads"], workers["other"]) == (51, 61, 11)
    slots = {tuple(labels.values()): value for labels, value in found["windlass_pool_slots"]}
    assert (slots["threads", "all"], slots["other", "all"], slots["other", "busy"]) == (190, 22, 11)
    assert sum(value for (_, state), value in slots.items() if state == "busy") == 60


def test_services_are_labels_for_those_with_a_key_to_produce_the_first_ones_alone(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        assert not {metric.name for metric in SERVICES} & set(parsed(stage.ops.scrape()))
        for number in range(exposition.MOST_SERVICES + 2):
            stage.clock.advance(1)
            stage.ops.create_key(KeyWish(name=f"s{number:02}", roles=("producer",)))
        # Who has two keys is one service, and who does not produce is none.
        stage.ops.create_key(KeyWish(name="s00", roles=("admin",)))
        stage.ops.create_key(KeyWish(name="prometheus", roles=("viewer",)))
        stage.store.add_history({("", names.of_service("s00", names.ENQUEUED)): 3})
        stage.store.add_history({("", names.of_service("other", names.REFUSED)): 2})
        found = parsed(stage.ops.scrape())
        report = stage.ops.metrics()
    enqueued = {labels["service"]: value for labels, value in found["windlass_service_enqueued_total"]}
    assert [*enqueued] == [*(f"s{number:02}" for number in range(exposition.MOST_SERVICES)), "other"]
    assert {name for name, value in enqueued.items() if value} == {"s00"}
    requests = {tuple(each.values()): value for each, value in found["windlass_service_requests_total"]}
    assert {of: value for of, value in requests.items() if value} == {("other", "refused"): 2.0}
    assert [(each.service, each.enqueued, each.refused) for each in report.services] == [
        ("s00", 3, 0),
        ("other", 0, 2),
    ]


def test_tenants_are_labels_only_where_operators_name_them(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for tenant in ("acme", "globex", ""):
            stage.enqueue(2, tenant=tenant)
        stage.work(1)
        stage.look()
        assert not {metric.name for metric in TENANTS} & set(parsed(stage.ops.scrape()))
        stage.ops.set_settings({"metrics.tenants": "acme"})
        stage.follow()
        stage.work(4)
        stage.look()
        found = parsed(stage.ops.scrape())
    done = {labels["tenant"]: value for labels, value in found["windlass_tenant_completed_total"]}
    assert set(done) == {"acme", "other"}
    assert sum(done.values()) == 4
    assert sum(value for _, value in found["windlass_tenant_jobs"]) == 1
    assert {labels["tenant"] for labels, _ in found["windlass_tenant_jobs"]} == {"acme", "other"}
    assert sum(value for _, value in found["windlass_tenant_run_seconds_total"]) == 4.0


@pytest.mark.parametrize(
    "text", ["", "acme,,globex", "other", "a\nb", "x" * 129, ",".join(map(str, range(51)))]
)
def test_what_is_no_list_of_tenants_is_refused(text: str, tmp_path: Path) -> None:
    with staged(tmp_path) as stage, pytest.raises(InvalidValue, match=r"metrics\.tenants"):
        stage.ops.set_settings({"metrics.tenants": text})


def test_a_bad_release_is_seen_beside_a_good_one(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for number in range(8):
            stage.enqueue(2)
            stage.work(2, ran=2.0, release=f"1.{number}")
            stage.clock.advance(1)
            stage.look()
        stage.enqueue(4, type=REPORT)
        stage.work(3, DEAD, ran=1.0, release="1.7")
        stage.look()
        found = parsed(stage.ops.scrape())
        report = stage.ops.metrics()
    attempts = {tuple(labels.values()): value for labels, value in found["windlass_release_attempts_total"]}
    # The newest five.
    assert {version for _, version in attempts} == {f"1.{number}" for number in range(3, 8)}
    assert (attempts[MAIL, "1.7"], attempts[REPORT, "1.7"]) == (2.0, 3.0)
    failures = {tuple(labels.values()): value for labels, value in found["windlass_release_failures_total"]}
    assert {of for of, value in failures.items() if value} == {(REPORT, "1.7")}
    newest = report.releases[0]
    assert (newest.version, newest.attempts, newest.failed, newest.run_ms) == ("1.7", 5, 3, 1_400.0)
    assert [(each.type, each.failed) for each in newest.types] == [(REPORT, 3), (MAIL, 0)]
    assert [each.failed for each in report.releases[1:]] == [0, 0, 0, 0]


def test_a_release_that_takes_its_workers_with_it_is_named(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.worker("victim", app="2.0")
        stage.enqueue(3)
        [lease, *_] = stage.claim(3, worker="victim")
        stage.reap("victim")
        stage.look()
        found = parsed(stage.ops.scrape())
        job = stage.store.get(lease.id)
    assert found["windlass_release_failures_total"] == [({"type": MAIL, "version": "2.0"}, 3.0)]
    assert job is not None
    assert [attempt.app for attempt in job.history] == ["2.0"]


def test_history_of_many_types_is_bounded_and_the_small_ones_are_one(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        many = 120
        stage.store.add_history(
            {(f"t{number:03}", name): number for number in range(many) for name in ("started", "completed")}
        )
        stage.clock.advance(1)
        chart = stage.ops.history()
        shown = {line.type: line.points[-1].completed for line in chart.series}
        # 180 points of each type, 20,000 in all.
        assert len(shown) == 20_000 // 180 + 1
        assert sum(shown.values()) == sum(range(many))
        assert (shown["t119"], shown["other"]) == (119, sum(range(many - 20_000 // 180)))
        with pytest.raises(InvalidValue, match="at most 6"):
            stage.ops.history(since=stage.store.now() - timedelta(minutes=3_000), types=[*shown][:7])


def test_odd_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    text = render([family("windlass_queue_due", [((odd,), 1)])])
    assert parsed(text)["windlass_queue_due"] == [({"type": odd}, 1.0)]


def test_a_store_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.hide()
        assert parsed(stage.ops.scrape()) == {"windlass_store_up": [({}, 0.0)]}


def test_history_is_a_point_for_each_minute_and_type(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.clock.advance(5)
        stage.enqueue(1, delay=timedelta(days=1))
        _busy(stage)
        stage.minutes(3)
        [mail, odd] = stage.ops.history().series
        assert (mail.type, odd.type) == (MAIL, 'od"d')
        assert [point.completed for point in mail.points[-4:]] == [3, 0, 0, 0]
        assert [point.depth for point in mail.points[-4:]] == [3, 3, 3, 3]
        assert [point.due for point in mail.points[-4:]] == [2, 2, 2, 2]
        assert mail.points[-4].run_ms == 1_000.0
        assert mail.points[-1].run_ms is None
        assert mail.points[-1].oldest_due_age == 180.0
        assert len(mail.points) == 181


def test_classes_of_errors_are_bounded_whatever_a_handler_makes_up(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for number in range(30):
            stage.enqueue(1)
            error = Error(Reason.EXCEPTION, f"app.made.Up{number:02}", "no")
            stage.work(1, Again(timedelta(hours=1), error))
        stage.look()
        found = parsed(stage.ops.scrape())["windlass_job_errors_total"]
        assert len(found) <= 20
        assert all(labels["type"] == MAIL for labels, _ in found)
        kept = [name for job_type, name in stage.store.totals() if job_type == MAIL and "Up" in name]
        assert len(kept) == 20
        assert stage.store.totals()[MAIL, "error.other"] == 10


def test_restarts_are_told_by_worker_and_forgotten_with_it(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.ledger.count(names.RESTARTED + "web-1/2", 3)
        stage.look()
        name = "windlass_worker_place_restarts_total"
        assert parsed(stage.ops.scrape())[name] == [({"worker": "web-1/2"}, 3.0)]
        keep = Retention(ended=timedelta(days=7), dead=timedelta(days=7))
        stage.store.prune(keep)
        assert name in parsed(stage.ops.scrape())
        stage.clock.advance(32 * 86_400)
        stage.store.prune(keep)
        assert name not in parsed(stage.ops.scrape())


def test_what_retention_deletes_is_counted(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.enqueue(3)
        stage.work(3)
        stage.clock.advance(10 * 86_400)
        pruner = Pruner(stage.store, ledger=stage.ledger)
        while pruner.tick() is not None:
            pass
        stage.look()
        assert parsed(stage.ops.scrape())["windlass_records_pruned_total"] == [({}, 3.0)]
        stage.enqueue(2)
        stage.work(2)
        stage.clock.advance(2 * 86_400)
        assert stage.ops.prune(ended=timedelta(days=1)) == 2
        assert parsed(stage.ops.scrape())["windlass_records_pruned_total"] == [({}, 5.0)]


def test_errors_of_the_store_are_counted_by_part_and_told_when_it_answers(tmp_path: Path) -> None:
    errors: list[Exception] = [StoreUnavailable("gone"), StoreBusy("locked")]

    def tick() -> None:
        if errors:
            raise errors.pop(0)

    with staged(tmp_path) as stage:
        loop = Loop("claimer", tick, every=timedelta(seconds=0.01), longest_pause=timedelta(seconds=0.01))
        loop.start(stage.ledger.store_error)
        try:
            until(lambda: loop.failed == 2 and not errors)
        finally:
            loop.stop(PATIENCE)
        stage.look()
        assert parsed(stage.ops.scrape())["windlass_store_errors_total"] == [
            ({"part": "claim", "error": "busy"}, 1.0),
            ({"part": "claim", "error": "unavailable"}, 1.0),
        ]


@pytest.mark.parametrize(
    ("depths", "turns"),
    [
        ([], 0),
        ([500] * 9, 0),
        # Filled once and worked off.
        ([0, 400, 800, 600, 300, 0, 0], 1),
        ([0, 400, 0, 400, 0, 400], 4),
        # Too little to speak of.
        ([0, 90, 0, 90, 0], 0),
        ([1_000, 1_100, 1_000, 1_100, 1_000], 0),
    ],
)
def test_a_depth_turns_when_it_has_changed_by_much(depths: list[int], turns: int) -> None:
    assert swings(depths) == turns


# --- files --------------------------------------------------------------------------------------


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("observability", ROOT / "scripts" / "observability.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rule_file_and_the_page_are_what_the_tables_say() -> None:
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


def charted() -> Iterator[str]:
    """The expressions of the Grafana dashboard, as the command prints it."""
    printed = CliRunner().invoke(alerts, ["--dashboard"])
    assert printed.output == (ROOT / "deploy" / "grafana" / "windlass.json").read_text(encoding="utf-8")
    for panel in json.loads(printed.output)["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    asked = {name for expression in charted() for name in re.findall(r"windlass_\w+", expression)}
    known = {metric.name for metric in METRICS}
    assert asked
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= known
