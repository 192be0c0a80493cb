"""Run commands: start them, read the end of their output, stop them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from windlass.clock import Clock
from windlass.errors import FatalError
from windlass.job import MAX_RESULT, Job, Output
from windlass.outcome import Raised, Result, Returned, clean_end
from windlass.worker.children import process_tree
from windlass.worker.children.process_tree import TAG, ProcessTags
from windlass.worker.run import Run
from windlass.worker.watchdog import Guard

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

    def __init__(self, tags: ProcessTags, guard: Guard, clock: Clock) -> None:
        self._clock = clock
        self._process = os.getpid()
        self._tags = tags
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
        tag = self._tags.next()
        environment = _environment(run.lease.job, payload.get("env")) | {TAG: tag}
        command = Command(argv, folder, environment, tag=tag, guard=self._guard, clock=self._clock)
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


# The command proper waits for a line on its input: until the guard knows its group, it has not begun.
_STARTER = ["/bin/sh", "-c", 'read -r _ || exit 125; exec "$@" </dev/null', "sh"]
_GO = b"\n"

# From SIGTERM to SIGKILL: with the second until a cancel is heard of, less than the two that it may take.
TERM_SECONDS = 0.8
# How long descendants that left the group may keep the output open.
_AFTERMATH_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_SLOW_LOOK_SECONDS = 0.5


class Command:
    """One command in a session of its own. `follow` runs it; `halt` and `kill` may come from any thread."""

    def __init__(
        self,
        argv: list[str],
        cwd: str | None,
        environment: dict[str, str],
        *,
        tag: str,
        guard: Guard,
        clock: Clock,
    ) -> None:
        self._argv = argv
        self._cwd = cwd
        self._environment = environment
        self._tag = tag
        self._guard = guard
        self._clock = clock
        # Guards the group's number: once the leader is reaped, it may belong to others.
        self._lock = threading.Lock()
        self._group: int | None = None
        self._halted: float | None = None

    def follow(self) -> tuple[int, Output]:
        """Start it, read what it says, and see it end; its exit code (minus the signal) and its output."""
        process, go = self._start()
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(process.wait)
            assert process.stdout is not None  # noqa: S101 - asked for in _start
            assert process.stderr is not None  # noqa: S101 - asked for in _start
            reader = cleanup.enter_context(_Reader(process.pid, process.stdout, process.stderr))
            self._admit(process.pid, go)
            try:
                while not _has_ended(process):
                    reader.read(self._next_look(reader))
                    self._escalate()
            finally:
                self._end_group(process.pid)
            self._read_rest(reader)
        return process.returncode, Output(process.returncode, *reader.texts())

    def halt(self, run: Run) -> bool:  # noqa: ARG002 - a Carrier is told which; a command has only one
        """Ask the group to end; if it does not, it is killed."""
        self._signal(signal.SIGTERM)
        return True

    def kill(self) -> None:
        """End the group at once; safe within a signal's handler."""
        if self._group is not None:
            _kill_group(self._group, signal.SIGKILL)

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        reading, go = os.pipe()
        try:
            process = subprocess.Popen(
                [*_STARTER, *self._argv],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._cwd,
                env=self._environment,
                start_new_session=True,
            )
        except BaseException:  # wall: whatever kept it from starting, no pipe is left open
            os.close(go)
            raise
        finally:
            os.close(reading)
        return process, go

    def _admit(self, group: int, go: int) -> None:
        """Let the command begin, now that it cannot outlive us; unless it was halted before."""
        try:
            self._guard.add(group, self._tag)
            with self._lock:
                self._group = group
                halted = self._halted is not None
            if not halted:
                os.write(go, _GO)
        finally:
            os.close(go)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            self._halted = self._halted if self._halted is not None else self._clock.monotonic()
            if self._group is not None:
                _kill_group(self._group, number)

    def _escalate(self) -> None:
        if self._halted is not None and self._clock.monotonic() - self._halted >= TERM_SECONDS:
            self._signal(signal.SIGKILL)

    def _next_look(self, reader: _Reader) -> float:
        return _SLOW_LOOK_SECONDS if reader.sees_the_end and self._halted is None else _LOOK_SECONDS

    def _end_group(self, group: int) -> None:
        """What the leader left behind ends with it; before it is reaped, while the number is its own."""
        with self._lock:
            _kill_group(group, signal.SIGKILL)
            self._group = None
        if self._halted is not None:
            # What left the group shall stop too; a command that ended by itself may leave a daemon behind.
            process_tree.end_tagged(self._tag, but=group)
        self._guard.remove(group)

    def _read_rest(self, reader: _Reader) -> None:
        until = self._clock.monotonic() + _AFTERMATH_SECONDS
        while reader.open and self._clock.monotonic() < until:
            reader.read(_LOOK_SECONDS)


class _Reader:
    """Reads both outputs as they come and keeps their ends."""

    def __init__(self, pid: int, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._selector = selectors.DefaultSelector()
        self._ends = (Tail(stdout), Tail(stderr))
        for end in self._ends:
            self._selector.register(end.pipe, selectors.EVENT_READ, end)
        self._pid_fd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
        if self.sees_the_end:
            self._selector.register(self._pid_fd, selectors.EVENT_READ, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for end in self._ends:
            end.pipe.close()
        if self.sees_the_end:
            os.close(self._pid_fd)

    @property
    def sees_the_end(self) -> bool:
        """Whether the system tells when the process ends, so that nobody need look."""
        return self._pid_fd >= 0

    @property
    def open(self) -> bool:
        """Whether anybody may still write."""
        return any(end.open for end in self._ends)

    def read(self, seconds: float) -> None:
        """Take in what comes within that time."""
        for key, _ in self._selector.select(seconds):
            end: Tail | None = key.data
            if end is None or not end.read():
                self._selector.unregister(key.fileobj)

    def texts(self) -> list[str]:
        return [end.text() for end in self._ends]


def told_end(exit_code: int) -> str:
    """How a process ended, in words; minus a number means by that signal."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the leader ended; left unreaped where the system allows, so that its number stays its own."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def _kill_group(group: int, number: signal.Signals) -> None:
    # On some systems a group that consists of an ended leader alone may not be signalled.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


KEPT = 16_384
_CHUNK = 65_536


class Tail:
    """The last of what came out of one pipe, however much came before."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe = pipe
        self.open = True
        self._kept = bytearray()
        self._dropped = 0
        os.set_blocking(pipe.fileno(), False)

    def read(self) -> bool:
        """Take one piece; False when there will be no more."""
        piece = os.read(self.pipe.fileno(), _CHUNK)
        self._kept += piece
        if len(self._kept) > 2 * KEPT:
            self._trim()
        self.open = bool(piece)
        return self.open

    @property
    def empty(self) -> bool:
        """Whether nothing came since the last `forget`."""
        return not self._kept

    def text(self) -> str:
        """What is kept, as text that can be stored."""
        self._trim()
        text = self._kept.decode(errors="replace")
        if self._dropped:
            text = f"({self._dropped} bytes before) …{text}"
        return clean_end(text, len(text))

    def forget(self) -> None:
        """Begin anew."""
        self._kept.clear()
        self._dropped = 0

    def _trim(self) -> None:
        over = len(self._kept) - KEPT
        if over > 0:
            del self._kept[:over]
            self._dropped += over
