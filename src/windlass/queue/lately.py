"""Is what a producer has read from the store still good? For a few seconds, and of this very store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.connect import Opened
    from windlass.queue.opening import Opening

T = TypeVar("T")

REFRESH_SECONDS = 5.0


class Lately:
    """Knows where and when somebody looked last."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._place: Opened | None = None
        self._at = -math.inf

    def is_fresh(self) -> bool:
        """Whether the last look was lately, at the store that is open now."""
        if self._place is None or self._place is not self._opening.opened:
            return False
        return self._opening.monotonic() - self._at < REFRESH_SECONDS

    def look(self, read: Callable[[Opened], T]) -> T:
        """Read something from the store, which can be used from here on."""
        at = self._opening.monotonic()

        def noted(opened: Opened) -> tuple[Opened, T]:
            return opened, read(opened)

        self._place, found = self._opening.use(noted)
        self._at = at
        return found
