"""When does a supervisor start again what died, and when does it give up? With workers that only die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from tests.waiting import WHOLE_RUN
from windlass.worker.supervisor import MOST_YOUNG_DEATHS

DIES = [sys.executable, "-S", "-c", "raise SystemExit(9)"]
# In a process of its own: a supervisor reaps whatever child its process has. The event asks it to stop.
SCRIPT = """
import json, logging, pathlib, sys
from windlass.clock import SystemClock
from windlass.worker.supervisor import Supervisor

command, count, worked, until, watched = json.loads(sys.argv[1])
seen = []
files = [pathlib.Path(watched)] if watched else []


def changed():
    return str(files.pop()) if files and files[0].exists() else None


class Kept(logging.Handler):
    def emit(self, record):
        seen.append(record.getMessage())
        if seen.count(until) >= count or "supervisor.waits_for_change" in seen:
            supervisor.request_stop()


logging.basicConfig(handlers=[Kept()], level=logging.INFO)
supervisor = Supervisor(
    command,
    count,
    exit_after=60.0,
    died=lambda pid: worked,
    changed=changed if watched else None,
    clock=SystemClock(),
)
code = supervisor.run()
print(json.dumps([code, seen]))
"""


def supervise(
    command: list[str], count: int, *, worked: bool = True, until: str = "", watched: Path | None = None
) -> tuple[int, list[str]]:
    """The exit code and what was logged; nothing may be said on standard error, not even a warning."""
    asked = msgspec.json.encode([command, count, worked, until, watched and str(watched)]).decode()
    line = [sys.executable, "-X", "dev", "-c", SCRIPT, asked]
    done = subprocess.run(line, capture_output=True, check=True, timeout=WHOLE_RUN)
    assert done.stderr == b""
    code, events = msgspec.json.decode(done.stdout)
    return code, events


def test_workers_that_never_come_to_work_are_given_up() -> None:
    code, events = supervise(DIES, MOST_YOUNG_DEATHS, worked=False)
    assert code == 1
    assert events[-1] == "supervisor.gives_up"


def test_workers_that_died_at_work_are_started_again() -> None:
    count = MOST_YOUNG_DEATHS + 1
    code, events = supervise(DIES, count, until="worker.restarting")
    assert code == 0
    assert events == ["worker.restarting"] * count


def test_a_machine_without_room_for_another_process_ends_nobody() -> None:
    code, events = supervise(["/nowhere/windlass"], 1, until="worker.not_started")
    assert (code, events) == (0, ["worker.not_started"])


def test_a_file_that_is_mended_while_a_worker_fails_to_begin_is_not_missed(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    # Ends as one does whose application cannot be loaded, just after it was told of the change.
    fails = (
        "import pathlib, signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(2)); "
        f"pathlib.Path({str(begun)!r}).touch(); signal.pause()"
    )
    code, events = supervise([sys.executable, "-c", fails], 1, until="worker.restarting", watched=begun)
    assert (code, events) == (0, ["supervisor.reloads", "worker.restarting"])
