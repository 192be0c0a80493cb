"""Does a worker process still answer, and if not, where does it hang?

A handler that holds the interpreter lock (GIL) stops every thread of its worker, so only another process can
see it: the supervisor, or the guard of a worker that runs alone. This file is also the guard's program
(`guard.py` starts it), so it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import math
import mmap
import os
import select
import signal
import struct
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

# What processes of a worker inherit in their environment, so that they are known again wherever they went.
TAG = "WINDLASS_CHILD"
# Ignored by default, and hardly used by anyone: one that comes too late or too early does no harm.
DUMP = signal.SIGURG
# Process 1 of a container cannot be killed from inside it, but it runs the handlers that it has set.
_END_OF_FIRST_PROCESS = signal.SIGXCPU

# Silence is counted in steps. A watcher that did not come to look for a while cannot judge what it missed.
STEP_SECONDS = 0.5
LONGEST_STEP = 2.0
LONGEST_GAP = 3.0
# The stacks are taken, and the job is named in the store, before other workers take this one for dead.
ALARM_SECONDS = 5.0
# A process that got this share of a core could have answered; so could one in which nothing waits for a core.
FAIR_SHARE = 0.05
# A thread that used this share of a core during the silence may hold the interpreter lock.
_BUSY_SHARE = 0.2
_DUMP_SECONDS = 1.0
_DUMP_LOOK = 0.05
# So long the kill waits until the store knows why.
_CONFIRM_SECONDS = 3.0
_LONGEST_STACKS = 64_000

_SLOTS = 512
_SLOT = struct.Struct("<qq36s36s40s")
_HEADER = 64
_SIZE = _HEADER + _SLOTS * _SLOT.size


# --- what both processes share --------------------------------------------------------------------


class Job(NamedTuple):
    """A job that runs on a thread of the worker."""

    thread: int
    seq: int
    id: str
    token: str
    function: str


class Box:
    """Memory that a worker shares with its watcher: which jobs run on which threads, then the stacks."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, _SIZE)
        self._free = list(range(_SLOTS - 1, -1, -1))
        weakref.finalize(self, os.close, fd)

    # --- by the worker ---

    def enter(self, job: Job) -> int:
        """Note that a job runs; the slot is needed to leave again. -1 if all are taken."""
        try:
            slot = self._free.pop()
        except IndexError:
            return -1
        texts = job.id.encode(), job.token.encode(), job.function.encode()
        _SLOT.pack_into(self._memory, _HEADER + slot * _SLOT.size, job.thread, job.seq, *texts)
        return slot

    def leave(self, slot: int) -> None:
        if slot >= 0:
            at = _HEADER + slot * _SLOT.size
            self._memory[at : at + 8] = bytes(8)
            self._free.append(slot)

    def arm(self) -> None:
        """From now on this process answers its watcher, and can be asked for its stacks."""
        faulthandler.register(DUMP, file=self.fd, all_threads=True)
        if os.getpid() == 1:
            libc = ctypes.CDLL(None)
            libc.signal(_END_OF_FIRST_PROCESS, ctypes.cast(libc._exit, ctypes.c_void_p))  # noqa: SLF001
        self._memory[0] = 1

    def disarm(self) -> None:
        self._memory[0] = 0
        faulthandler.unregister(DUMP)

    # --- by the watcher ---

    @property
    def armed(self) -> bool:
        return bool(self._memory[0])

    def running(self) -> list[Job]:
        found: list[Job] = []
        for at in range(_HEADER, _SIZE, _SLOT.size):
            thread, seq, *texts = _SLOT.unpack_from(self._memory, at)
            if thread:
                found.append(Job(thread, seq, *(_text(each) for each in texts)))
        return found

    def ask_for_stacks(self, thread: int) -> str:
        """Have the stacks of all threads dumped, by this thread; empty if nothing comes."""
        os.ftruncate(self.fd, _SIZE)
        # Both processes share the place at which the next write lands.
        os.lseek(self.fd, _SIZE, os.SEEK_SET)
        try:
            # The number of a thread names its process, and the system prefers that thread.
            os.kill(thread, DUMP)
        except OSError:
            return ""
        size, end = _SIZE, time.monotonic() + _DUMP_SECONDS
        while time.monotonic() < end:
            time.sleep(_DUMP_LOOK)
            before, size = size, os.fstat(self.fd).st_size
            if _SIZE < size == before:
                break
        return self.stacks()

    def stacks(self) -> str:
        """The last dump, with the thread that was asked for at its head."""
        return arranged(_text(os.pread(self.fd, _LONGEST_STACKS, _SIZE)))

    def take_stacks(self) -> str:
        stacks = self.stacks()
        os.ftruncate(self.fd, _SIZE)
        return stacks


def new_box() -> int:
    """A descriptor for a box that no file system shows."""
    if hasattr(os, "memfd_create"):
        fd: int = os.memfd_create("windlass")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _SIZE)
    return fd


def note_signals() -> int:
    """Have every signal noted that Python handles, and answer where: a descriptor that grows by a byte each.

    The interpreter writes it when the signal comes, whoever holds its lock; its handler may never run.
    """
    if not hasattr(os, "memfd_create"):
        return -1
    fd: int = os.memfd_create("windlass-signals")
    os.set_blocking(fd, False)
    signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    return fd


def arranged(dump: str) -> str:
    """A dump as people read it: the thread that was asked first, threads that stand at one place together."""
    threads: dict[str, list[str]] = {}
    for part in dump.strip().split("\n\n"):
        head, *lines = part.splitlines() or [""]
        stack = "\n".join(line for line in lines if not line.endswith(_EVERY_THREAD))
        threads.setdefault(stack, []).append(head)
    parts = []
    for stack, heads in threads.items():
        many = "" if len(heads) == 1 else f"{len(heads)} threads at one place. "
        parts.append(f"{many}{heads[0]}\n{stack}".rstrip())
    return "\n\n".join(sorted(parts, key=lambda part: not part.startswith(_CURRENT)))


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")


# --- watching -------------------------------------------------------------------------------------


class Look(NamedTuple):
    """How the system sees a process: CPU time by thread, in ticks."""

    stopped: bool
    # Some thread is ready to run, or waits for a disk.
    waiting: bool
    cpu: dict[int, int]


class Hang(NamedTuple):
    """What a watcher found: `silent`, then `answers` again, or `hung` for as long as the limit allows."""

    event: str
    seconds: float = 0.0
    stacks: str = ""
    # The jobs that may be the cause.
    jobs: tuple[Job, ...] = ()


def look(pid: int) -> Look | None:
    """How the process is; None where the system does not tell."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - runs without the package, and often
    except OSError:
        return None
    states: set[str] = set()
    cpu: dict[int, int] = {}
    for thread in threads:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
            states.add(fields[0].decode())
            cpu[int(thread)] = int(fields[11]) + int(fields[12])
    return Look(bool(states & {"T", "t"}), bool(states & {"R", "D"}), cpu)


class Watch:
    """Counts how long a worker is silent although it could have answered."""

    silence = 0.0
    _heard = _condemned = False
    _seen: Look | None = None
    _first: Look | None = None
    _accused: Hang | None = None

    def __init__(
        self,
        pid: int,
        box: Box,
        limit: float,
        now: float,
        *,
        signals: Callable[[], int] = lambda: 0,
        look: Callable[[int], Look | None] = look,
    ) -> None:
        """`signals`: how many have asked the worker to stop."""
        self._pid = pid
        self._signals = signals
        self.box = box
        self._limit = limit
        self._look = look
        self._checked = now

    def hear(self) -> None:
        self._heard = True

    def check(self, now: float) -> Hang | None:
        """Call it at least twice a second; tells what has changed."""
        elapsed = now - self._checked
        if elapsed < STEP_SECONDS:
            return None
        self._checked = now
        heard, self._heard = self._heard, False
        if heard or elapsed > LONGEST_GAP or not self.box.armed:
            return self._begin_again(answered=heard)
        before, seen = self._seen, self._look(self._pid)
        if seen is not None and seen.stopped:
            return self._begin_again(answered=False)
        self._seen = seen
        self._first = self._first or seen
        if before is None or seen is None or _had_its_chance(before, seen, elapsed):
            self.silence += min(elapsed, LONGEST_STEP)
        return self._judge(seen)

    def _begin_again(self, *, answered: bool) -> Hang | None:
        self.silence, self._seen, self._first = 0.0, None, None
        accused = self._accused
        if accused is None or not answered:
            return None
        self._accused, self._condemned = None, False
        return accused._replace(event="answers")

    def _judge(self, seen: Look | None) -> Hang | None:
        if self._accused is None:
            if self.silence < min(ALARM_SECONDS, self._limit / 3):
                return None
            self._accused = self._examine("silent", seen)
            return self._accused
        # Where the system does not tell how a process is, it may be stopped or starved: it is not killed.
        limit = min(self._limit, _STOPPING.get(self._signals(), _STOPPED_TWICE))
        if self.silence < limit or seen is None or self._condemned:
            return None
        self._condemned = True
        return self._examine("hung", seen)

    def _examine(self, event: str, seen: Look | None) -> Hang:
        busy = self._busy(seen)
        stacks = self.box.ask_for_stacks(busy[0] if busy else self._pid)
        running = self.box.running()
        blamed = [job for job in running if job.thread in busy]
        if not busy or (not blamed and not stacks.startswith(_CURRENT)):
            # The holder of the lock uses no core, or a thread without Python works for it: any may be it.
            blamed = running
        elif len({job.thread for job in blamed}) < len(blamed):
            # Many coroutines share a thread: those whose function is on its stack.
            stack = stacks.partition("\n\n")[0]
            named = [job for job in blamed if f" in {job.function}\n" in f"{stack}\n"]
            blamed = named or blamed
        return Hang(event, self.silence, stacks, tuple(blamed))

    def _busy(self, seen: Look | None) -> list[int]:
        """The threads that worked during the silence, the busiest first."""
        if seen is None or self._first is None:
            return []
        used = {thread: ticks - self._first.cpu.get(thread, 0) for thread, ticks in seen.cpu.items()}
        most = max(used.values(), default=0)
        if most < _BUSY_SHARE * self.silence * _TICKS:
            return []
        return sorted((each for each in used if used[each] * 2 >= most), key=lambda each: -used[each])


def _had_its_chance(before: Look, seen: Look, elapsed: float) -> bool:
    """Whether the process could have answered: it got a core, or wanted none.

    One that wants to run and gets nothing is starved. One that burns its time, or sleeps with the interpreter
    lock in its hand, is not.
    """
    used = sum(max(0, ticks - before.cpu.get(thread, 0)) for thread, ticks in seen.cpu.items())
    return used >= FAIR_SHARE * elapsed * _TICKS or not seen.waiting


def kill(pid: int) -> None:
    """End a worker that does not answer."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        if pid == 1:
            os.kill(pid, _END_OF_FIRST_PROCESS)


# How long a worker may be silent that nobody, or one signal, has asked to stop; and after a second one.
_STOPPING = {0: math.inf, 1: 15.0}
_STOPPED_TWICE = 2.0
_CURRENT = "Current thread"
# How every thread begins.
_EVERY_THREAD = (" in _bootstrap_inner", " in _bootstrap")
_TICKS = os.sysconf("SC_CLK_TCK")


# --- the guard's program --------------------------------------------------------------------------


class _Guarding:
    """Listens to its worker, tells a witness when that does not answer, and ends what it leaves behind."""

    _heard = b""
    _watch: Watch | None = None
    _witness: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        self._groups: dict[int, str] = {}
        self._pid = os.getppid()
        self._words: dict[str, Any] = {}

    def run(self) -> None:
        """Until the worker ends: that closes our input, and nothing else is sure to happen after a kill."""
        while True:
            waiting = None if self._watch is None else STEP_SECONDS
            if select.select([0], [], [], waiting)[0]:
                data = os.read(0, 65_536)
                if not data:
                    break
                *lines, self._heard = (self._heard + data).split(b"\n")
                for line in lines:
                    self._listen(line.decode())
            if self._watch is not None and (found := self._watch.check(time.monotonic())) is not None:
                self._tell(found)
        self._end_the_rest()

    def _listen(self, line: str) -> None:
        word, rest = line[:1], line[1:]
        if word == ".":
            if self._watch is not None:
                self._watch.hear()
        elif word == "w":
            self._words = words = json.loads(rest)
            count = (lambda: os.fstat(words["signals"]).st_size) if words["signals"] >= 0 else (lambda: 0)
            box = Box(words["box"])
            self._watch = Watch(self._pid, box, words["limit"], time.monotonic(), signals=count)
        else:
            group, _, tag = rest.partition(" ")
            self._groups.pop(int(group), None)
            if word == "+":
                self._groups[int(group)] = tag

    def _tell(self, found: Hang) -> None:
        """A process of its own speaks with the store: this one stays small."""
        killed = found.event == "hung" and self._words["kills"]
        words = {**found._asdict(), "pid": self._pid, "killed": killed}
        try:
            if self._witness is None:
                self._witness = subprocess.Popen(
                    self._words["witness"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
                self._say(self._words)
            self._say(words)
        except OSError as error:
            text = f"windlass: worker {self._pid} did not answer for {found.seconds:.0f} s ({error})\n"
            os.write(2, f"{text}{found.stacks}\n".encode())
        if killed:
            # With process 1 of a container everything in it ends, the witness included.
            if self._witness is not None and self._witness.stdout is not None and self._words["url"]:
                select.select([self._witness.stdout], [], [], _CONFIRM_SECONDS)
            kill(self._pid)

    def _say(self, words: dict[str, Any]) -> None:
        if self._witness is not None and self._witness.stdin is not None:
            self._witness.stdin.write(json.dumps(words).encode() + b"\n")
            self._witness.stdin.flush()

    def _end_the_rest(self) -> None:
        for group in self._groups:
            _signal(os.killpg, group)
        end_tagged(*self._groups.values())


def end_tagged(*tags: str, but: int = 0) -> None:
    """Kill every process that carries one of these tags, or one that begins with it and a dot."""
    words = [b"\0%s=%s%s" % (TAG.encode(), tag.encode(), end) for tag in tags for end in (b"\0", b".")]
    others = {str(but), str(os.getpid())}
    for _ in range(50):
        seen = os.listdir("/proc") if tags and os.path.isdir("/proc") else []  # noqa: PTH112, PTH208
        left = [int(name) for name in seen if name.isdigit() and name not in others and _carries(name, words)]
        for number in left:
            _signal(os.kill, number)
        if not left:
            break
        time.sleep(0.01)


def _signal(how: Callable[[int, int], None], number: int) -> None:
    with contextlib.suppress(OSError):
        how(number, signal.SIGKILL)


def _carries(pid: str, words: list[bytes]) -> bool:
    """Whether its environment has one of them; one that has ended has none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - runs without the package
            environment = b"\0%s\0" % file.read()
    except OSError:
        return False
    return any(word in environment for word in words)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _Guarding().run()
    # A witness that is still writing ends by itself.
    os._exit(0)
