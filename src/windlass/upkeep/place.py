"""Where does a worker process run, and is it still there?"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from windlass.store.fleet import WorkerInfo

_UNKNOWN = ""
# Fields of /proc/PID/stat behind the command's name: the state, and when the process started.
_STATE = 0
_STARTED = 19
_GONE_STATES = frozenset({"Z", "X"})


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one process from every other, on this machine and on others."""

    host: str
    boot: str
    pid_space: str
    pid: int
    pid_started: int


def here() -> Place:
    """The place of this process. Where the system does not tell, the parts stay empty."""
    return Place(
        host=socket.gethostname(),
        boot=_read("/proc/sys/kernel/random/boot_id").strip(),
        pid_space=_link("/proc/self/ns/pid"),
        pid=os.getpid(),
        pid_started=_started(os.getpid()),
    )


def is_gone(worker: WorkerInfo, seen_from: Place) -> bool:
    """Whether that worker's process surely exists no more; False whenever that cannot be known from here."""
    same_boot = worker.boot == seen_from.boot != _UNKNOWN
    if not same_boot or worker.pid_space != seen_from.pid_space or worker.pid <= 0:
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's process, but there it is
    fields = _stat(worker.pid)
    if fields is None:
        return False
    # A killed process whose parent has not asked for it runs nothing; a number used again is another process.
    return fields[_STATE] in _GONE_STATES or int(fields[_STARTED]) != worker.pid_started


def _started(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[_STARTED]) if fields else 0


def _stat(pid: int) -> list[str] | None:
    text = _read(f"/proc/{pid}/stat")
    # The command's name stands in brackets and may hold spaces and brackets itself.
    return text.rpartition(")")[2].split() or None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _UNKNOWN


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return _UNKNOWN
