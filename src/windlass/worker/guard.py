"""Who ends the commands of a worker that was killed? A small process that outlives it by a moment.

It also watches a worker that has no supervisor, see watch.py.
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
from collections.abc import Mapping

from windlass.worker import watch

log = logging.getLogger("windlass.guard")

# What the process runs, and what it runs itself when the worker does not answer.
_PROGRAM = watch.__file__
_WITNESS = (sys.executable, "-m", "windlass.cli.witness")
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
        self._watching: tuple[tuple[int, ...], str] | None = None
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

    def watch(self, box: int, signals: int, words: Mapping[str, object]) -> None:
        """From now on the guard expects a tick each second; `words` say what to do when none comes.

        It is given two descriptors: the box, and where signals are noted (-1: nowhere).
        """
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
        """This worker answers."""
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
            log.warning("guard.lost", extra={"pid": self._process.pid, "error": str(error)})
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
        words = "".join(f"+{group} {mark}\n" for group, mark in self._groups.items())
        os.write(self._pipe, f"{words}w{watched[1]}\n".encode() if watched else words.encode())


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _after_fork() -> None:
    for guard in _guards:
        guard.forget()


os.register_at_fork(after_in_child=_after_fork)
