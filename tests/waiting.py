"""How does a test wait for what other threads and processes do? It looks, until a bound that fails it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")
# Far longer than anything takes, also on a machine that is busy with ten other things. What has come to a
# standstill fails by this, and not by pytest's own limit, which would say less.
PATIENCE = 120.0
# The same for a program that does much before it ends.
WHOLE_RUN = 500.0
_LOOK_SECONDS = 0.02


def until(condition: Callable[[], T], what: str = "it comes to that", within: float = PATIENCE) -> T:
    """What `condition` answers once that is true; the test fails if it never is."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, f"it did not happen that {what}"
        pause.wait(_LOOK_SECONDS)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended, also if nobody has waited for it yet, and at whatever moment we look."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True
