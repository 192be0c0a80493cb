"""What does a worker do that comes before its database? It waits, and says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from windlass.errors import StoreUnavailable
from windlass.loop import pause_after
from windlass.worker.health import Health

log = logging.getLogger("windlass.worker")

T = TypeVar("T")
_LONGEST_PAUSE = 10.0


class Arrival:
    """Opens a store that may not be there yet; whoever asks meanwhile hears what is waited for."""

    def __init__(self) -> None:
        self._why = ""

    def await_store(self, opened: Callable[[], T], pause: Callable[[float], object] | None = None) -> T:
        """Try until it opens. One line in the log for each new reason; other errors are not waited out."""
        wait = pause or threading.Event().wait
        failures = 0
        while True:
            try:
                found = opened()
            except StoreUnavailable as error:
                failures += 1
                self._note(str(error))
                wait(pause_after(failures, _LONGEST_PAUSE))
            else:
                if failures:
                    log.info("worker.store_is_there", extra={"tries": failures + 1})
                return found

    def health(self) -> Health:
        """Never well: nothing is claimed."""
        return Health(ok=False, why=f"waits for the store: {self._why}" if self._why else "starting")

    def _note(self, why: str) -> None:
        if why != self._why:
            self._why = why
            log.warning("worker.waits_for_store", extra={"error": why})
