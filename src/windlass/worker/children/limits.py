"""How does a child bound what one job may take? Set by the child itself, before and after each job."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

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
            stack.enter_context(_soft(resource.RLIMIT_DATA, memory + _reserved()))
        if cpu_time is not None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            seconds = used.ru_utime + used.ru_stime + cpu_time
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


def _reserved() -> int:
    """Bytes that are reserved and not in use, such as the stacks of threads: those do not count."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    sizes = {line.partition(":")[0]: line.split()[1:2] for line in lines}
    data, used = (int((sizes.get(name) or ["0"])[0]) * 1024 for name in ("VmData", "RssAnon"))
    return max(0, data - used)
