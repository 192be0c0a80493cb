"""How are real workers started, frozen and killed, and how is seen what they did?"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import pytest

from tests.history.check import Problem, Rules, check
from tests.history.end import look
from tests.history.processes import WINDLASS, Process
from tests.history.record import Reader, Recorder, Verb
from tests.waiting import PATIENCE, until
from windlass import connect
from windlass.job import NewJob
from windlass.store.store import Store

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent
# A test may end before its jobs do, and its workers are killed then.
RULES = Rules(all_end=False, leases=False)
# Marks a test whose site is on each store in turn.
on_both = pytest.mark.parametrize("site", ["sqlite", "postgres-15"], indirect=True)


class Event(NamedTuple):
    """What a handler recorded: `start` and `end` of an execution, or a word of its own."""

    kind: str
    job: str
    attempt: int
    pid: int


class Site:
    """One store in a folder, with the processes that work on it."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.url = url or f"sqlite:///{folder / 'jobs.db'}"
        self.recorder = Recorder(folder / "history")
        self._history = Reader(self.recorder.path)
        # None: the test's own history cannot be judged, such as that of clocks which are wrong.
        self.rules: Rules | None = RULES
        self._gate = folder / "gate"
        self._errors = folder / "workers.log"
        self._processes: list[Process] = []
        self._opened = connect.open(self.url)

    @property
    def store(self) -> Store:
        """The store as this process sees it."""
        return self._opened.store

    def environment(self) -> dict[str, str]:
        """What a process of this site must know."""
        return {**os.environ, "WINDLASS_DATABASE_URL": self.url, "PYTHONPATH": str(ROOT)}

    def worker(self, *before: str, slots: int = 10) -> Process:
        """Start a worker as a person would, and wait until it has joined."""
        return self.start("tests.crash.app:queue", "--concurrency", str(slots), before=before)

    def fleet(self, count: int, *options: str) -> Process:
        """Start a supervisor with so many workers, and wait until all have joined."""
        return self.start("tests.crash.app:queue", "--count", str(count), *options, joining=count)

    def start(
        self,
        *words: str,
        before: tuple[str, ...] = (),
        joining: int = 1,
        looking: bool = True,
        folder: Path = ROOT,
    ) -> Process:
        """Start `windlass worker start` with these words, and wait until so many have joined."""
        known = {worker.id for worker in self.store.workers()} if looking else set()
        line = [*before, WINDLASS, "worker", "start", *words]
        with self._errors.open("ab") as errors:
            process = Process(line, self.recorder, cwd=folder, env=self.environment(), stderr=errors)
        self._processes.append(process)
        if looking:
            until(
                lambda: len({worker.id for worker in self.store.workers()} - known) >= joining,
                "the workers join",
            )
        return process

    def enqueue(self, *jobs: NewJob) -> list[str]:
        """Store jobs; their ids."""
        return [answer.id for answer in self.recorder.enqueue(self.store, jobs)]

    @property
    def gate(self) -> str:
        """The file that jobs which are held wait for."""
        return str(self._gate)

    def let_go(self) -> None:
        """Let every job go on that is held, now or later."""
        self._gate.touch()

    def events(self) -> list[Event]:
        """What handlers recorded so far, in the order in which it happened."""
        found: list[tuple[float, Event]] = []
        for call in self._history.read():
            if not call.note:
                continue
            about = (call.job, call.attempt, int(call.note))
            kind = "start" if call.verb == Verb.RUN else call.verb
            found.append((call.start, Event(kind, *about)))
            if call.verb == Verb.RUN and call.answered and call.end is not None:
                found.append((call.end, Event("end", *about)))
        return [event for _, event in sorted(found, key=lambda each: each[0])]

    def problems(self) -> list[Problem]:
        """What of the history is not possible, given what the store shows now."""
        if self.rules is None:
            return []
        return check(self._history.read(), look(self.store, self.url), self.rules).problems

    def starts(self, job_id: str) -> list[Event]:
        """Every execution of a job, as it began."""
        return [event for event in self.events() if (event.kind, event.job) == ("start", job_id)]

    def said(self) -> str:
        """What all workers logged so far."""
        return self._errors.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave no process behind; a test that passed must leave a possible history, too."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE)
        try:
            assert kind is not None or self.problems() == []
        finally:
            self.recorder.close()
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
