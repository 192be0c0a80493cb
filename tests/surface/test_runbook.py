"""The runbook, typed line by line: every command of it does what is needed at three in the morning."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.surface.conftest import Answer, Terminal
from tests.waiting import PATIENCE, until
from windlass import Queue
from windlass.cli.main import cli
from windlass.ops import Ops

PAGE = Path(__file__).parents[2] / "docs/runbook.md"
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
LINES = [line.removeprefix("$ windlass ") for block in BLOCKS for line in block.splitlines()]

SHOP = """
from windlass import Queue

queue = Queue()

@queue.job(max_attempts=1)
def send_email(to: str) -> None:
    if to == "nobody":
        raise TimeoutError("the relay does not answer")

@queue.job(name="report.build", max_attempts=1)
def build_report(account: int) -> None:
    if account > 10:
        raise ValueError("no such account")

@queue.job
def import_row(file: str) -> None: ...
"""


def seed(windlass: Terminal) -> Ops:
    """A store in the state that the page speaks of."""
    windlass.write("shop.py", SHOP)

    def put(job_type: str, payload: str, key: str, *more: str) -> None:
        windlass.ok("enqueue", job_type, payload, "--key", key, "--app", "shop:queue", *more)

    put("send_email", '{"to": "ann"}', "invoice-4567")
    for number in range(1, 6):
        put("send_email", '{"to": "nobody"}', f"mail-{number}")
    put("report.build", '{"account": 11}', "report-1")
    put("report.build", '{"account": 12}', "report-2")
    assert windlass.apart("worker", "start", "shop:queue", "--until-empty").code == 0
    for number in (1, 2, 3):
        put("send_email", '{"to": "bob"}', f"sync-{number}", "--delay", "1h")
    for number in (1, 2):
        put("send_email", '{"to": "bob"}', f"welcome-{number}")
    put("report.build", '{"account": 13}', "report-13", "--delay", "1h")
    put("import_row", '{"file": "old.csv"}', "row-1", "--delay", "1h")
    return Ops(Queue("sqlite:///windlass.db").store)


@contextmanager
def ended(started: list[subprocess.Popen[str]]) -> Iterator[None]:
    """Whatever was begun is over when the block is."""
    try:
        yield
    finally:
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


def test_every_line_of_the_runbook_does_what_it_says(windlass: Terminal) -> None:
    ops = seed(windlass)
    said: dict[str, Answer] = {}
    started: list[subprocess.Popen[str]] = []
    with ended(started):
        for line in LINES:
            if line.endswith(" &"):
                begin(windlass, ops, line.removesuffix(" &"), started)
                continue
            words = shlex.split(line.replace("WORKER", (alive(ops) or ["none"])[0]))
            answer = windlass(*words)
            # Those that look tell by their exit code that not all is well.
            looks = words[0] == "doctor" or words[:2] == ["worker", "health"]
            assert answer.code in ((0, 1) if looks else (0,)), (line, answer)
            said.setdefault(line, answer)
        assert not alive(ops)
    check(said, windlass)


def begin(windlass: Terminal, ops: Ops, line: str, started: list[subprocess.Popen[str]]) -> None:
    """Start workers, and wait until one of them is there."""
    before = len(alive(ops))
    started.append(windlass.start(*shlex.split(line)))
    until(lambda: len(alive(ops)) > before, f"a worker is there: {line}")


def alive(ops: Ops) -> list[str]:
    return [each.info.id for each in ops.workers() if each.alive and each.info.state == "running"]


def check(said: dict[str, Answer], windlass: Terminal) -> None:
    """What the page promises of some of the commands."""
    assert "windlass worker start" in said["doctor"].out
    assert "no running worker serves send_email" in said["explain welcome-1"].out
    assert re.search(r"5\s+send_email\s+TimeoutError", said["dlq list --group"].out)
    assert "TimeoutError: the relay does not answer" in said["dlq show mail-1"].out
    assert "completed" in said["explain invoice-4567"].out
    assert "report-13" in said["list 'type:report.build payload.account:13'"].out
    assert "send_email" in said["types"].out
    assert re.search(r"send_email\s+\d+", said["metrics"].out)
    assert "Last succeeded" in said["signals"].out
    verbs = {entry["verb"] for entry in windlass.ok("audit", "--limit", "200", "--json").json["entries"]}
    assert {
        "replay",
        "discard",
        "bury",
        "cancel",
        "edit",
        "pause",
        "resume",
        "breaker",
        "drain",
        "set",
    } <= verbs


def test_the_page_names_every_verb_of_an_operator() -> None:
    """Whoever adds a verb to the command line says when to use it, or that it is not for incidents."""
    used = {shlex.split(line)[0] for line in LINES}
    elsewhere = {
        *("up", "serve", "run", "enqueue", "batch", "schedule", "keys", "bench", "completion"),
        *("alerts", "plan", "smoke", "discard", "rerun", "autoscale", "scheduler"),
    }
    assert used <= set(cli.commands)
    assert set(cli.commands) - used - elsewhere == set()
