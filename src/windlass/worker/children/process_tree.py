"""Processes below a child: what they take, their limits, and how all of them are ended.

A child adopts its orphans, so as long as it lives every descendant is found below it, whatever sessions it
made. Of a child that died, descendants are known by their process group and by a tag that they inherited in
their environment. Read from /proc; where there is none, the process group is all that is known.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from windlass.worker.watch import end_tagged

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the command's name.
_STATE, _PARENT, _USER, _SYSTEM, _WAITED_USER, _WAITED_SYSTEM, _RESIDENT = 0, 1, 11, 12, 13, 14, 21
# Not every kernel is built with it.
_TELLS_CHILDREN = (_PROC / f"self/task/{os.getpid()}/children").exists()
_ENDED = frozenset({"Z", "X"})
_ROUNDS = 50
_PAUSE_SECONDS = 0.01


class Usage(msgspec.Struct, frozen=True):
    """What a tree of processes takes: bytes of memory now, seconds of CPU since each of them began."""

    resident: int = 0
    cpu: float = 0.0


def process_tags(first: str | None) -> Iterator[str]:
    """Names that processes inherit, so that they are known again wherever they went; all begin alike."""
    # No generator: many threads ask for the next one.
    return map((first or secrets.token_hex(8)).__add__, map(".{}".format, itertools.count(1)))


def usage(root: int) -> Usage:
    """What a process and its descendants take; nothing where the system does not tell."""
    resident, cpu = 0, 0.0
    for pid in (root, *descendants(root)):
        fields = _stat(pid)
        if fields is not None:
            resident += int(fields[_RESIDENT]) * _PAGE
            cpu += sum(int(fields[at]) for at in (_USER, _SYSTEM, _WAITED_USER, _WAITED_SYSTEM)) / _TICKS
    return Usage(resident, cpu)


def resident(root: int) -> int | None:
    """Bytes of memory that a process and its descendants take now; None where the system does not tell."""
    return usage(root).resident or None


def shared_out(root: int) -> int:
    """Bytes of memory as `usage`, but what several processes share counts once. Costs more to read."""
    total = 0
    for pid in (root, *descendants(root)):
        for line in _read(pid, "smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def descendants(root: int) -> list[int]:
    """Every process below this one."""
    found: list[int] = []
    for pid in _children(root):
        found += [pid, *descendants(pid)]
    return found


def end(root: int, tag: str) -> None:
    """Kill a process, its group and all its descendants; the root itself last: it holds them together."""
    _signal(root, signal.SIGSTOP)
    pause = threading.Event()
    for _ in range(_ROUNDS):
        living = [pid for pid in descendants(root) if _lives(pid)]
        for pid in living:
            _signal(pid, signal.SIGKILL)
        if not living:
            break
        pause.wait(_PAUSE_SECONDS)
    kill_group(root)
    _signal(root, signal.SIGKILL)
    end_tagged(tag, but=root)


def kill_group(group: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal a whole process group; safe within a signal's handler."""
    # On some systems a group that consists of an ended leader alone may not be signalled.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended; left unreaped where the system allows, so that its number stays its own."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def _all() -> Iterator[int]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(_PROC):
            if entry.name.isdecimal():
                yield int(entry.name)


def _children(pid: int) -> list[int]:
    """Those that any thread of the process began."""
    if not _TELLS_CHILDREN:
        return [each for each in _all() if (stat := _stat(each)) and int(stat[_PARENT]) == pid]
    found: list[int] = []
    try:
        tasks = os.listdir(_PROC / str(pid) / "task")  # noqa: PTH208 - read often
    except OSError:
        return found
    for task in tasks:
        found += [int(each) for each in _read(pid, f"task/{task}/children").split()]
    return found


def _lives(pid: int) -> bool:
    fields = _stat(pid)
    return fields is not None and fields[_STATE] not in _ENDED


def _stat(pid: int) -> list[str] | None:
    return _read(pid, "stat").rpartition(")")[2].split() or None


def _read(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - read often
            return file.read()
    except OSError:
        return ""


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


_SET_DEATH_SIGNAL = 1
_SET_SUBREAPER = 36
ENFORCED = sys.platform == "linux"


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends; at once if it has ended already."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents ended: none can leave this process's tree."""
    _prctl(_SET_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if ENFORCED:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# Above what the worker measures and stops by; this one is for when the worker does not come to it.
_CPU_MARGIN_SECONDS = 2


@contextlib.contextmanager
def limited(memory: int | None, cpu_time: float | None) -> Iterator[None]:
    """Limit the process's memory in bytes, and its CPU time in seconds from now on."""
    if memory is None and cpu_time is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        if memory is not None:
            # What is reserved and not in use, such as the stacks of threads, does not count.
            sizes = {line.partition(":")[0]: line.split()[1:2] for line in _lines(Path("/proc/self/status"))}
            data, used = (int((sizes.get(name) or ["0"])[0]) * 1024 for name in ("VmData", "RssAnon"))
            stack.enter_context(_soft(resource.RLIMIT_DATA, memory + max(0, data - used)))
        if cpu_time is not None:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            seconds = usage.ru_utime + usage.ru_stime + cpu_time
            stack.enter_context(_soft(resource.RLIMIT_CPU, int(seconds) + _CPU_MARGIN_SECONDS))
        yield


@contextlib.contextmanager
def _soft(which: int, value: int) -> Iterator[None]:
    """A soft limit for a while; never above the hard one, nor above what stood before."""
    soft, hard = resource.getrlimit(which)
    bounds = [bound for bound in (soft, hard, value) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(which, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


_CGROUPS = Path("/sys/fs/cgroup")
_WORD = "oom_kill"


def kills() -> int | None:
    """How many processes the kernel has killed for lack of memory; None where the system does not tell."""
    for line in itertools.chain.from_iterable(map(_lines, _sources())):
        name, _, value = line.partition(" ")
        if name == _WORD and value.strip().isdigit():
            return int(value)
    return None


class OomWatch:
    """Each kill that the kernel counts explains one death, and no more."""

    def __init__(self, read: Callable[[], int | None] = kills) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._known = read()

    def explains(self) -> bool:
        """Whether the kernel has killed somebody since the last death that it explained."""
        now = self._read()
        with self._lock:
            if now is None or self._known is None or now <= self._known:
                return False
            self._known += 1
            return True


def _sources() -> list[Path]:
    """The nearest first: the counters of a control group say more than those of the machine."""
    found: list[Path] = []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        below = group.lstrip("/")
        if not controllers:
            found.append(_CGROUPS / below / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(_CGROUPS / "memory" / below / "memory.oom_control")
    # In a container the group's own path may not be visible under its name.
    return [
        *found,
        _CGROUPS / "memory.events",
        _CGROUPS / "memory" / "memory.oom_control",
        Path("/proc/vmstat"),
    ]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
