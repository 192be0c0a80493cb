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
from windlass.worker.supervisor import Calls, Launch, Supervisor

command, count, worked, until, times, watched = json.loads(sys.argv[1])
seen = []
files = [pathlib.Path(watched)] if watched else []


def changed():
    return str(files.pop()) if files and files[0].exists() else None


class Kept(logging.Handler):
    def emit(self, record):
        seen.append(record.getMessage())
        if seen.count(until) >= times or "supervisor.waits_for_change" in seen:
            supervisor.request_stop()


logging.basicConfig(handlers=[Kept()], level=logging.INFO)
supervisor = Supervisor(
    Launch(command),
    count,
    Calls(
        died=lambda death: worked,
        drain=lambda worker, why: logging.info("drained " + worker),
        changed=changed if watched else None,
    ),
    exit_after=60.0,
    clock=SystemClock(),
)
code = supervisor.run()
print(json.dumps([code, seen]))
"""

# Says that it is well; the first so many of them also say that they should be replaced. It may be told to end
# more than once, so its end must not be a call that a second signal can interrupt.
SAYS = """
import json, os, pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
started = pathlib.Path(sys.argv[1])
with started.open("a") as file:
    file.write("x")
number = started.stat().st_size
health = {"ok": True, "worker": str(number), "restart": "worn" if number <= int(sys.argv[2]) else ""}
os.write(int(os.environ["WINDLASS_SUPERVISED"].split(":")[2]), json.dumps(health).encode() + b"\\n")
while True:
    signal.pause()
"""


def supervise(
    command: list[str],
    count: int,
    *,
    worked: bool = True,
    until: str = "",
    times: int | None = None,
    watched: Path | None = None,
) -> tuple[int, list[str]]:
    """The exit code and what was logged; nothing may be said on standard error, not even a warning."""
    told = [command, count, worked, until, times or count, watched and str(watched)]
    asked = msgspec.json.encode(told).decode()
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


def test_a_worker_that_wants_it_is_replaced_and_drains_when_its_successor_is_well(tmp_path: Path) -> None:
    worker = [sys.executable, "-c", SAYS, str(tmp_path / "started"), "1"]
    code, events = supervise(worker, 1, until="drained 1")
    assert code == 0
    assert events == ["worker.replacing", "worker.succeeded", "drained 1", "worker.ended", "worker.ended"]


def test_no_more_than_one_predecessor_lingers(tmp_path: Path) -> None:
    worker = [sys.executable, "-c", SAYS, str(tmp_path / "started"), "2"]
    code, events = supervise(worker, 1, until="drained 2")
    assert code == 0
    first, second = (
        ["worker.replacing", "worker.succeeded", "drained 1"],
        ["worker.replacing", "worker.succeeded"],
    )
    assert events[:7] == [*first, "worker.ended", *second, "drained 2"]


def test_a_successor_that_cannot_begin_is_tried_again_and_costs_nobody(tmp_path: Path) -> None:
    says = SAYS.replace("health =", "sys.exit(2) if number > 1 else None\nhealth =")
    worker = [sys.executable, "-c", says, str(tmp_path / "started"), "1"]
    code, events = supervise(worker, 1, until="worker.restarting", times=2)
    assert code == 0
    assert events == ["worker.replacing", "worker.restarting", "worker.restarting", "worker.ended"]
