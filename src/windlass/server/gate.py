"""What holds back workers in other languages? The same limits, pauses, breakers and turns as our own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from windlass.clock import Clock
from windlass.job import Lease, TypeInfo
from windlass.outcome import Outcome
from windlass.policy.limit import Limit
from windlass.registry import key_limits, limit_from
from windlass.store.protocol import Claimed, Store, Want
from windlass.worker.gates import Gates
from windlass.worker.tally import Tally
from windlass.worker.terms import Terms


class Gate:
    """Claims for those who cannot know what is held back, and counts what came of their runs."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._known = _Catalogue()
        self._gates = Gates(self._known, {})
        self._tally = Tally(store, self._gates.breaker_of, clock=clock)
        self.terms = Terms(store, {}, self._gates, self._tally)
        # The tenant served last, by type.
        self._turns: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, catalogue: Mapping[str, TypeInfo]) -> None:
        """Types that are new, or say something new, must not be claimed before we know what limits them."""
        with self._lock:
            if catalogue != self._known.types:
                self._known.types = catalogue
                self._gates.serve({name: info.schema_version for name, info in catalogue.items()})
                self.terms.refresh()

    def claim(self, want: Want) -> Claimed:
        """Take due jobs of types that were learnt of, as far as nothing stands in their way."""
        types = self._gates.open(want.types)
        if not types:
            return Claimed([], None)
        claimed = self._store.claim(
            self._gates.want(
                types,
                worker=want.worker,
                limit=want.limit,
                slots=want.limit,
                lease=want.lease,
                turns=self._turns,
            )
        )
        for lease in claimed.leases:
            self._turns[lease.job.type] = lease.job.tenant
        return claimed

    def settled(self, lease: Lease, outcome: Outcome) -> bool:
        """Count what came of a run; whether its end lets another job start."""
        self._tally.note([(lease, outcome)])
        return self._gates.limited(lease.job.type)


class _Catalogue:
    """What the code of types says about their limits, as the store knows it."""

    def __init__(self) -> None:
        self.types: Mapping[str, TypeInfo] = {}

    @property
    def limits(self) -> dict[str, Limit]:
        return key_limits(self.types.values())

    def get(self, name: str, /) -> _Type | None:
        info = self.types.get(name)
        return None if info is None else _Type(limit_from(info.options), info.options.get("limit_key"))


class _Type(NamedTuple):
    limit: Limit
    limit_key: str | None
