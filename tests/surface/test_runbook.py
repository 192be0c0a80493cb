"""The runbook, typed line by line: every command of it does what is needed at three in the morning."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.servers import postgres
from tests.surface.conftest import Answer, Terminal
from tests.waiting import PATIENCE, until
from windlass import Queue
from windlass.cli.main import cli
from windlass.ops import Ops

PAGE = Path(__file__).parents[2] / "docs/runbook.md"


def typed(text: str) -> list[str]:
    """The command lines in a part of the page; in a list they are indented."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = (line.strip() for block in blocks for line in block.splitlines())
    return [line.removeprefix("$ windlass ") for line in lines if line]


TEXT = PAGE.read_text(encoding="utf-8")
LINES = typed(TEXT)
# What each entry of the page is for: the sign that leads there, and what is typed then.
ENTRIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Jobs are late": (
        (
            "WindlassQueueOld",
            "ten minutes",
            "stuck",
            "a capacity shortage",
            "a backlog",
            "a dependency outage",
        ),
        ("status", "worker health", "list --state stuck", "metrics", "autoscale", "explain"),
    ),
    "Producers get errors": (("WindlassEnqueueErrors", "one request in a hundred"), ("doctor", "db status")),
    "A poison job": (
        (
            "WindlassPoisonJobs",
            "**Detect.**",
            "**Triage.**",
            "**Mitigate.**",
            "**Resolve.**",
            "**Post-mortem.**",
        ),
        ("dlq list --group", "dlq show", "list 'type:", "pause", "bury", "resume", "replay", "audit"),
    ),
    "After a crash loop": (
        ("WindlassWorkersDie", "WindlassWorkerRestarts", "the same\nworker ids"),
        ("worker health", "worker health --all", "list --error worker_lost", "list --state stuck", "doctor"),
    ),
    "The database fails over": (
        ("503s end", "promote", "Expect duplicates", "The workers are back"),
        ("doctor", "db status", "worker health", "list --state stuck", "signals"),
    ),
    "Roll out, and roll back": (
        ("### An index of your own", "INVALID", "create index concurrently", "drop index concurrently"),
        ("db migrate --dry-run", "db migrate", "db status", "doctor"),
    ),
    "Change a payload's schema": (
        ("three phases", "roll back"),
        ("types", "list --type send_email --state unreadable", "dlq list"),
    ),
    "Completed, but wrong": (
        ("a sample of what completed",),
        ("list --state completed --type send_email --limit 5", "show", "signals"),
    ),
    "A new type": (
        ("schema", "resource profile", "timeout", "limits", "pool"),
        ("types", "config set import_row.timeout", "limit import_row", "worker start shop:queue --pool"),
    ),
}

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
    assert "import_row" in said["types"].out
    assert "No worker is running: 2 jobs wait" in said["status"].out
    assert "invoice-4567" in said["list --state completed --type send_email --limit 5"].out
    assert said["autoscale"].out.startswith("desired: 1 (alive: 0, 10 slots each)")
    assert (said["list --state stuck"].out, said["list --error worker_lost"].out) == ("", "")
    assert "stopped" in said["worker health --all"].out
    assert re.search(r"timeout +2m +stored", said["config get import_row.timeout"].out)
    assert said["limit import_row"].out.startswith("import_row: 4 at once")
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


@pytest.mark.parametrize("head", ENTRIES)
def test_a_sign_leads_to_the_commands_for_it(head: str) -> None:
    [entry] = [part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE) if part.startswith(f"{head}\n")]
    signs, commands = ENTRIES[head]
    assert [sign for sign in signs if sign not in entry] == []
    lines = typed(entry)
    assert [each for each in commands if not any(line.startswith(each) for line in lines)] == []


def test_the_statements_of_the_page_build_an_index_and_drop_it() -> None:
    [block] = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    with postgres.prepared(15) as url, psycopg.connect(url, autocommit=True) as connection:
        build, detect, drop = (connection.execute(each.encode()) for each in block.split(";")[:-1])
        assert (build.statusmessage, drop.statusmessage) == ("CREATE INDEX", "DROP INDEX")
        assert detect.fetchall() == []


def test_the_page_names_every_verb_of_an_operator() -> None:
    """Whoever adds a verb to the command line says when to use it, or that it is not for incidents."""
    used = {shlex.split(line)[0] for line in LINES}
    elsewhere = {
        *("up", "serve", "run", "enqueue", "batch", "schedule", "keys", "bench", "completion"),
        *("alerts", "plan", "smoke", "discard", "rerun", "scheduler"),
    }
    assert used <= set(cli.commands)
    assert set(cli.commands) - used - elsewhere == set()
