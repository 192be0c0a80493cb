"""What holds remote workers back? The same limits, pauses and breakers as ours, as the catalogue has them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from windlass.clock import Clock, from_micros
from windlass.errors import WindlassError
from windlass.job import Lease, TypeInfo
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.outcome import Outcome, Released
from windlass.policy.limit import Limit, key_limits, limit_from
from windlass.store.protocol import Settlement, Want
from windlass.store.store import Store
from windlass.worker.admission import Admission
from windlass.worker.breaker_counts import BreakerCounts
from windlass.worker.live_settings import LiveSettings


class _Limited(NamedTuple):
    limit: Limit
    limit_key: str | None


class _Catalogue:
    """What the catalogue says of limits."""

    def __init__(self) -> None:
        self.limits: Mapping[str, Limit] = {}
        self.versions: Mapping[str, int] = {}
        self._types: Mapping[str, TypeInfo] = {}

    def learn(self, types: Mapping[str, TypeInfo]) -> bool:
        """Take what is registered now; whether that is news."""
        if types == self._types:
            return False
        # Anew, never in place: others look at them meanwhile.
        self._types = types
        self.limits = key_limits(types.values())
        self.versions = {name: info.schema_version for name, info in types.items()}
        return True

    def ages(self, name: str) -> bool:
        """Whether a type has a max_age."""
        known = self._types.get(name)
        return known is not None and known.options.get("max_age") is not None

    def get(self, name: str, /) -> _Limited | None:
        known = self._types.get(name)
        return None if known is None else _Limited(limit_from(known.options), known.options.get("limit_key"))


class Flow:
    """Makes the claims of remote workers, and counts what came of their runs."""

    def __init__(self, store: Store, clock: Clock, *, told: bool) -> None:
        self._store = store
        self._catalogue = _Catalogue()
        self._admission = Admission(self._catalogue, self._catalogue.versions)
        self._breaker_counts = BreakerCounts(store, self._admission.breaker_of, clock=clock)
        self._clock = clock
        self.ledger = Ledger(store)
        self.live = LiveSettings(
            store,
            {},
            self._admission,
            self._breaker_counts,
            on_read=[self.ledger.follow],
            announced=told,
        )
        # The tenant served last, by type; and how many jobs of the lowest priority are owed their share.
        self._turns: dict[str, str] = {}
        self._owed = 0.0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Follow what code and operators say. Waits for the store."""
        self.learn(self._store.types())
        # Before anybody can ask: the first scrape tells the depth of now.
        self._store.take_sample(timedelta(0))
        self.live.loop.start()
        self.ledger.loop.start()

    def stop(self) -> None:
        """Follow it no more."""
        self.live.loop.stop(1.0)
        self.ledger.loop.stop(1.0)
        with contextlib.suppress(WindlassError):
            self.ledger.tick()

    def learn(self, types: Mapping[str, TypeInfo]) -> None:
        """Take what is registered now; what is news has its limits before its first job is claimed."""
        with self._lock:
            if self._catalogue.learn(types):
                self._admission.serve(self._catalogue.versions)
                self._breaker_counts.forget_types()
                self.live.refresh()

    def want(self, types: Mapping[str, int], *, worker: str, limit: int, lease: timedelta) -> Want | None:
        """What a worker may ask for now; None if all of it is held back."""
        open_types = self._admission.open(types)
        if not open_types:
            return None
        return Want(
            types=open_types,
            worker=worker,
            limit=limit,
            slots=limit,
            lease=lease,
            turns={name: self._turns[name] for name in open_types if name in self._turns},
            restricted=self._admission.restrictions(open_types),
            lowest=max(0, min(int(self._owed), limit)),
        )

    def claimed(self, want: Want, leases: Sequence[Lease], seconds: float) -> None:
        """It is the next tenant's turn; counted as the claims of our own workers are."""
        if leases:
            self.ledger.measure(names.CLAIM, len(leases))
            self.ledger.measure(names.RECEIVE, seconds)
        for lease in leases:
            self._turns[lease.job.type] = lease.job.tenant
        with self._lock:
            self._owed += self._admission.low_share * len(leases) - min(want.lowest, len(leases))

    def ages(self, job_type: str) -> bool:
        """Whether jobs of that type can become too old to run."""
        return self._catalogue.ages(job_type)

    def settled(self, lease: Lease, outcome: Outcome, app: str = "") -> None:
        """Count what came of a run, of a program of that release."""
        started, ran = lease.job.started_at, None
        if started is not None and not isinstance(outcome, Released):
            ran = max(timedelta(0), from_micros(self._clock.micros()) - started)
        settled = [Settlement(lease, outcome, ran)]
        self._breaker_counts.note(settled)
        self.ledger.settled(settled, app)

    def limited(self, job_type: str) -> bool:
        """Whether the end of a job of that type lets another one start."""
        return self._admission.limited(job_type)
