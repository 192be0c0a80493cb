"""Which processes belong to a child, what do they take, and how do all of them end?

A child adopts its orphans, so as long as it lives every descendant is found below it, whatever sessions it
made. Of a child that died, descendants are known by their process group and by a mark that they inherited in
their environment. Read from /proc; where there is none, the process group is all that is known.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

MARK = "WINDLASS_CHILD"
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


class Marks:
    """Names that processes inherit, so that they are known again wherever they went."""

    def __init__(self, first: str | None = None) -> None:
        self._first = first or secrets.token_hex(8)
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """A new one; all of a worker's begin alike."""
        return f"{self._first}.{next(self._numbers)}"


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


def end(root: int, mark: str) -> None:
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
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)
    _signal(root, signal.SIGKILL)
    end_marked(mark, but=root)


def end_marked(mark: str, *, but: int = 0) -> None:
    """Kill every process that carries this mark, or one that begins with it and a dot."""
    pause = threading.Event()
    for _ in range(_ROUNDS):
        living = [pid for pid in _marked(mark) if pid not in (but, os.getpid()) and _lives(pid)]
        for pid in living:
            _signal(pid, signal.SIGKILL)
        if not living:
            return
        pause.wait(_PAUSE_SECONDS)


def _marked(mark: str) -> Iterator[int]:
    whole, begin = f"\0{MARK}={mark}\0", f"\0{MARK}={mark}."
    for pid in _all():
        environment = f"\0{_read(pid, 'environ')}\0"
        if whole in environment or begin in environment:
            yield pid


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
