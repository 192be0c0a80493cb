"""A child process, seen from the worker: it is started, given a job, watched, answered and ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, get_args, get_type_hints

import msgspec

from windlass.clock import Clock
from windlass.job import Output, Reason
from windlass.outcome import Crashed, Interrupted, Result, Returned, TimedOut
from windlass.size import told_size
from windlass.worker.children import messages, process_tree
from windlass.worker.children.messages import Answered, Asked, Verb, retell
from windlass.worker.children.process_tree import OomWatch
from windlass.worker.context_backend import ContextBackend
from windlass.worker.run import Run
from windlass.worker.shell import TERM_SECONDS, Tail, told_end
from windlass.worker.watchdog import Guard

# The child has the worker's own view of where modules are found, before it imports any.
_BEGIN = (
    "import json, sys; parent, link, sys.path[:] = json.loads(sys.argv.pop()); "
    "from windlass.worker.children.program import main; main(parent, link)"
)
START_SECONDS = 60.0
_FAREWELL_SECONDS = 2.0
_LOOK_SECONDS = 0.05


class ChildFailed(Exception):
    """The child could not be started, or could not import the application."""


class Child:
    """One process that runs one job at a time; for one thread at a time, but for `ring` and `kill`."""

    def __init__(self, tag: str, *, guard: Guard, clock: Clock) -> None:
        self._tag = tag
        self._guard = guard
        self._clock = clock
        self._lock = threading.Lock()
        # Whatever is open for it, closed together.
        self._opened = contextlib.ExitStack()
        self._selector = self._opened.enter_context(selectors.DefaultSelector())
        self._pid_fd = -1
        self._heard: deque[messages.FromChild] = deque()
        self._first_size = 0
        self._measured = 0.0
        # Once it has ended, its number may belong to others.
        self.ended = False
        self.exit_code: int | None = None
        self.peak = 0
        self.jobs = 0

    # --- its beginning and its end ---

    def start(self) -> None:
        """Begin the process, on a thread that lives as long as the worker: the child dies with it."""
        ours, theirs = socket.socketpair()
        self._opened.enter_context(ours)
        try:
            self._begin(theirs)
            self._take_up(ours)
        except BaseException:  # wall: whatever there is none of, such as a file's number, nothing stays open
            self._opened.close()
            raise

    def _begin(self, theirs: socket.socket) -> None:
        with theirs:
            for_it = json.dumps([os.getpid(), theirs.fileno(), sys.path])
            flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - there is no public way
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", _BEGIN, for_it],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, process_tree.TAG: self._tag},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def _take_up(self, ours: socket.socket) -> None:
        try:
            self._guard.add(self.pid, self._tag)
            self._attend(ours)
        except BaseException:  # wall: a process that nobody could hear must not stay
            process_tree.end(self.pid, self._tag)
            self._reap()
            self._guard.remove(self.pid)
            raise

    def meet(self, hello: messages.Hello) -> None:
        """Wait until it has imported the application; ChildFailed if it cannot."""
        until = self._clock.monotonic() + START_SECONDS
        with contextlib.suppress(OSError):
            self.say(hello)
        answer = None
        while answer is None and not self.has_ended() and self._clock.monotonic() < until:
            answer = self.hear(until - self._clock.monotonic())
        if isinstance(answer, messages.Ready):
            self._first_size = process_tree.usage(self.pid).resident
            return
        gone = self.has_ended()
        self.end()
        if isinstance(answer, messages.Unfit):
            raise ChildFailed(answer.why)
        said = self.output().stderr.strip()
        raise ChildFailed(said or "it died" if gone else f"it took longer than {START_SECONDS:g} s")

    def bid_farewell(self) -> None:
        """Tell it that no job will come any more."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def dismiss(self) -> None:
        """Let it end by itself; if it does not, it is killed."""
        self.bid_farewell()
        until = self._clock.monotonic() + _FAREWELL_SECONDS
        pause = threading.Event()
        while not self.has_ended() and self._clock.monotonic() < until:
            pause.wait(_LOOK_SECONDS)
        self.end()

    def end(self) -> None:
        """End it with all its descendants; from then on `exit_code` and `peak` tell of it."""
        with self._lock:
            if self.ended:
                return
            process_tree.end(self.pid, self._tag)
            self._reap()
            self.ended = True
        self._guard.remove(self.pid)
        with contextlib.suppress(OSError):
            self._drain()
        self._opened.close()

    def kill(self) -> None:
        """End its group at once; takes no lock, so that a signal's handler may ask."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether the process ended; left unreaped where that can be, so that its number stays its own."""
        if self.ended or not hasattr(os, "waitid"):
            return self.ended or self._process.poll() is not None
        try:
            seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # Somebody else in this process asked for it.
            return True
        return seen is not None

    # --- speaking with it ---

    def hear(self, seconds: float | None) -> messages.FromChild | None:
        """Its next message; None if the time is over, the bell rang, or it ended. What it logs is logged."""
        if not self._heard:
            events = self._selector.select(seconds)
            if len(events) > 1:
                # What was printed before a message belongs to the job that the message ends.
                events.sort(key=lambda event: event[0].data is None)
            for key, _ in events:
                self._take(key)
        return self._heard.popleft() if self._heard else None

    @property
    def tells_its_end(self) -> bool:
        """Whether `hear` returns when the process ends, so that nobody need look."""
        return self._pid_fd >= 0

    def ring(self) -> None:
        """Let whoever hears it look up; from any thread."""
        with contextlib.suppress(OSError):
            self._bell[1].send(b"!")

    def begin_output(self) -> None:
        """What it prints from now on belongs to the next job."""
        for tail in self._tails:
            tail.forget()

    @property
    def silent(self) -> bool:
        """Whether it has printed nothing."""
        return all(tail.empty for tail in self._tails)

    def output(self) -> Output:
        """What it printed, and how it ended if it has."""
        return Output(self.exit_code, *(tail.text() for tail in self._tails))

    # --- measuring it ---

    def usage(self) -> process_tree.Usage:
        """What it and its descendants take."""
        return process_tree.usage(self.pid)

    def shared_out(self) -> int:
        """Bytes of memory of it and its descendants; what they share counts once."""
        return process_tree.shared_out(self.pid)

    def grown(self) -> int:
        """By how many bytes it has grown since it imported the application; looked up once a second."""
        now = self._clock.monotonic()
        if now - self._measured < 1.0:
            return 0
        self._measured = now
        return self.usage().resident - self._first_size

    # --- inside ---

    def _attend(self, link: socket.socket) -> None:
        self._link = link
        # Sends it a message; OSError if it is gone.
        self.say, self._ear = messages.Mouth(link).say, messages.Ear(link)
        self._bell = socket.socketpair()
        for end in self._bell:
            self._opened.enter_context(end)
        assert self._process.stdout is not None  # noqa: S101 - asked for in start
        assert self._process.stderr is not None  # noqa: S101 - asked for in start
        self._tails = (Tail(self._process.stdout), Tail(self._process.stderr))
        for tail in self._tails:
            self._opened.enter_context(tail.pipe)
            self._selector.register(tail.pipe, selectors.EVENT_READ, tail)
        self._selector.register(link, selectors.EVENT_READ)
        self._selector.register(self._bell[0], selectors.EVENT_READ)
        if hasattr(os, "pidfd_open"):
            self._pid_fd = os.pidfd_open(self.pid)
            self._opened.callback(os.close, self._pid_fd)
            self._selector.register(self._pid_fd, selectors.EVENT_READ)

    def _take(self, key: selectors.SelectorKey) -> None:
        if isinstance(key.data, Tail):
            if not key.data.read():
                self._selector.unregister(key.fileobj)
        elif key.fileobj is self._link:
            self._listen()
        elif key.fileobj is self._bell[0]:
            self._bell[0].recv(_BELLS)
        else:
            self._selector.unregister(key.fileobj)

    def _listen(self) -> None:
        try:
            for body in self._ear.listen():
                message = messages.from_child.decode(body)
                if isinstance(message, messages.Said):
                    retell(message)
                else:
                    self._heard.append(message)
        except (EOFError, OSError):
            self._selector.unregister(self._link)

    def _drain(self) -> None:
        """Its last words, which may be all that tells why it died."""
        for tail in self._tails:
            while tail.open and tail.read():
                pass

    def _reap(self) -> None:
        try:
            _, status, used = os.wait4(self.pid, 0)
        except ChildProcessError:
            # Reaped before, by `poll` or by somebody else in this process.
            self.exit_code = self._process.returncode
            self._process.returncode = self._process.returncode or 0
            return
        self.exit_code = self._process.returncode = os.waitstatus_to_exitcode(status)
        self.peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


_BELLS = 64


# How long a job that shall stop has to see it for itself, before it is broken off and then killed.
LOOK_SECONDS = 0.4
_MEASURE_SECONDS = 0.1
_NEXT_LOOK = 0.05
_SELDOM = 5.0


class ChildRun:
    """One run in one child. `carry` follows it; `halt` may come from any thread."""

    def __init__(self, child: Child, backend: ContextBackend, clock: Clock, oom: OomWatch) -> None:
        self._child = child
        self._oom = oom
        self._backend = backend
        self._clock = clock
        self._halted: float | None = None
        self._broken_off = False
        self._used = process_tree.Usage()
        # Once it is over, the child may have the next job: whoever still tells this one to stop is too late.
        self._lock = threading.Lock()
        self._is_over = False
        # Whether the child may run another job: nothing was broken off in it.
        self.clean = True

    def carry(self, work: messages.Work) -> Result:
        """Run the job to its end."""
        child = self._child
        child.jobs += 1
        child.begin_output()
        limited = work.memory is not None or work.cpu_time is not None
        before = child.usage().cpu if limited else 0.0
        try:
            child.say(work)
            return self._follow(work, before, limited=limited) or self._crashed(work)
        except OSError:
            return self._crashed(work)
        finally:
            with self._lock:
                self._is_over = True

    def halt(self, run: Run) -> bool:
        """Tell the job to stop; if it does not, it is broken off, then killed."""
        with self._lock:
            if self._halted is None and not self._is_over:
                self._halted = self._clock.monotonic()
                self.clean = False
                with contextlib.suppress(OSError):
                    self._child.say(messages.Told(run.notice.lease_lost))
                self._child.ring()
        return True

    def _follow(self, work: messages.Work, before: float, *, limited: bool) -> Result | None:
        """What came of the job; None if the child died over it."""
        while True:
            answer = self._child.hear(self._next_look(limited=limited))
            if isinstance(answer, messages.Finished):
                return Returned(answer.value, self._said(), answer.missing)
            if isinstance(answer, messages.Broke):
                return self._broke(answer, work)
            if isinstance(answer, messages.Asked):
                self._child.say(carry_out(answer, self._backend))
            if self._child.has_ended():
                return None
            if self._halted is not None and self._escalate(self._halted, work):
                return Interrupted(self._said())
            if limited and (result := self._over(work, before)) is not None:
                return result

    def _next_look(self, *, limited: bool) -> float:
        if self._halted is not None:
            return _NEXT_LOOK
        return _MEASURE_SECONDS if limited or not self._child.tells_its_end else _SELDOM

    def _escalate(self, halted: float, work: messages.Work) -> bool:
        """Break off, then kill; True when it is killed."""
        waited = self._clock.monotonic() - halted
        if waited >= TERM_SECONDS:
            self._end()
            return True
        # A handler that can look for itself is given the time to end in its own way.
        if not self._broken_off and waited >= (LOOK_SECONDS if work.job is not None else 0.0):
            self._broken_off = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGTERM)
        return False

    def _over(self, work: messages.Work, before: float) -> Result | None:
        """Whether the job took more than it may; then its child is ended."""
        self._used = used = self._child.usage()
        if work.memory is not None and used.resident > work.memory:
            # What forked processes share was counted for each of them.
            resident = self._child.shared_out() or used.resident
            if resident > work.memory:
                return self._no_memory(work.memory, f"with its processes it took {told_size(resident)}")
        if work.cpu_time is not None and used.cpu - before > work.cpu_time:
            return self._no_time(work.cpu_time)
        return None

    def _end(self) -> None:
        self.clean = False
        self._child.end()

    # --- the story ---

    def _said(self) -> Output | None:
        return None if self._child.silent else self._child.output()

    def _broke(self, answer: messages.Broke, work: messages.Work) -> Result:
        if answer.no_memory and work.memory is not None:
            # What was half built when the memory ran out is not used again.
            return self._no_memory(
                work.memory, f"it asked for more ({answer.failed.error.message or 'MemoryError'})"
            )
        return msgspec.structs.replace(answer.failed, output=self._said())

    def _no_memory(self, limit: int, told: str) -> Crashed:
        self._end()
        message = f"over its memory limit of {told_size(limit)}: {told}"
        return Crashed(Reason.MEMORY_LIMIT, message, self._said())

    def _no_time(self, limit: float) -> TimedOut:
        self._end()
        message = f"stopped after its cpu_time of {limit:g} s"
        return TimedOut(timedelta(seconds=limit), self._said(), message)

    def _crashed(self, work: messages.Work) -> Result:
        self._end()
        code = self._child.exit_code
        if code == -signal.SIGXCPU and work.cpu_time is not None:
            return self._no_time(work.cpu_time)
        ending = "it is gone" if code is None else told_end(code)
        size = self._used.resident or self._child.peak
        message = f"its process ended: {ending}; resident size at last {told_size(size)}"
        if code == -signal.SIGKILL:
            if self._oom.explains():
                message += "; the kernel killed it because memory ran out"
                return Crashed(Reason.MEMORY_LIMIT, message, self._child.output())
            message += "; not killed by this worker: perhaps the machine ran out of memory"
        return Crashed(Reason.CHILD_CRASHED, message, self._child.output())


def carry_out(asked: Asked, backend: ContextBackend) -> Answered:
    """Do what it asks for; what went wrong is told as well."""
    try:
        given = zip(asked.arguments, _PARAMETERS[asked.verb], strict=True)
        arguments = [msgspec.msgpack.decode(raw, type=kind) for raw, kind in given]
        answer = getattr(backend, asked.verb)(*arguments)
        return Answered(asked.number, msgspec.Raw(messages.encode(answer)))
    except Exception as error:  # noqa: BLE001 # wall: the job is told, and decides
        return Answered(asked.number, error=type(error).__name__, message=str(error))


def _parameters(verb: Verb) -> list[Any]:
    return [kind for name, kind in get_type_hints(getattr(ContextBackend, verb)).items() if name != "return"]


_PARAMETERS: Mapping[Verb, list[Any]] = {verb: _parameters(verb) for verb in get_args(Verb)}
