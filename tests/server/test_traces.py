"""One trace across an HTTP producer, the server, a worker, its children and their outgoing calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers.ports import free_port
from tests.waiting import PATIENCE

APP = "tests.server.tracedapp:queue"
TYPES = ("charge", "render", "render_async")
ROOT = Path(__file__).parents[2]


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The spans of one run: a producer in a process of its own sends a job of each type and waits for it."""
    file, port = folder / "spans.jsonl", free_port()
    environment = os.environ | {
        "TRACE_FILE": str(file),
        "WINDLASS_DATABASE_URL": f"sqlite:///{folder}/jobs.db",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
    }

    def begin(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", *words], env=environment, cwd=folder)

    server = begin("windlass", "serve", "--app", APP, "--port", str(port))
    worker = begin("windlass", "worker", "start", APP)
    try:
        until_it_answers(f"http://127.0.0.1:{port}/health", server)
        producer = begin("tests.server.tracedapp", f"http://127.0.0.1:{port}", *TYPES)
        assert producer.wait(PATIENCE) == 0
    finally:
        for process in (worker, server):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(PATIENCE) for process in (worker, server)]
    assert codes == [0, 0]
    return [json.loads(line) for line in file.read_text().splitlines()]


def until_it_answers(address: str, server: subprocess.Popen[bytes]) -> None:
    pause = threading.Event()
    while server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=PATIENCE).close()  # noqa: S310 - our own address
        except (OSError, urllib.error.URLError):
            pause.wait(0.05)
        else:
            return
    raise AssertionError("the server never came up")


def tree(spans: list[dict[str, Any]]) -> list[str]:
    """The spans as a tree, in the order in which they began, with the number of the process of each."""
    processes = {pid: number for number, pid in enumerate(dict.fromkeys(span["pid"] for span in spans), 1)}
    below: dict[str | None, list[dict[str, Any]]] = {}
    known = {span["context"]["span_id"] for span in spans}
    for span in sorted(spans, key=lambda span: span["start_time"]):
        below.setdefault(span["parent_id"] if span["parent_id"] in known else None, []).append(span)

    def branch(parent: str | None, depth: int) -> Iterator[str]:
        for span in below.get(parent, ()):
            yield f"{'   ' * depth}{span['name']}  (process {processes[span['pid']]})"
            yield from branch(span["context"]["span_id"], depth + 1)

    return list(branch(None, 0))


def test_a_job_is_one_trace_across_all_processes(tmp_path: Path) -> None:
    spans = recorded(tmp_path)
    print("\n".join(["", *tree(spans)]))  # noqa: T201 - to be looked at with -s
    assert len({span["context"]["trace_id"] for span in spans}) == 1
    names = {span["context"]["span_id"]: span["name"] for span in spans}
    assert Counter((names.get(span["parent_id"]), span["name"]) for span in spans) == Counter(edges())
    where = {(names.get(span["parent_id"]), span["name"]): span["pid"] for span in spans}
    producer, server = where[None, "checkout"], where["send charge", "POST /api/v1/jobs"]
    worker, child = where["send charge", "process charge"], where["process render", "GET /health"]
    assert len({producer, server, worker, child}) == 4
    assert where["process charge", "GET /health"] == worker == where["process render", "settle render"]


def edges() -> Iterator[tuple[str | None, str]]:
    """Which span hangs below which."""
    yield None, "checkout"
    for name in TYPES:
        yield "checkout", f"send {name}"
        yield f"send {name}", "POST /api/v1/jobs"
        yield f"send {name}", f"claim {name}"
        yield f"send {name}", f"process {name}"
        yield f"process {name}", "GET /health"
        yield f"process {name}", f"settle {name}"
