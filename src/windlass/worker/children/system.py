"""What does only Linux offer a process that must not outlive another? Elsewhere nothing happens here."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

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
