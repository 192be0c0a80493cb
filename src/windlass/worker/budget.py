"""How much memory may the jobs of this worker take together? What does not fit is not claimed."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

SHARE_OF_MACHINE = 0.9
# Where a container's own limit stands, by the version of the system that sets it.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Budget:
    """Bytes that are promised to jobs, from their claim to their end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        # By type.
        self._taken: Counter[str] = Counter()
        # The type that what is left is kept for, and how much of it.
        self.kept = ""
        self._kept_bytes = 0

    @property
    def left(self) -> int:
        """What is promised to nobody."""
        with self._lock:
            return max(0, self.size - self._taken.total())

    @property
    def spare(self) -> int:
        """What is promised to nobody, and kept for nobody.

        What the type that it is kept for has already is not kept once more: its next job fits when that ends.
        """
        with self._lock:
            taken = self._taken.total()
            others = taken - self._taken[self.kept]
            return max(0, self.size - max(taken, others + self._kept_bytes))

    def keep(self, job_type: str, memory: int) -> None:
        """Keep so much for a type; for none, if it has no name."""
        with self._lock:
            self.kept, self._kept_bytes = job_type, memory

    def take(self, memory: int | None, job_type: str = "") -> None:
        """A job that declares so much was claimed."""
        if memory:
            with self._lock:
                self._taken[job_type] += memory

    def give_back(self, memory: int | None, job_type: str = "") -> None:
        """It has ended, or was given back."""
        if memory:
            with self._lock:
                self._taken[job_type] -= memory


def machine_memory() -> int | None:
    """The memory of this machine or container; None where the system does not tell."""
    lines = _read("/proc/meminfo").splitlines()
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    sizes += [int(text) for path in _LIMITS if (text := _read(path).strip()).isdecimal()]
    return min(sizes) if sizes else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
