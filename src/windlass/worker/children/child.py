"""A child process, seen from the worker: it is started, given a job, watched, answered and ended."""

from __future__ import annotations

import contextlib
import json
import os
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
from windlass.size import size_text
from windlass.worker.children import messages, process_tree
from windlass.worker.children.messages import Answered, Asked, Verb, retell
from windlass.worker.children.process_tree import OomWatch
from windlass.worker.run import ContextBackend, Run
from windlass.worker.shell import TERM_SECONDS, Reader, told_end
from windlass.worker.watch import TAG
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

    # Once it has ended, its number may belong to others.
    ended = False
    exit_code: int | None = None
    peak = jobs = 0
    _first_size = 0
    _measured = 0.0

    def __init__(self, tag: str, *, guard: Guard, clock: Clock) -> None:
        self._tag = tag
        self._guard = guard
        self._clock = clock
        self._lock = threading.Lock()
        # Whatever is open for it, closed together.
        self._opened = contextlib.ExitStack()
        self._heard: deque[messages.FromChild] = deque()

    # --- its beginning and its end ---

    def start(self) -> None:
        """Begin the process, on a thread that lives as long as the worker: the child dies with it."""
        # Whatever there is none of, such as a file's number: nothing stays open, and nobody stays unheard.
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._opened)
            ours, theirs = socket.socketpair()
            self._opened.enter_context(ours)
            with theirs:
                for_it = json.dumps([os.getpid(), theirs.fileno(), sys.path])
                flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - there is no public way
                self._process = subprocess.Popen(
                    [sys.executable, *flags, "-c", _BEGIN, for_it],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, TAG: self._tag},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            undo.callback(self._guard.remove, self.pid)
            undo.callback(self._reap)
            undo.callback(process_tree.end, self.pid, self._tag)
            self._guard.add(self.pid, self._tag)
            self._attend(ours)
            undo.pop_all()

    def meet(self, hello: messages.Hello) -> None:
        """Wait until it has imported the application; ChildFailed if it cannot."""
        until = self._clock.monotonic() + START_SECONDS
        with contextlib.suppress(OSError):
            self.mouth.say(hello)
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
            # Its last words may be all that tells why it died.
            self.printed.drain()
        self._opened.close()

    def kill(self) -> None:
        """End its group at once; takes no lock, so that a signal's handler may ask."""
        if not self.ended:
            process_tree.kill_group(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        try:
            return self.ended or process_tree.has_ended(self._process)
        except ChildProcessError:
            # Somebody else in this process asked for it.
            return True

    # --- speaking with it ---

    def hear(self, seconds: float | None) -> messages.FromChild | None:
        """Its next message; None if the time is over, the bell rang, or it ended. What it logs is logged."""
        if not self._heard:
            self.printed.read(seconds)
        return self._heard.popleft() if self._heard else None

    def ring(self) -> None:
        """Let whoever hears it look up; from any thread."""
        with contextlib.suppress(OSError):
            self._bell[1].send(b"!")

    def output(self) -> Output:
        return Output(self.exit_code, *self.printed.texts())

    def grown(self) -> int:
        """By how many bytes it has grown since it imported the application; looked up once a second."""
        now = self._clock.monotonic()
        if now - self._measured < 1.0:
            return 0
        self._measured = now
        return process_tree.usage(self.pid).resident - self._first_size

    # --- inside ---

    def _attend(self, link: socket.socket) -> None:
        self._link = link
        self.mouth, self._ear = messages.Mouth(link), messages.Ear(link)
        self._bell = socket.socketpair()
        for end in self._bell:
            self._opened.enter_context(end)
        # What it prints; heard together with what it says.
        self.printed = self._opened.enter_context(Reader(self._process))
        self.printed.listen(link, self._listen)
        self.printed.listen(self._bell[0], lambda: bool(self._bell[0].recv(64)))

    def _listen(self) -> bool:
        try:
            for body in self._ear.listen():
                message = messages.from_child.decode(body)
                if isinstance(message, messages.Said):
                    retell(message)
                else:
                    self._heard.append(message)
        except (EOFError, OSError):
            return False
        return True

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


# How long a job that shall stop has to see it for itself, before it is broken off and then killed.
LOOK_SECONDS = 0.4
_MEASURE_SECONDS = 0.1
_NEXT_LOOK = 0.05
_SELDOM = 5.0


class ChildRun:
    """One run in one child. `carry` follows it; `halt` may come from any thread."""

    _halted: float | None = None
    _broken_off = False
    _used = process_tree.Usage()
    # Once it is over, the child may have the next job: whoever still tells this one to stop is too late.
    _is_over = False
    # Whether the child may run another job: nothing was broken off in it.
    clean = True

    def __init__(self, child: Child, backend: ContextBackend, clock: Clock, oom: OomWatch) -> None:
        self._child = child
        self._oom = oom
        self._backend = backend
        self._clock = clock
        self._lock = threading.Lock()

    def carry(self, work: messages.Work) -> Result:
        child = self._child
        child.jobs += 1
        # What it prints from now on belongs to this job.
        child.printed.forget()
        limited = work.memory is not None or work.cpu_time is not None
        before = process_tree.usage(child.pid).cpu if limited else 0.0
        try:
            child.mouth.say(work)
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
                    self._child.mouth.say(messages.Told(run.notice.lease_lost))
                self._child.ring()
        return True

    def _follow(self, work: messages.Work, before: float, *, limited: bool) -> Result | None:
        """What came of the job; None if the child died over it."""
        often = limited or not self._child.printed.sees_the_end
        while True:
            look = _MEASURE_SECONDS if often else _SELDOM
            answer = self._child.hear(look if self._halted is None else _NEXT_LOOK)
            if isinstance(answer, messages.Finished):
                return Returned(answer.value, self._said(), answer.missing)
            if isinstance(answer, messages.Broke):
                return self._broke(answer, work)
            if isinstance(answer, messages.Asked):
                self._child.mouth.say(carry_out(answer, self._backend))
            if self._child.has_ended():
                return None
            if self._halted is not None and self._escalate(self._halted, work):
                return Interrupted(self._said())
            if limited and (result := self._over(work, before)) is not None:
                return result

    def _escalate(self, halted: float, work: messages.Work) -> bool:
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
        self._used = used = process_tree.usage(self._child.pid)
        if work.memory is not None and used.resident > work.memory:
            # What forked processes share was counted for each of them.
            resident = process_tree.shared_out(self._child.pid) or used.resident
            if resident > work.memory:
                return self._no_memory(work.memory, f"with its processes it took {size_text(resident)}")
        if work.cpu_time is not None and used.cpu - before > work.cpu_time:
            return self._no_time(work.cpu_time)
        return None

    def _end(self) -> None:
        self.clean = False
        self._child.end()

    # --- the story ---

    def _said(self) -> Output | None:
        return None if self._child.printed.silent else self._child.output()

    def _broke(self, answer: messages.Broke, work: messages.Work) -> Result:
        if answer.no_memory and work.memory is not None:
            # What was half built when the memory ran out is not used again.
            return self._no_memory(
                work.memory, f"it asked for more ({answer.failed.error.message or 'MemoryError'})"
            )
        return msgspec.structs.replace(answer.failed, output=self._said())

    def _no_memory(self, limit: int, told: str) -> Crashed:
        self._end()
        message = f"over its memory limit of {size_text(limit)}: {told}"
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
        message = f"its process ended: {ending}; resident size at last {size_text(size)}"
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


# The types of the parameters of each; the last hint is what it returns.
_PARAMETERS: Mapping[Verb, list[Any]] = {
    verb: list(get_type_hints(getattr(ContextBackend, verb)).values())[:-1] for verb in get_args(Verb)
}
