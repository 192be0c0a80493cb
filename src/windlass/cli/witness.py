"""Who writes down that a worker without a supervisor does not answer? A process that its guard starts."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from functools import cache

import msgspec

from windlass import connect
from windlass.cli.logs import log_to_stderr
from windlass.clock import SystemClock
from windlass.worker.watch import Hang, Job
from windlass.worker.watchdog import Notes, tell_hang

_FLUSH_SECONDS = 30.0


class Setting(msgspec.Struct):
    """The first line: where the store is, and how the log is written."""

    url: str | None
    log_json: bool


class Finding(msgspec.Struct):
    """Each further line: what the guard found, see watch.py."""

    event: str
    seconds: float
    stacks: str
    jobs: list[tuple[int, int, str, str, str]]
    pid: int
    killed: bool


def main() -> None:
    """Log and store what comes in, until the guard has ended."""
    # The worker's end is told to its whole group; what is known has to be written first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    setting = msgspec.json.decode(sys.stdin.buffer.readline(), type=Setting)
    log_to_stderr(as_json=setting.log_json)
    url = setting.url
    # Opened when it is first needed, and kept.
    opened = cache(lambda: connect.open(url, create=False).store) if url is not None else None
    notes = Notes(opened, wrote=_confirm) if opened is not None else None
    if notes is not None:
        notes.loop.start()
    for line in sys.stdin.buffer:
        said = msgspec.json.decode(line, type=Finding)
        found = Hang(said.event, said.seconds, said.stacks, tuple(Job(*each) for each in said.jobs))
        tell_hang(found, {"pid": said.pid}, killed=said.killed)
        if notes is not None:
            notes.note(found)
    if notes is not None:
        notes.flush(_FLUSH_SECONDS, SystemClock())


def _confirm() -> None:
    """Tell the guard that a finding is in the store."""
    with contextlib.suppress(OSError):
        os.write(1, b".")


if __name__ == "__main__":
    main()
