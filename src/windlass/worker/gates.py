"""Which types may be claimed now, and what stands in the way of the others?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from windlass.policy.limit import UNLIMITED, Limit
from windlass.registry import Registry
from windlass.settings import ALL, KEY, Settings
from windlass.store.flow import Restriction, Switches
from windlass.store.protocol import Want


class Gates:
    """What code and operators hold back, as of the last look."""

    def __init__(self, registry: Registry, types: Mapping[str, int]) -> None:
        self._registry = registry
        self._types = types
        self.switches = Switches()
        self.restricted: dict[str, Restriction] = {}

    def apply(self, settings: Settings, switches: Switches) -> bool:
        """Take what holds now; whether that is anything else than before."""
        before = (self.switches, self.restricted)
        self.switches = switches
        self.restricted = {
            name: found for name in self._types if (found := self._restriction(name, settings)) is not None
        }
        return before != (self.switches, self.restricted)

    def open(self, types: Mapping[str, int]) -> Mapping[str, int]:
        """Those of the types that may be claimed."""
        paused = self.switches.pauses
        if not paused:
            return types
        return {name: version for name, version in types.items() if name not in paused}

    def shut(self, job_type: str) -> bool:
        """Whether jobs of a type must not start."""
        return job_type in self.switches.pauses

    def limited(self, job_type: str) -> bool:
        """Whether the end of a job of that type lets another one start."""
        return job_type in self.restricted

    def want(
        self,
        types: Mapping[str, int],
        *,
        worker: str,
        limit: int,
        slots: int,
        lease: timedelta,
        turns: Mapping[str, str],
    ) -> Want:
        """What a worker asks for, with all that stands in its way."""
        return Want(
            worker=worker,
            types=types,
            limit=limit,
            lease=lease,
            turns={name: turns[name] for name in types if name in turns},
            restricted=self._among(types) if self.restricted else {},
            slots=slots,
        )

    def _among(self, types: Mapping[str, int]) -> Mapping[str, Restriction]:
        return {name: self.restricted[name] for name in types if name in self.restricted}

    def _restriction(self, job_type: str, settings: Settings) -> Restriction | None:
        handler = self._registry.get(job_type)
        limits = {
            job_type: settings.limit(job_type, UNLIMITED if handler is None else handler.limit),
            ALL: settings.limit(ALL),
        }
        key = None if handler is None else handler.limit_key
        if key is not None:
            limits[KEY + key] = settings.limit(KEY + key, self._key_limit(key))
        held = {name: limit for name, limit in limits.items() if limit.bounds}
        return Restriction(limits=held, key=key or "") if held else None

    def _key_limit(self, key: str) -> Limit | None:
        return self._registry.limits.get(key)
