"""Who ends the commands of a worker that was killed? A small process that outlives it by a moment."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import weakref

log = logging.getLogger("windlass.guard")

# It learns of the worker's end by the end of its input: nothing else is sure to happen after a kill -9.
_SCRIPT = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
groups = {}
for line in iter(sys.stdin.readline, ""):
    group, _, mark = line[1:].strip().partition(" ")
    groups.pop(int(group), None)
    if line[0] == "+":
        groups[int(group)] = mark
def kill(how, number):
    try:
        how(number, signal.SIGKILL)
    except OSError:
        pass
def marked(number):
    try:
        with open(f"/proc/{number}/environ", "rb") as file:
            return any(word in marks for word in file.read().split(b"\\0"))
    except OSError:
        return False
for group in groups:
    kill(os.killpg, group)
marks = {f"WINDLASS_CHILD={mark}".encode() for mark in groups.values()}
for _ in range(50):
    seen = os.listdir("/proc") if marks and os.path.isdir("/proc") else []
    left = [int(name) for name in seen if name.isdigit() and marked(name)]
    for number in left:
        kill(os.kill, number)
    if not left:
        break
    time.sleep(0.02)
"""

_FAREWELL_SECONDS = 1.0


class Guard:
    """Knows the process groups that must not outlive this worker; started with the first one.

    Whoever left a group is found by its mark, see `children/tree.py`. In a child made by fork it does
    nothing: the groups are the parent's.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._groups: dict[int, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        _guards.add(self)

    def add(self, group: int, mark: str) -> None:
        """From the return of this call on, the group, and whoever carries the mark, dies with this worker."""
        if self._owner != os.getpid():
            return
        with self._lock:
            self._groups[group] = mark
            self._say(f"+{group} {mark}\n")

    def remove(self, group: int) -> None:
        """The group is gone; its number may be given to others."""
        if self._owner != os.getpid():
            return
        with self._lock:
            self._groups.pop(group, None)
            if self._process is not None:
                self._say(f"-{group}\n")

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
            log.warning("guard.lost", extra={"pid": self._process.pid, "error": str(error)})
            os.close(self._pipe)
            self._process.wait()
            self._start()

    def _start(self) -> None:
        """A new guard, told of every group there is."""
        reading, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reading)
        os.write(self._pipe, "".join(f"+{group} {mark}\n" for group, mark in self._groups.items()).encode())


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _after_fork() -> None:
    for guard in _guards:
        guard.forget()


os.register_at_fork(after_in_child=_after_fork)
