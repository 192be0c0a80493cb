"""How much of the machine did others take while we measured?"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.drive.processes import tree, used

_TICKS = os.sysconf("SC_CLK_TCK")
# Where they stand in the first line of /proc/stat: idle and iowait, then what guests took, counted before.
_IDLE, _WAITING, _GUESTS = 3, 4, 8


@dataclass(slots=True)
class Others:
    """Filled in when the measured block has ended."""

    share: float = 0.0


@contextlib.contextmanager
def others() -> Iterator[Others]:
    """The share of all cores that neither rested nor worked for this process and its descendants."""
    found = Others()
    begun, busy, ours = time.monotonic(), _busy(), _ours()
    yield found
    took = (time.monotonic() - begun) * (os.cpu_count() or 1)
    found.share = max(0.0, (_busy() - busy) - (_ours() - ours)) / took


def _busy() -> float:
    """Seconds that all cores have worked, for whomever, a machine below us included."""
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:_GUESTS]) - fields[_IDLE] - fields[_WAITING]) / _TICKS


def _ours() -> float:
    """Seconds that we and all that descend from us have used; of those that ended, their parents know."""
    return sum(used(pid).cpu_seconds for pid in tree(os.getpid()))
