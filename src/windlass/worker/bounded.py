"""Run a call with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable


def within(seconds: float, do: Callable[[], object], name: str) -> bool:
    """Do it on a thread that keeps nobody alive; False if so many seconds were not enough, and it goes on."""
    thread = threading.Thread(target=do, name=f"windlass-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
