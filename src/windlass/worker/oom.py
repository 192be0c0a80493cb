"""Did the kernel kill a process of ours for lack of memory? Its own counters tell, where they can be read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_WORD = "oom_kill"


def kills() -> int | None:
    """How many processes the kernel has killed for lack of memory, in this control group or on this machine.

    None where the system does not tell, such as on macOS.
    """
    return next((found for path in _sources() if (found := _value(path)) is not None), None)


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


def _value(path: Path) -> int | None:
    for line in _lines(path):
        name, _, value = line.partition(" ")
        if name == _WORD and value.strip().isdigit():
            return int(value)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
