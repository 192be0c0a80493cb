"""What does somebody at a terminal see of what happened, what is wrong, and how many workers it takes?"""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import timedelta

import pytest

from tests.observe.scene import parsed
from tests.surface.conftest import Terminal
from windlass import connect
from windlass.observe import names
from windlass.store.moving import Mark, State


def _sampled() -> None:
    with contextlib.closing(connect.open("sqlite:///windlass.db")) as opened:
        opened.store.take_sample(timedelta(0))


def test_metrics_show_counts_durations_and_the_last_events(
    windlass: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_APP_VERSION", "2.4.1")
    assert windlass("metrics").code == 3
    windlass.ok("run", "--", "true")
    windlass.ok("run", "--max-attempts", "1", "--", "false")
    windlass.ok("worker", "start", "--until-empty")
    report = windlass.ok("metrics", "--json").json
    [shell] = report["types"]
    counts = {name: shell[name] for name in ("enqueued", "started", "completed", "failed", "dead")}
    assert counts == {"enqueued": 2, "started": 2, "completed": 1, "failed": 1, "dead": 1}
    assert shell["run_ms"] > 0
    assert {event["event"] for event in report["events"]} == {"completed", "dead"}
    out = windlass.ok("metrics").out
    assert out.splitlines()[0].split() == [
        *("TYPE", "ENQUEUED", "STARTED", "COMPLETED", "FAILED", "DEAD", "AVG", "WAIT", "AVG", "RUN")
    ]
    assert "LAST EVENTS" in out
    [release] = report["releases"]
    assert (release["version"], release["attempts"], release["failed"]) == ("2.4.1", 2, 1)
    assert [each["type"] for each in release["types"]] == ["shell"]
    [line] = [line for line in out.splitlines() if line.startswith("2.4.1")]
    assert "shell 50 %" in line
    scrape = parsed(windlass.ok("metrics", "--prometheus").out)
    assert ({"type": "shell"}, 1.0) in scrape["windlass_jobs_completed_total"]


def test_what_came_in_is_counted_though_no_worker_and_no_server_runs(windlass: Terminal) -> None:
    for _ in range(3):
        windlass.ok("run", "--", "true")
    [shell] = windlass.ok("metrics", "--json").json["types"]
    assert (shell["enqueued"], shell["started"]) == (3, 0)
    [shell] = windlass.ok("autoscale", "--json").json["types"]
    assert shell["waiting"] == 3


def test_a_store_that_cannot_be_written_is_shown_as_it_was_last_counted(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    _sampled()
    windlass.ok("run", "--", "true")
    with contextlib.closing(connect.source("sqlite:///windlass.db")) as source:
        source.begin(Mark(id="m", state=State.CLOSED, place="elsewhere", began_at=0))
    [shell] = windlass.ok("metrics", "--json").json["types"]
    assert shell["enqueued"] == 1


def test_metrics_show_which_service_sends_most(windlass: Terminal) -> None:
    for name in ("shop", "importer"):
        windlass.ok("keys", "create", name, "--role", "producer")
    with contextlib.closing(connect.open("sqlite:///windlass.db")) as opened:
        sent = {"shop": {"enqueued": 2}, "importer": {"enqueued": 1_200, "refused": 3}}
        opened.store.add_history(
            {
                ("", names.of_service(service, name)): count
                for service, counts in sent.items()
                for name, count in counts.items()
            }
        )
    told = windlass.ok("metrics", "--json").json["services"]
    assert [each["service"] for each in told] == ["importer", "shop"]
    assert (told[0]["enqueued_lately"], told[0]["refused"], told[0]["broken"]) == (1_200, 3, 0)
    lines = [line.split() for line in windlass.ok("metrics").out.splitlines()]
    assert ["importer", "1,200", "1,200", "3", "0"] in lines


def test_alerts_exit_with_one_if_any_fires(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "bad", "--max-attempts", "1", "--", "false")
    windlass.ok("worker", "start", "--until-empty")
    _sampled()
    answer = windlass("alerts")
    assert answer.code == 1
    assert "WindlassDeadLetters" in answer.out
    assert "shell: there are dead letters" in answer.out
    assert "no server has been looking" in answer.err
    [alert] = windlass("alerts", "--json").json["alerts"]
    assert (alert["name"], alert["state"]) == ("WindlassDeadLetters", "firing")
    windlass.ok("discard", "bad", "--yes")
    _sampled()
    assert windlass.ok("alerts").out == "all is well: no alert holds\n"


def test_a_job_that_is_due_and_has_no_worker_is_pending_at_once_and_fires_after_a_minute(
    windlass: Terminal,
) -> None:
    windlass.ok("run", "--", "true")
    _, line = windlass.ok("alerts").out.splitlines()
    assert line.split()[:2] == ["pending", "page"]
    assert "WindlassNoWorkers" in line
    [told] = windlass.ok("alerts", "--json").json["alerts"]
    assert (told["name"], told["state"]) == ("WindlassNoWorkers", "pending")
    with contextlib.closing(sqlite3.connect("windlass.db")) as file, file:
        file.execute("update windlass_jobs set run_at = run_at - 61000000")
    answer = windlass("alerts")
    assert (answer.code, answer.out.splitlines()[1].split()[:2]) == (1, ["firing", "page"])


def test_rules_and_dashboard_need_no_store(windlass: Terminal) -> None:
    assert windlass.ok("alerts", "--rules").out.startswith("# Written by `windlass alerts --rules`")
    assert windlass.ok("alerts", "--dashboard").json["title"] == "Windlass"
    assert list(windlass.folder.glob("*.db")) == []


def test_autoscale_says_how_many_and_is_set_by_settings(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    assert windlass.ok("autoscale").out.startswith("desired: 1 (alive: 0, 10 slots each)\n")
    windlass.ok("config", "set", "autoscale.least", "3")
    scale = windlass.ok("autoscale", "--json").json
    assert (scale["desired"], scale["least"]) == (3, 3)
    assert windlass("config", "set", "autoscale.least", "-1").code == 2
    assert windlass("config", "set", "alerts.webhook", "ftp://x").code == 2
