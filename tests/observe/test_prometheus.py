"""What does a real Prometheus make of our metrics and rules?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from tests.observe.scene import DEAD, staged
from tests.observe.test_exposed import RULES, charted
from tests.server.conftest import serving, shop
from tests.servers import prometheus
from tests.servers.prometheus import Prometheus, promtool
from tests.waiting import until
from windlass import Queue
from windlass.job import JobState
from windlass.observe import gather
from windlass.observe.alerts import ALERTS
from windlass.observe.firing import StoreMeasures, holding, labels_text
from windlass.store.jobs import Filter

NOW = timedelta(0)


def test_promtool_takes_the_rule_file_and_the_scrape(tmp_path: Path) -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", RULES)
    with staged(tmp_path) as stage:
        stage.ops.set_settings({"metrics.tenants": "acme"})
        stage.enqueue(5)
        stage.enqueue(1, type='od"d')
        stage.work(2)
        stage.work(1, DEAD, release="1.0")
        stage.look()
        promtool("check", "metrics", told=stage.ops.scrape())


def test_an_alert_is_pending_until_its_condition_has_lasted_and_says_where(tmp_path: Path) -> None:
    firing = {
        "exp_labels": {"severity": "page", "type": "mail"},
        "exp_annotations": {
            "summary": "mail: more than 10,000 jobs are due",
            "runbook_url": "docs/runbook.md#jobs-are-late",
        },
    }
    test = {
        "interval": "1m",
        "input_series": [
            {"series": 'windlass_queue_depth{type="mail",priority="5",view="due"}', "values": "10001x10 0x5"}
        ],
        "alert_rule_test": [
            {"alertname": "WindlassQueueDeep", "eval_time": at, "exp_alerts": [firing] if fires else []}
            for at, fires in (("4m", False), ("5m", True), ("10m", True), ("11m", False))
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    promtool("test", "rules", file)


# --- a server that scrapes ----------------------------------------------------------------------

CONFIG = """
global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms }}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: windlass
    authorization: {{ credentials: "{key}" }}
    static_configs: [{{ targets: ["{target}"] }}]
"""


def test_a_real_prometheus_scrapes_judges_as_we_do_and_clears(tmp_path: Path) -> None:
    with shop(f"sqlite:///{tmp_path}/jobs.db") as queue, serving(queue) as house:
        # Types are known from a worker's start: an increase is seen from the second scrape on.
        _work(queue, 0)
        target = house.url.removeprefix("http://")
        config = CONFIG.format(rules=RULES, key=house.key("prometheus", "viewer"), target=target)
        with prometheus.running(tmp_path, config) as watcher:
            until(lambda: watcher.query("count_over_time(windlass_store_up[1m]) >= 2"), "it scrapes")
            until(lambda: watcher.health() == {"up"}, "all is well")
            _work(queue, 20)
            # The last one must last for five minutes.
            wanted = {
                "WindlassDeadLetters": "firing",
                "WindlassDeadLettersGrow": "firing",
                "WindlassErrorRate": "pending",
            }
            # Some are judged by counters, some by the sample behind them: they need not come with one scrape.
            until(lambda: wanted.items() <= watcher.alerts().items(), "they fire")
            assert _ours(queue) >= {("WindlassDeadLetters", POISON), ("WindlassErrorsBurnsFast", POISON)}
            until(lambda: _theirs(watcher) == _ours(queue), "all expressions come to the same")
            for expression in _charts():
                watcher.query(expression)
            for job in queue.store.find(Filter(states=(JobState.DEAD,))).jobs:
                queue.store.discard(job.id)
            queue.store.take_sample(NOW)
            until(lambda: "WindlassDeadLetters" not in watcher.alerts(), "it clears")
            until(lambda: _theirs(watcher) == _ours(queue), "all expressions come to the same again")


def _charts() -> Iterator[str]:
    """What the dashboard asks, with Grafana's own words filled in."""
    for expression in charted():
        yield expression.replace("$__rate_interval", "1m").replace("$type", ".*")


def _work(queue: Queue, count: int) -> None:
    """A worker comes, lets so many jobs die, and goes."""
    before = queue.store.count(Filter(states=(JobState.DEAD,)), limit=100)
    queue.enqueue_many(queue.draft("poison", {"n": number}) for number in range(count))
    with queue.worker(concurrency=2):
        until(lambda: queue.store.count(Filter(states=(JobState.DEAD,)), limit=100) == before + count)
    queue.store.take_sample(NOW)


def _ours(queue: Queue) -> set[tuple[str, str]]:
    """What holds by our own predicates, from the store's history."""
    return set(holding(StoreMeasures(queue.store, gather.read_facts(queue.store))))


def _theirs(watcher: Prometheus) -> set[tuple[str, str]]:
    """What holds by Prometheus, from what it scraped; without the labels that it adds."""
    return {
        (alert.name, labels_text({n: v for n, v in labels.items() if n not in ADDED}))
        for alert in ALERTS
        for labels, _ in watcher.query(alert.condition.text)
    }


ADDED = ("__name__", "instance", "job")
POISON = '{"type":"poison"}'
