"""How does a command run, and how does it surely end?"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.errors import FatalError
from windlass.job import MAX_RESULT, Job, Output
from windlass.outcome import Raised, Result, Returned
from windlass.worker.children.tree import MARK, Marks
from windlass.worker.command import Command, told_end
from windlass.worker.guard import Guard
from windlass.worker.run import Run

_KEPT_IN_RESULT = 16_384


class CommandFailed(Exception):
    """The command ended with another exit code than 0, or by a signal."""

    def __init__(self, exit_code: int, stderr: str) -> None:
        self.exit_code = exit_code
        last = stderr.rstrip().rpartition("\n")[2].strip()
        super().__init__(f"{told_end(exit_code)}: {last}" if last else told_end(exit_code))


class NoSuchFolder(FatalError):
    """The command's folder does not exist; trying again would not make it."""


class Shell:
    """Runs commands, each in a process group of its own that dies with it, and with this worker."""

    def __init__(self, marks: Marks, guard: Guard, clock: Clock) -> None:
        self._clock = clock
        self._process = os.getpid()
        self._marks = marks
        self._guard = guard
        self._lock = threading.Lock()
        self._running: set[Command] = set()

    def run(self, run: Run, payload: dict[str, Any]) -> Result:
        """Run a job's command to its end on this thread."""
        folder = payload.get("cwd")
        if folder is not None and not Path(folder).is_dir():
            # Not raised: where in our code it was found says nothing to anybody.
            return Raised(NoSuchFolder(f"no such folder to run the command in: {folder}"))
        words = payload["command"]
        argv = ["/bin/sh", "-c", words] if isinstance(words, str) else list(words)
        mark = self._marks.next()
        environment = _environment(run.lease.job, payload.get("env")) | {MARK: mark}
        command = Command(argv, folder, environment, mark=mark, guard=self._guard, clock=self._clock)
        with self._lock:
            self._running.add(command)
        try:
            return _result(*self._follow(command, run))
        finally:
            with self._lock:
                self._running.discard(command)

    def kill_all(self) -> None:
        """End every command at once; takes no lock, so that a signal's handler may ask."""
        if self._process != os.getpid():
            return
        for command in tuple(self._running):
            command.kill()

    def _follow(self, command: Command, run: Run) -> tuple[int, Output]:
        run.carrier = command
        # Told to stop after it began and before it could be halted: then it is halted now.
        if run.notice.stop:
            command.halt(run)
        return command.follow()


def _environment(job: Job, extra: dict[str, str] | None) -> dict[str, str]:
    ours = {"WINDLASS_JOB_ID": job.id, "WINDLASS_ATTEMPT": str(job.attempts)}
    return {**os.environ, **(extra or {}), **ours}


def _result(exit_code: int, output: Output) -> Result:
    if exit_code != 0:
        return Raised(CommandFailed(exit_code, output.stderr), output)
    kept = _KEPT_IN_RESULT
    while len(value := _encoded(output, kept)) > MAX_RESULT:
        # Control characters take six bytes each as JSON; a success must not fail because of them.
        kept //= 2
    return Returned(value, output)


def _encoded(output: Output, kept: int) -> bytes:
    return msgspec.json.encode(
        {"exit_code": 0, "stdout": output.stdout[-kept:], "stderr": output.stderr[-kept:]}
    )
