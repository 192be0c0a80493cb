"""What holds for a job whose producer says nothing? The operator's word stands above the type's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass import settings
from windlass.clock import SystemClock
from windlass.job import DEFAULT_PRIORITY, TypeInfo
from windlass.settings import Settings

if TYPE_CHECKING:
    from windlass.queue.opening import Opening
    from windlass.registry import Handler
    from windlass.store.protocol import Store

_REFRESH_SECONDS = 5.0
_SYSTEM = SystemClock()


@dataclass(frozen=True, kw_only=True)
class TypeDefaults:
    """What a type's jobs get if nothing is said."""

    version: int
    priority: int
    max_attempts: int


class Defaults:
    """What types say, and what operators have set in the store as of the last look."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._settings = Settings({})
        self._known: dict[tuple[str, int | None], int] = {}
        # Where, and when.
        self._looked: tuple[Store | None, float] = (None, -math.inf)

    def of_handler(self, handler: Handler) -> TypeDefaults:
        """For a handler that is registered here."""
        said = handler.max_attempts if "max_attempts" in handler.said else None
        return TypeDefaults(
            version=handler.version,
            priority=handler.priority,
            max_attempts=self._max_attempts(handler.name, said),
        )

    def of_type(self, info: TypeInfo) -> TypeDefaults:
        """For a type that only the store's catalogue knows."""
        said = info.options.get("max_attempts") if "max_attempts" in info.options.get("said", ()) else None
        return TypeDefaults(
            version=info.schema_version,
            priority=info.options.get("priority", DEFAULT_PRIORITY),
            max_attempts=self._max_attempts(info.name, said),
        )

    def _max_attempts(self, job_type: str, said: int | None) -> int:
        store, now = self._opening.get().store, (self._opening.clock or _SYSTEM).monotonic()
        place, looked_at = self._looked
        if place is not store or now - looked_at >= _REFRESH_SECONDS:
            self._settings = settings.read(store.settings())
            self._known = {}
            self._looked = (store, now)
        known = self._known.get((job_type, said))
        if known is None:
            known = self._settings.effective(job_type, max_attempts=said).max_attempts
            self._known[job_type, said] = known
        return known
