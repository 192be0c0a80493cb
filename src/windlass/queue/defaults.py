"""What holds for a job whose producer says nothing? The operator's word stands above the type's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass import settings
from windlass.job import HIGHEST_PRIORITY, TypeInfo
from windlass.queue.lately import Lately
from windlass.settings import Settings

if TYPE_CHECKING:
    from windlass.queue.opening import Opening
    from windlass.registry import Handler


@dataclass(frozen=True, kw_only=True)
class TypeDefaults:
    """What a type's jobs get if nothing is said."""

    version: int
    priority: int
    max_attempts: int
    max_priority: int = HIGHEST_PRIORITY


class Defaults:
    """What types say, and what operators have set in the store as of the last look."""

    def __init__(self, opening: Opening) -> None:
        self._lately = Lately(opening)
        self._settings = Settings({})
        self._of_handlers: dict[int, tuple[Handler, TypeDefaults]] = {}
        self._of_types: dict[str, tuple[TypeInfo, TypeDefaults]] = {}

    def settings(self) -> Settings:
        """What operators have set, as of a few seconds ago."""
        self._look()
        return self._settings

    def of_handler(self, handler: Handler) -> TypeDefaults:
        """For a handler that is registered here."""
        self._look()
        # By identity: a handler may be registered anew with other options.
        known = self._of_handlers.get(id(handler))
        if known is None:
            known = self._of_handlers[id(handler)] = (handler, self._of_info(handler.info()))
        return known[1]

    def of_type(self, info: TypeInfo) -> TypeDefaults:
        """For a type that only the store's catalogue knows."""
        self._look()
        known = self._of_types.get(info.name)
        if known is None or known[0] is not info:
            known = self._of_types[info.name] = (info, self._of_info(info))
        return known[1]

    def at_hand(self, info: TypeInfo) -> TypeDefaults | None:
        """The same without a look at the store; None if it is time for one."""
        known = self._of_types.get(info.name)
        return known[1] if self._lately.is_fresh() and known is not None and known[0] is info else None

    def _of_info(self, info: TypeInfo) -> TypeDefaults:
        held = self._settings.of_type(info.name, info.options)
        return TypeDefaults(
            version=info.schema_version,
            priority=min(held.priority, held.max_priority),
            max_attempts=held.run.max_attempts,
            max_priority=held.max_priority,
        )

    def _look(self) -> None:
        if not self._lately.is_fresh():
            found = self._lately.look(lambda opened: opened.store.settings())
            self._settings = settings.read(found)
            self._of_handlers, self._of_types = {}, {}
