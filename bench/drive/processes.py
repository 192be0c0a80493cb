"""How are a peer's worker processes started, watched and ended?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bench.drive import tasks
from bench.drive.contract import Driver

_STOP_SECONDS = 3.0
_START_SECONDS = 60.0
# A process that starts when others have taken all there is will never stand at the gate.
_OTHERS_SECONDS = 4.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEGABYTE = 1 << 20


class Heard(NamedTuple):
    """Something that a task told."""

    what: str
    body: str
    at: float
    pid: int


class Usage(NamedTuple):
    """What a tree of processes has used."""

    cpu_seconds: float
    megabytes: float


class Workers:
    """Worker processes of one peer, and what their tasks tell."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self._driver = driver
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._log = (folder / "workers.log").open("wb")
        self.heard: list[Heard] = []
        self._news = threading.Condition()
        # A pipe with a name, which every language can write to; a line is written whole.
        os.mkfifo(folder / tasks.MARKS)
        self._marks = os.open(folder / tasks.MARKS, os.O_RDWR)
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._log.close()

    def start(self, *, concurrency: int | None = None) -> subprocess.Popen[bytes]:
        """Start one more; it may not be ready when this returns."""
        environment = os.environ | {tasks.FOLDER: str(self._folder)}
        process = subprocess.Popen(
            self._driver.worker(concurrency),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._running.append(process)
        return process

    def stop(self) -> None:
        """End them all, gently if they let us."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        until = time.monotonic() + _STOP_SECONDS
        for process in self._running:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                kill_tree(process.pid)
                process.wait()
        self._running.clear()

    def open_gate(self) -> None:
        """Let the tasks that wait, and all later ones, pass."""
        (self._folder / tasks.GATE).touch()

    def await_ready(self, count: int) -> None:
        """Wait until so many processes stand at the gate; not long for those that find nothing to do."""
        until = time.monotonic() + _START_SECONDS
        while (ready := len(list(self._folder.glob(f"{tasks.READY}-*")))) < count:
            self.check()
            if ready:
                until = min(until, time.monotonic() + _OTHERS_SECONDS)
            if time.monotonic() > until and ready:
                return
            if time.monotonic() > until:
                raise TimeoutError(
                    f"the workers did not start within {_START_SECONDS:g} s: {self.last_words()}"
                )
            time.sleep(0.005)

    def await_heard(self, what: str, count: int, *, within: float) -> None:
        """Wait until tasks have told this so many times."""

        def enough() -> bool:
            return sum(each.what == what for each in self.heard) >= count

        until = time.monotonic() + within
        with self._news:
            while not self._news.wait_for(enough, 0.5):
                self.check()
                if time.monotonic() > until:
                    raise TimeoutError(f"{what!r} was not heard within {within:g} s: {self.last_words()}")

    def check(self) -> None:
        """Raise if a worker has ended on its own."""
        for process in self._running:
            if process.poll() is not None:
                raise RuntimeError(f"a worker ended with {process.returncode}: {self.last_words()}")

    def usage(self) -> Usage:
        """What all of them and their children have used so far."""
        pids = [pid for process in self._running for pid in tree(process.pid)]
        each = [used(pid) for pid in pids]
        return Usage(sum(one.cpu_seconds for one in each), sum(one.megabytes for one in each))

    def last_words(self) -> str:
        """The end of what the workers printed."""
        self._log.flush()
        lines = (self._folder / "workers.log").read_text(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-2:])[-300:] or "(nothing printed)"

    def _listen(self) -> None:
        rest = b""
        while True:
            *lines, rest = (rest + os.read(self._marks, 65536)).split(b"\n")
            with self._news:
                for what, body, at, pid in (line.decode().split() for line in lines):
                    self.heard.append(Heard(what, body, int(at) / 1e9, int(pid)))
                self._news.notify_all()


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for each in found:
        for thread in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in thread.read_text().split()]
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and all that descend from it, at once."""
    for each in tree(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def used(pid: int) -> Usage:
    """What a process has used, with those of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Usage(0.0, 0.0)
    # Counted from the state, which is field 3 of proc(5): utime 14, stime 15, cutime 16, cstime 17, rss 24.
    ticks = sum(int(fields[number - 3]) for number in (14, 15, 16, 17))
    return Usage(ticks / _TICKS, int(fields[24 - 3]) * _PAGE / _MEGABYTE)
