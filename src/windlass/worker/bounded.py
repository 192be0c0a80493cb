"""Run a call with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable


def within(seconds: float, do: Callable[[], object], name: str) -> bool:
    """Do it on a daemon thread; False if it has not ended within these seconds, and goes on."""
    thread = threading.Thread(target=do, name=f"windlass-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
