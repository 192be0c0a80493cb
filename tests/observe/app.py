"""What do the workers run whose faults alerts are to tell of? `WINDLASS_DATABASE_URL` names the store."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from windlass import FatalError, Queue, Retry

queue = Queue()
AT_ONCE = Retry(kind="fixed", base=0, jitter=0)


@queue.job(max_attempts=20, retry=AT_ONCE)
def linger(seconds: float) -> None:
    """Runs for so long."""
    threading.Event().wait(seconds)


@queue.job(max_attempts=1, executor="process", memory="128MB")
def hoard() -> int:
    """Wants more memory than it may have."""
    return len(bytearray(1024 * 2**20))


@queue.job(max_attempts=1, executor="process")
def crash() -> None:
    """Takes its process down."""
    os.kill(os.getpid(), signal.SIGKILL)


@queue.job
def doomed() -> None:
    """Can never be done."""
    raise FatalError("never")


@queue.job(retry=AT_ONCE, max_attempts=20)
def call(dependency: str) -> None:
    """Needs a file to be there."""
    Path(dependency).read_bytes()
