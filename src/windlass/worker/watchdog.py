"""The watchdog: a small process that ends what a killed worker leaves, and notices one that does not answer.

This is the worker's side of it; the program itself is watch.py.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from windlass.clock import Clock
from windlass.errors import WindlassError
from windlass.loop import Loop
from windlass.outcome import hung
from windlass.store.store import Store
from windlass.worker import watch
from windlass.worker.run import Env, Run
from windlass.worker.watch import Box, Hang, Job, new_box, note_signals

log = logging.getLogger("windlass.worker")

# What the process runs, and what it runs itself when the worker does not answer.
_PROGRAM = watch.__file__
_WITNESS = (sys.executable, "-m", "windlass.cli.witness")
_FAREWELL_SECONDS = 1.0


class Guard:
    """Knows the process groups that must not outlive this worker; started with the first one.

    Whoever left a group is found by its tag, see `children/process_tree.py`. In a child made by fork it does
    nothing: the groups are the parent's.
    """

    log = logging.getLogger("windlass.guard")

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._groups: dict[int, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._watching: tuple[tuple[int, ...], str] | None = None
        _guards.add(self)

    def add(self, group: int, tag: str) -> None:
        """From the return of this call on, the group, and whoever carries the tag, dies with this worker."""
        if self._owner != os.getpid():
            return
        with self._lock:
            self._groups[group] = tag
            self._say(f"+{group} {tag}\n")

    def remove(self, group: int) -> None:
        if self._owner != os.getpid():
            return
        with self._lock:
            self._groups.pop(group, None)
            if self._process is not None:
                self._say(f"-{group}\n")

    def watch(self, box: int, signals: int, words: Mapping[str, object]) -> None:
        """Have the guard expect a tick each second; `words` say what to do when none comes."""
        if self._owner == os.getpid():
            told = json.dumps({**words, "box": box, "signals": signals, "witness": _WITNESS})
            with self._lock:
                self._watching = (box,) if signals < 0 else (box, signals), told
                before, pipe = self._process, self._pipe
                self._start()
                if before is not None:
                    # It can no longer be given the box: another one has taken over its groups.
                    os.write(pipe, "".join(f"-{group}\n" for group in self._groups).encode())
                    os.close(pipe)
                    before.wait()

    def tick(self) -> None:
        with self._lock:
            if self._owner == os.getpid() and self._process is not None:
                self._say(".\n")

    def close(self) -> None:
        """Let the guard end; what it still knows, it kills."""
        if self._owner != os.getpid():
            return
        with self._lock:
            if self._process is not None:
                os.close(self._pipe)
                # A fork that we do not know of may hold the pipe open; the guard ends with the last holder.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_FAREWELL_SECONDS)
                self._process = None

    def forget(self) -> None:
        """In a child made by fork: let go of the pipe, or the guard would wait for the child's end too."""
        if self._process is not None:
            # It is the parent's to wait for.
            self._process.returncode = 0
            self._process = None
            with contextlib.suppress(OSError):
                os.close(self._pipe)

    def _say(self, line: str) -> None:
        if self._process is None:
            self._start()
            return
        try:
            os.write(self._pipe, line.encode())
        except OSError as error:
            self.log.warning("guard.lost", extra={"pid": self._process.pid, "error": str(error)})
            os.close(self._pipe)
            self._process.wait()
            self._start()

    def _start(self) -> None:
        """A new guard, told of every group there is and of what to watch."""
        reading, self._pipe = os.pipe()
        watched = self._watching
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _PROGRAM],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                # Its findings go to the worker's log.
                stderr=None if watched else subprocess.DEVNULL,
                pass_fds=watched[0] if watched else (),
                start_new_session=True,
            )
        finally:
            os.close(reading)
        words = "".join(f"+{group} {tag}\n" for group, tag in self._groups.items())
        os.write(self._pipe, f"{words}w{watched[1]}\n".encode() if watched else words.encode())


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _after_fork() -> None:
    for guard in _guards:
        guard.forget()


os.register_at_fork(after_in_child=_after_fork)


EVERY = timedelta(seconds=1)
# A worker inside another program is watched after its first seconds: most of those in tests end before.
_EMBEDDED_FIRST = timedelta(seconds=5)
_AT_ONCE = timedelta(0)
_RED_SECONDS = 60.0
# A debugger stops all threads for as long as somebody reads.
_DEBUGGER = "pydevd"


class Watched(NamedTuple):
    """Who watches this worker, and what they may do."""

    # The box of a supervisor, which watches by itself; else the guard does.
    box: int | None = None
    # The guard may end this process: it is nothing but a worker.
    expendable: bool = False
    # How the log is written that the guard has its findings written to.
    log_json: bool = False


# A worker inside another program.
EMBEDDED = Watched()


@dataclass(eq=False)
class Liveness:
    """What a watching process knows of this worker: that it ticks, and which job runs on which thread."""

    env: Env
    guard: Guard
    watched: Watched

    def __post_init__(self) -> None:
        watched = self.watched
        self._limit = self.env.config.hang_limit if _DEBUGGER not in sys.modules else None
        self.box: Box | None = None
        self._ticked = 0.0
        self._hung: tuple[float, float] | None = None
        self._embedded = watched.box is None and not watched.expendable
        first = _EMBEDDED_FIRST if self._embedded else _AT_ONCE
        self._loop = Loop("liveness", self.tick, every=EVERY, first=first)

    def begin(self) -> None:
        """From now on a silence means that this process hangs; call it when the start is over."""
        if self._limit is None:
            return
        if not self._embedded:
            # The system may have no room for a guard just now: the loop tries again.
            with contextlib.suppress(OSError):
                self._open()
        if self.watched.box is None:
            # Else the reports to the supervisor are the ticks.
            self._loop.start()

    def end(self) -> None:
        self._loop.stop(0.0)
        if self.box is not None:
            self.box.disarm()

    @property
    def trouble(self) -> str:
        if self._hung is None or self.env.clock.monotonic() - self._hung[0] > _RED_SECONDS:
            return ""
        return f"did not answer for {self._hung[1]:.0f} s: worker.hung in the log tells where"

    def tick(self) -> None:
        if self.box is None:
            self._open()
        self.guard.tick()
        self._look_back()

    def _open(self) -> None:
        watched = self.watched
        box = Box(new_box() if watched.box is None else watched.box)
        if watched.box is None:
            url: str | None = None
            # A store in memory has no second connection.
            with contextlib.suppress(WindlassError):
                url = self.env.store.shared_address()
            kills = watched.expendable
            words = {"limit": self._seconds, "kills": kills, "url": url, "log_json": watched.log_json}
            # Only the main thread may say where signals are noted.
            main = threading.current_thread() is threading.main_thread()
            self.guard.watch(box.fd, note_signals() if kills and main else -1, words)
        box.arm()
        self.box, self._ticked = box, self.env.clock.monotonic()

    def _look_back(self) -> None:
        """This thread runs again: if the guard asked for stacks meanwhile, tell what it was given."""
        now = self.env.clock.monotonic()
        gap, self._ticked = now - self._ticked, now
        if gap < self._seconds or self.box is None:
            return
        if stacks := self.box.take_stacks():
            self._hung = (now, gap)
            tell_hang(Hang("hung", gap, stacks), {}, killed=False)

    @property
    def _seconds(self) -> float:
        return 0.0 if self._limit is None else self._limit.total_seconds()


def watched_job(run: Run) -> Job:
    """What a watching process should know of a run that begins on this thread."""
    name, lease = getattr(run.handler.function, "__name__", ""), run.lease
    return Job(threading.get_native_id(), lease.job.seq, lease.id, lease.token, name)


_IDLE = timedelta(hours=1)
_LOOK_SECONDS = 0.05


def tell_hang(found: Hang, fields: Mapping[str, object], *, killed: bool) -> None:
    """Log what the watcher of a worker found."""
    told = {**fields, "seconds": round(found.seconds, 1), "jobs": [job.id for job in found.jobs]}
    if found.event == "answers":
        log.warning("worker.answers", extra=told)
    elif found.event == "silent":
        log.warning("worker.silent", extra={**told, "stacks": found.stacks})
    else:
        log.error("worker.hung", extra={**told, "killed": killed, "stacks": found.stacks})


class Notes:
    """Writes findings into the store, where the jobs' reaper finds them; tries again while that is away."""

    def __init__(self, store: Callable[[], Store], *, wrote: Callable[[], object] = lambda: None) -> None:
        self._store = store
        self._wrote = wrote
        self._found: deque[Hang] = deque()
        self.loop = Loop("hangs", self.tick, every=_IDLE)

    def note(self, found: Hang) -> None:
        self._found.append(found)
        self.loop.wake()

    def tick(self) -> None:
        while self._found:
            found = self._found[0]
            hang = None if found.event == "answers" else hung(found.seconds, found.stacks)
            for job in found.jobs:
                self._store().note_hang(job.seq, job.token, hang)
            self._found.popleft()
            self._wrote()

    def flush(self, seconds: float, clock: Clock) -> None:
        """Wait until everything is written, but not longer than this."""
        end, pause = clock.monotonic() + seconds, threading.Event()
        while self._found and clock.monotonic() < end:
            pause.wait(_LOOK_SECONDS)
