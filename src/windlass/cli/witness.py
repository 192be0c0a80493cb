"""Who writes down that a worker without a supervisor does not answer? A process that its guard starts."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

import msgspec

from windlass import connect
from windlass.cli.logs import log_to_stderr
from windlass.clock import SystemClock
from windlass.store.store import Store
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
    notes = Notes(_Opening(setting.url), wrote=_confirm) if setting.url is not None else None
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


class _Opening:
    """The store, opened when it is first needed and kept."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Any = None

    def __call__(self) -> Store:
        if self._store is None:
            self._store = connect.open(self._url, create=False).store
        store: Store = self._store
        return store


if __name__ == "__main__":
    main()
