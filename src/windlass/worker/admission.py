"""Admission: which types may be claimed now, and what limits, pauses and breakers block the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from windlass.job import TypeInfo
from windlass.policy.limit import UNLIMITED, Limit
from windlass.settings import ALL, KEY, Settings
from windlass.store.flow import Restriction, Switches


class Limited(Protocol):
    """A type, as far as its limits go."""

    @property
    def limit(self) -> Limit:
        """Its own limit."""

    @property
    def limit_key(self) -> str | None:
        """What it shares with others."""


class Declared(Protocol):
    """What code declares of limits: a worker's registry, or the catalogue where handlers are elsewhere."""

    @property
    def limits(self) -> Mapping[str, Limit]:
        """By the key that types share."""

    def get(self, name: str, /) -> Limited | None:
        """A type that is known."""


class Admission:
    """What code and operators block, as of the last look."""

    def __init__(self, declared: Declared, types: Mapping[str, int]) -> None:
        self._declared = declared
        self._types = types
        self.switches = Switches()
        self.restricted: dict[str, Restriction] = {}
        self.low_share = 0.0
        # Paused, or behind a breaker that an operator opened.
        self._shut: frozenset[str] = frozenset()
        # Types that cannot start here now, because the event loop does not answer.
        self.blocked: frozenset[str] = frozenset()
        # Whose restriction counts what runs; a rate alone does not.
        self.counted: frozenset[str] = frozenset()
        # Those that share a counted limit with types that are served elsewhere.
        self._shared: frozenset[str] = frozenset()

    def serve(self, types: Mapping[str, int]) -> None:
        """Admit these types, from the next look on."""
        self._types = types

    def apply(self, settings: Settings, switches: Switches) -> bool:
        """Take what holds now; whether that is anything else than before."""
        before = (self._shut, self.restricted)
        self.switches = switches
        self.low_share = settings.low_share
        self._shut = frozenset(name for name in self._types if self._is_shut(name))
        self.restricted = {
            name: found for name in self._types if (found := self._restriction(name, settings)) is not None
        }
        self.counted = frozenset(name for name, each in self.restricted.items() if each.counted)
        return before != (self._shut, self.restricted)

    def open(self, types: Mapping[str, int]) -> Mapping[str, int]:
        """Those of the types that may be claimed."""
        shut = self._shut | self.blocked if self.blocked else self._shut
        if not shut:
            return types
        return {name: version for name, version in types.items() if name not in shut}

    def choose(self, types: Mapping[str, int], *, limited: bool, others: bool) -> Mapping[str, int]:
        """Those of the types that may be claimed and are asked for: restricted ones, the others, or both."""
        chosen, restricted = self.open(types), self.restricted
        if restricted and not limited:
            chosen = {name: version for name, version in chosen.items() if name not in restricted}
        if not others:
            chosen = {name: version for name, version in chosen.items() if name in restricted}
        return chosen

    def shut(self, job_type: str) -> bool:
        """Whether jobs of a type must not start now, but for what is claimed as a probe."""
        restriction = self.restricted.get(job_type)
        return job_type in self._shut or (restriction is not None and restriction.breaker is not None)

    def hangs(self, job_type: str) -> bool:
        """Whether jobs of a type have lately kept workers from answering."""
        return job_type in self.switches.hanging

    def breaker_of(self, job_type: str) -> str:
        """The name of the breaker before a type: its own, or of the key that it shares."""
        handler = self._declared.get(job_type)
        key = None if handler is None else handler.limit_key
        return job_type if key is None else KEY + key

    def limited(self, job_type: str) -> bool:
        """Whether the end of a job of that type lets another one start."""
        return job_type in self.counted

    def permits(self, types: Iterable[str]) -> Counter[str]:
        """What jobs of these types take until they end, each limit by its name."""
        # Read once: what holds may change at any moment.
        restricted = self.restricted
        found = (restricted[name] for name in types if name in restricted)
        return Counter(name for each in found for name in each.counted)

    def shared(self, job_type: str) -> bool:
        """Whether a job of a type that is not served here may be waiting for such an end."""
        return job_type in self._shared

    @property
    def shares(self) -> bool:
        """Whether any limit is one of several types together."""
        return any(
            name == ALL or name.startswith(KEY) for each in self.restricted.values() for name in each.limits
        )

    def learn(self, types: Mapping[str, TypeInfo]) -> None:
        """Which types there are in all: permits that types elsewhere share are theirs, too."""
        elsewhere = [info for name, info in types.items() if name not in self._types]
        names = {KEY + key for info in elsewhere if (key := info.options.get("limit_key")) is not None}
        names |= {ALL} if elsewhere else set()
        self._shared = frozenset(
            name for name in self.counted if not names.isdisjoint(self.restricted[name].limits)
        )

    def restrictions(self, types: Mapping[str, int]) -> Mapping[str, Restriction]:
        """What restricts these types, for a claim of them."""
        return {name: self.restricted[name] for name in types if name in self.restricted}

    def _restriction(self, job_type: str, settings: Settings) -> Restriction | None:
        handler = self._declared.get(job_type)
        limits = {
            job_type: settings.limit(job_type, UNLIMITED if handler is None else handler.limit),
            ALL: settings.limit(ALL),
        }
        key = None if handler is None else handler.limit_key
        if key is not None:
            limits[KEY + key] = settings.limit(KEY + key, self._declared.limits.get(key))
        bounding = {name: limit for name, limit in limits.items() if limit.bounds}
        name = self.breaker_of(job_type)
        breaker = self.switches.breakers.get(name)
        opened = name if breaker is not None and breaker.open else None
        if not bounding and opened is None:
            return None
        return Restriction(limits=bounding, key=key or "", breaker=opened, probe=settings.breaker(name).probe)

    def _is_shut(self, job_type: str) -> bool:
        breaker = self.switches.breakers.get(self.breaker_of(job_type))
        return job_type in self.switches.pauses or (breaker is not None and breaker.open and breaker.by_hand)
