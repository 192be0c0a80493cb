"""Run commands: start them, read the end of their output, stop them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from windlass.clock import Clock
from windlass.errors import FatalError
from windlass.job import MAX_RESULT, Job, Output
from windlass.outcome import Raised, Result, Returned, clean_end
from windlass.worker.children import process_tree
from windlass.worker.children.process_tree import kill_group
from windlass.worker.run import Run
from windlass.worker.watch import TAG, end_tagged
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

    def __init__(self, tags: Iterator[str], guard: Guard, clock: Clock) -> None:
        self._clock = clock
        self._process = os.getpid()
        self._tags = tags
        self._guard = guard
        self._running: set[Command] = set()

    def run(self, run: Run, payload: dict[str, Any]) -> Result:
        folder = payload.get("cwd")
        if folder is not None and not Path(folder).is_dir():
            # Not raised: where in our code it was found says nothing to anybody.
            return Raised(NoSuchFolder(f"no such folder to run the command in: {folder}"))
        words = payload["command"]
        argv = ["/bin/sh", "-c", words] if isinstance(words, str) else list(words)
        tag = next(self._tags)
        environment = _environment(run.lease.job, payload.get("env")) | {TAG: tag}
        command = Command(argv, folder, environment, tag, self._guard, self._clock)
        self._running.add(command)
        try:
            run.carrier = command
            # Told to stop after it began and before it could be halted: then it is halted now.
            if run.notice.stop:
                command.halt(run)
            return _result(*command.follow())
        finally:
            self._running.discard(command)

    def kill_all(self) -> None:
        """End every command at once; takes no lock, so that a signal's handler may ask."""
        if self._process == os.getpid():
            for command in tuple(self._running):
                command.kill()


def _environment(job: Job, extra: dict[str, str] | None) -> dict[str, str]:
    ours = {"WINDLASS_JOB_ID": job.id, "WINDLASS_ATTEMPT": str(job.attempts)}
    return {**os.environ, **(extra or {}), **ours}


def _result(exit_code: int, output: Output) -> Result:
    if exit_code != 0:
        return Raised(CommandFailed(exit_code, output.stderr), output)
    kept = _KEPT_IN_RESULT
    while True:
        ends = {"stdout": output.stdout[-kept:], "stderr": output.stderr[-kept:]}
        value = msgspec.json.encode({"exit_code": 0, **ends})
        if len(value) <= MAX_RESULT:
            return Returned(value, output)
        # Control characters take six bytes each as JSON; a success must not fail because of them.
        kept //= 2


# The command proper waits for a line on its input: until the guard knows its group, it has not begun.
_STARTER = ["/bin/sh", "-c", 'read -r _ || exit 125; exec "$@" </dev/null', "sh"]
_GO = b"\n"

# From SIGTERM to SIGKILL: with the second until a cancel is heard of, less than the two that it may take.
TERM_SECONDS = 0.8
# How long descendants that left the group may keep the output open.
_AFTERMATH_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_SLOW_LOOK_SECONDS = 0.5


@dataclass(eq=False)
class Command:
    """One command in a session of its own. `follow` runs it; `halt` and `kill` may come from any thread."""

    argv: list[str]
    cwd: str | None
    environment: dict[str, str]
    tag: str
    guard: Guard
    clock: Clock

    def __post_init__(self) -> None:
        # Guards the group's number: once the leader is reaped, it may belong to others.
        self._lock = threading.Lock()
        self._group: int | None = None
        self._halted: float | None = None

    def follow(self) -> tuple[int, Output]:
        """Start it, read what it says, and see it end; its exit code (minus the signal) and its output."""
        process, go = self._start()
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(process.wait)
            reader = cleanup.enter_context(Reader(process))
            self._admit(process.pid, go)
            try:
                while not process_tree.has_ended(process):
                    seldom = reader.sees_the_end and self._halted is None
                    reader.read(_SLOW_LOOK_SECONDS if seldom else _LOOK_SECONDS)
                    if self._halted is not None and self.clock.monotonic() - self._halted >= TERM_SECONDS:
                        self._signal(signal.SIGKILL)
            finally:
                self._end_group(process.pid)
            until = self.clock.monotonic() + _AFTERMATH_SECONDS
            while reader.open and self.clock.monotonic() < until:
                reader.read(_LOOK_SECONDS)
        return process.returncode, Output(process.returncode, *reader.texts())

    def halt(self, run: Run) -> bool:  # noqa: ARG002 - a Carrier is told which; a command has only one
        self._signal(signal.SIGTERM)
        return True

    def kill(self) -> None:
        """End the group at once; safe within a signal's handler."""
        if self._group is not None:
            kill_group(self._group)

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        reading, go = os.pipe()
        try:
            process = subprocess.Popen(
                [*_STARTER, *self.argv],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.cwd,
                env=self.environment,
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
            self.guard.add(group, self.tag)
            with self._lock:
                self._group = group
                halted = self._halted is not None
            if not halted:
                os.write(go, _GO)
        finally:
            os.close(go)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            self._halted = self._halted if self._halted is not None else self.clock.monotonic()
            if self._group is not None:
                kill_group(self._group, number)

    def _end_group(self, group: int) -> None:
        """What the leader left behind ends with it; before it is reaped, while the number is its own."""
        with self._lock:
            kill_group(group)
            self._group = None
        if self._halted is not None:
            # What left the group shall stop too; a command that ended by itself may leave a daemon behind.
            end_tagged(self.tag, but=group)
        self.guard.remove(group)


class Reader:
    """Reads what a process prints as it comes, and keeps the ends of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101 - asked for by whoever started it
        assert process.stderr is not None  # noqa: S101 - as above
        self._tails = (Tail(process.stdout), Tail(process.stderr))
        # Whether the system tells when the process ends, so that nobody need look.
        self.sees_the_end = hasattr(os, "pidfd_open")
        with contextlib.ExitStack() as opened:
            for tail in self._tails:
                opened.enter_context(tail.pipe)
            self._selector = opened.enter_context(selectors.DefaultSelector())
            for tail in self._tails:
                self.listen(tail.pipe, tail.read)
            if self.sees_the_end:
                ended = os.pidfd_open(process.pid)
                opened.callback(os.close, ended)
                self.listen(ended, lambda: False)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def listen(self, source: Any, hear: Callable[[], bool]) -> None:
        """Call `hear` whenever something comes from there, until it returns False."""
        self._selector.register(source, selectors.EVENT_READ, (len(self._selector.get_map()), hear))

    def read(self, seconds: float | None) -> None:
        """Take in what comes within that time."""
        # In the order of registration: what was printed before a message belongs to the job that it ends.
        for key, _ in sorted(self._selector.select(seconds), key=lambda event: event[0].data[0]):
            if not key.data[1]():
                self._selector.unregister(key.fileobj)

    @property
    def open(self) -> bool:
        return any(tail.open for tail in self._tails)

    @property
    def silent(self) -> bool:
        """Whether nothing came since the last `forget`."""
        return not any(tail.kept for tail in self._tails)

    def texts(self) -> list[str]:
        return [tail.text() for tail in self._tails]

    def forget(self) -> None:
        for tail in self._tails:
            tail.forget()

    def drain(self) -> None:
        """Read all that is there."""
        for tail in self._tails:
            while tail.open and tail.read():
                pass


def told_end(exit_code: int) -> str:
    """How a process ended, in words; minus a number means by that signal."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


KEPT = 16_384
_CHUNK = 65_536


class Tail:
    """The last of what came out of one pipe, however much came before."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe = pipe
        self.open = True
        self.kept = bytearray()
        self._dropped = 0
        os.set_blocking(pipe.fileno(), False)

    def read(self) -> bool:
        """Take one piece; False when there will be no more."""
        piece = os.read(self.pipe.fileno(), _CHUNK)
        self.kept += piece
        if len(self.kept) > 2 * KEPT:
            self._trim()
        self.open = bool(piece)
        return self.open

    def text(self) -> str:
        self._trim()
        text = self.kept.decode(errors="replace")
        if self._dropped:
            text = f"({self._dropped} bytes before) …{text}"
        return clean_end(text, len(text))

    def forget(self) -> None:
        self.kept.clear()
        self._dropped = 0

    def _trim(self) -> None:
        over = len(self.kept) - KEPT
        if over > 0:
            del self.kept[:over]
            self._dropped += over
