"""What is a child, seen from its worker? A process that is begun, spoken with, measured, and surely ended."""

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

from windlass.clock import Clock
from windlass.job import Output
from windlass.worker.children import tree, words
from windlass.worker.children.records import retell
from windlass.worker.guard import Guard
from windlass.worker.tail import Tail

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

    def __init__(self, mark: str, *, guard: Guard, clock: Clock) -> None:
        self._mark = mark
        self._guard = guard
        self._clock = clock
        self._lock = threading.Lock()
        # Whatever is open for it, closed together.
        self._opened = contextlib.ExitStack()
        self._selector = self._opened.enter_context(selectors.DefaultSelector())
        self._pid_fd = -1
        self._heard: deque[words.FromChild] = deque()
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
                env={**os.environ, tree.MARK: self._mark},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def _take_up(self, ours: socket.socket) -> None:
        try:
            self._guard.add(self.pid, self._mark)
            self._attend(ours)
        except BaseException:  # wall: a process that nobody could hear must not stay
            tree.end(self.pid, self._mark)
            self._reap()
            self._guard.remove(self.pid)
            raise

    def meet(self, hello: words.Hello) -> None:
        """Wait until it has imported the application; ChildFailed if it cannot."""
        until = self._clock.monotonic() + START_SECONDS
        with contextlib.suppress(OSError):
            self.say(hello)
        answer = None
        while answer is None and not self.has_ended() and self._clock.monotonic() < until:
            answer = self.hear(until - self._clock.monotonic())
        if isinstance(answer, words.Ready):
            self._first_size = tree.usage(self.pid).resident
            return
        gone = self.has_ended()
        self.end()
        if isinstance(answer, words.Unfit):
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
            tree.end(self.pid, self._mark)
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

    def say(self, message: words.FromWorker) -> None:
        """Send it a message; OSError if it is gone."""
        self._mouth.say(message)

    def hear(self, seconds: float | None) -> words.FromChild | None:
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

    def usage(self) -> tree.Usage:
        """What it and its descendants take."""
        return tree.usage(self.pid)

    def shared_out(self) -> int:
        """Bytes of memory of it and its descendants; what they share counts once."""
        return tree.shared_out(self.pid)

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
        self._mouth, self._ear = words.Mouth(link), words.Ear(link)
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
                message = words.from_child.decode(body)
                if isinstance(message, words.Said):
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
