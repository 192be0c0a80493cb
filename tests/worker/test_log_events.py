"""Does the log name a job before its work begins, and tell nothing that it carries?"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.worker.scene import Still, claim_ahead
from windlass.cli.logs import JsonFormatter
from windlass.job import Job

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLERS = f"00-{TRACE}-00f067aa0ba902b7-01"


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """What was logged of one event, as --log-json tells it."""
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    return [line for line in lines if line["event"] == event]


def run(still: Still, job_type: str, **fields: Any) -> Job:
    [job] = still.put(1, job_type, **fields)
    still.parts.triggers.hint()
    still.parts.claimer.tick()
    still.until(still.parts.idle)
    still.settle()
    return job


def test_a_job_is_named_before_its_work_begins(still: Still, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[list[dict[str, Any]]] = []
    still.handler(lambda: seen.append(told(caplog, "job.started")), "heavy")
    parts = still.build()
    with caplog.at_level(logging.INFO, "windlass"):
        job = run(still, "heavy", tenant="acme", traceparent=CALLERS)
    [[line]] = seen
    assert {
        name: line[name] for name in ("level", "job", "type", "attempt", "worker", "tenant", "trace")
    } == {
        "level": "info",
        "job": job.id,
        "type": "heavy",
        "attempt": 1,
        "worker": parts.membership.id,
        "tenant": "acme",
        "trace": TRACE,
    }


def test_short_jobs_do_not_drown_the_log(still: Still, caplog: pytest.LogCaptureFixture) -> None:
    still.handler(lambda: None, "light")
    parts = still.build()
    claim_ahead(parts, "light", still.clock.monotonic())
    with caplog.at_level(logging.INFO, "windlass"):
        run(still, "light")
        assert told(caplog, "job.started") == []
    with caplog.at_level(logging.DEBUG, "windlass"):
        run(still, "light")
    [started] = told(caplog, "job.started")
    [completed] = told(caplog, "job.completed")
    assert started["level"] == completed["level"] == "debug"
    assert completed["seconds"] >= 0


def test_every_line_about_a_job_names_it_alike_and_tells_nothing_that_it_carries(
    still: Still, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(password: str) -> None:
        assert password == "hunter2"
        raise ValueError("it cannot be done")

    still.handler(fail, "login", max_attempts=1)
    still.build()
    with caplog.at_level(logging.DEBUG, "windlass"):
        job = run(still, "login", payload={"password": "hunter2"}, max_attempts=1)
    assert still.job(job).state == "dead"
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    about = [line for line in lines if line["event"].startswith("job.")]
    assert [line["event"] for line in about] == ["job.started", "job.settled"]
    assert {(line["job"], line["type"], line["attempt"]) for line in about} == {(job.id, "login", 1)}
    assert "hunter2" not in json.dumps(lines)
