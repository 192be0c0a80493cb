"""How are real workers started, frozen and killed, and how is seen what they did?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from tests.waiting import PATIENCE, until
from windlass import connect
from windlass.job import NewJob
from windlass.store.store import Store

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent


class Event(NamedTuple):
    """A line that a handler wrote down."""

    kind: str
    job: str
    attempt: int
    pid: int


class Site:
    """One store in a folder, with the processes that work on it."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.url = url or f"sqlite:///{folder / 'jobs.db'}"
        self._log = folder / "executions.log"
        self._gate = folder / "gate"
        self._errors = folder / "workers.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._opened = connect.open(self.url)

    @property
    def store(self) -> Store:
        """The store as this process sees it."""
        return self._opened.store

    def environment(self) -> dict[str, str]:
        """What a process of this site must know."""
        return {**os.environ, "WINDLASS_DATABASE_URL": self.url, "CRASH_LOG": str(self._log)}

    def worker(self, *before: str, slots: int = 10) -> subprocess.Popen[bytes]:
        """Start a worker as a person would, and wait until it has joined."""
        return self.start("tests.crash.app:queue", "--concurrency", str(slots), before=before)

    def fleet(self, count: int, *options: str) -> subprocess.Popen[bytes]:
        """Start a supervisor with so many workers, and wait until all have joined."""
        return self.start("tests.crash.app:queue", "--count", str(count), *options, joining=count)

    def start(
        self,
        *words: str,
        before: tuple[str, ...] = (),
        joining: int = 1,
        looking: bool = True,
        folder: Path = ROOT,
    ) -> subprocess.Popen[bytes]:
        """Start `windlass worker start` with these words, and wait until so many have joined."""
        known = {worker.id for worker in self.store.workers()} if looking else set()
        windlass = str(Path(sys.executable).with_name("windlass"))
        line = [*before, windlass, "worker", "start", *words]
        with self._errors.open("ab") as errors:
            process = subprocess.Popen(line, cwd=folder, env=self.environment(), stderr=errors)
        self._processes.append(process)
        if looking:
            until(
                lambda: len({worker.id for worker in self.store.workers()} - known) >= joining,
                "the workers join",
            )
        return process

    def enqueue(self, *jobs: NewJob) -> list[str]:
        """Store jobs; their ids."""
        return [answer.id for answer in self.store.enqueue(jobs)]

    @property
    def gate(self) -> str:
        """The file that jobs which are held wait for."""
        return str(self._gate)

    def let_go(self) -> None:
        """Let every job go on that is held, now or later."""
        self._gate.touch()

    def events(self) -> list[Event]:
        """What handlers wrote down so far."""
        if not self._log.exists():
            return []
        # Up to the last whole line: one may be on its way.
        whole = self._log.read_text().rpartition("\n")[0]
        lines = (line.split() for line in whole.splitlines())
        return [Event(kind, job, int(attempt), int(pid)) for kind, job, attempt, pid in lines]

    def starts(self, job_id: str) -> list[Event]:
        """Every execution of a job, as it began."""
        return [event for event in self.events() if (event.kind, event.job) == ("start", job_id)]

    def said(self) -> str:
        """What all workers logged so far."""
        return self._errors.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE)
        self._opened.close()


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop a process at a moment at which it holds no lock that others wait for."""

    def stopped_without_locks() -> bool:
        process.send_signal(signal.SIGSTOP)
        until(lambda: _state(process.pid) == "T", "the process stands still")
        if not _holds_a_lock(process.pid):
            return True
        process.send_signal(signal.SIGCONT)
        return False

    until(stopped_without_locks, "the process can be frozen")


def thaw(process: subprocess.Popen[bytes]) -> None:
    """Let a frozen process go on."""
    process.send_signal(signal.SIGCONT)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _holds_a_lock(pid: int) -> bool:
    """Whether the process holds a lock for writing; read locks of SQLite's log hold up nobody."""
    locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(fields[3] == "WRITE" and fields[4] == str(pid) for fields in locks if fields[1] != "->")
