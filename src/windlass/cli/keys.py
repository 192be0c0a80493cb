"""Which key was pressed? Read one by one from a terminal, without waiting for a line."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Gives what waits so many seconds for a key; an empty text: none was pressed."""
    if not sys.stdin.isatty():
        pause = threading.Event()

        def wait(seconds: float) -> str:
            pause.wait(seconds)
            return ""

        yield wait
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, 32).decode(errors="replace")[:1] if ready else ""

    try:
        tty.setcbreak(terminal)
        yield key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
