"""Runs a program of Python under a wrong clock: skewed.py SECONDS PROGRAM ARG...

What the machine takes for the time of day is shifted; steady clocks stay as they are, as they do when a clock
is set wrong. libfaketime 0.9.10, Debian's, cannot do that to Python 3.11: it shifts steady clocks, too, and
an `Event.wait(0.2)` did not come back within 15 s (probably since `sem_clockwait` is not shifted with them);
told to leave steady clocks alone (FAKETIME_DONT_FAKE_MONOTONIC), it lets `time.sleep` fail with EINVAL.
"""

from __future__ import annotations

import runpy
import sys
import time
from datetime import UTC, datetime

_time, _time_ns = time.time, time.time_ns


def main() -> None:
    shift = int(sys.argv[1])
    time.time = lambda: _time() + shift
    time.time_ns = lambda: _time_ns() + shift * 1_000_000_000
    sys.argv = sys.argv[2:]
    print(f"the clock says {datetime.fromtimestamp(time.time(), UTC)}", file=sys.stderr)  # noqa: T201
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
