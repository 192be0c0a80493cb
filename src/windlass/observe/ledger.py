"""What happened in this process since the store was last told? Counted in batches, told once a second."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from windlass.job import Lease
from windlass.loop import Loop
from windlass.observe import names
from windlass.outcome import Again, Cancelled, Dead, Done, Outcome, Released, Snoozed
from windlass.store.observing import Happened
from windlass.store.protocol import Settlement, Store

_EVERY = timedelta(seconds=1)
_MILLION = 1_000_000


class Ledger:
    """Counts what happens and tells the store of it.

    What a process that is killed had not told is lost: at most what happened in its last second.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._types: dict[str, _OfType] = {}
        self._others: Counter[tuple[str, str]] = Counter()
        self.loop = Loop("ledger", self.tick, every=_EVERY, first=_EVERY)

    def settled(self, settlements: Iterable[Settlement]) -> None:
        """Count what came of runs; once for a whole batch."""
        with self._lock:
            for each in settlements:
                job = each.lease.job
                of = self._types.get(job.type)
                if of is None:
                    of = self._types[job.type] = _OfType()
                of.note(each)

    def reaped(self, settlements: Iterable[Settlement]) -> None:
        """Count what was taken from workers that are gone."""
        listed = list(settlements)
        self.settled(listed)
        self.count_each((each.lease.job.type for each in listed), names.REAPED)

    def late(self, leases: Iterable[Lease]) -> None:
        """Count results that came too late."""
        self.count_each((lease.job.type for lease in leases), names.LATE)

    def count_each(self, types: Iterable[str], name: str) -> None:
        """Count something once for each of these types."""
        with self._lock:
            for job_type in types:
                self._others[job_type, name] += 1

    def count(self, name: str, number: int = 1) -> None:
        """Count what does not belong to one type."""
        if number:
            with self._lock:
                self._others["", name] += number

    def measure(self, measure: str, value: float) -> None:
        """Note one measured value that does not belong to one type."""
        number = bisect_left(names.BOUNDS[measure], value)
        with self._lock:
            self._others["", names.bucket(measure, number)] += 1
            self._others["", names.total(measure)] += int(value * _MILLION)

    def tick(self) -> None:
        """Tell the store; what it does not take is told the next time."""
        happened = self._take()
        if not happened:
            return
        try:
            self._store.add_history(happened)
        except BaseException:  # wall: whatever kept the store from it, the counts are kept for the next time
            with self._lock:
                self._others.update(happened)
            raise

    def _take(self) -> Happened:
        with self._lock:
            types, self._types = self._types, {}
            happened, self._others = self._others, Counter()
        for job_type, of in types.items():
            for name, value in of.told().items():
                happened[job_type, name] += value
        return happened


class _OfType:
    """What happened to the jobs of one type. Every settled job passes here, so little is called."""

    __slots__ = ("completed", "ended", "ends", "others", "ran", "runs", "waited", "waits")

    def __init__(self) -> None:
        size = len(names.SECONDS) + 1
        self.completed = 0
        self.others: Counter[str] = Counter()
        # How many fell into each bucket, and the seconds of all together.
        self.waits, self.waited = [0] * size, 0.0
        self.runs, self.ran = [0] * size, 0.0
        self.ends, self.ended = [0] * size, 0.0

    def note(self, settlement: Settlement) -> None:
        ran, outcome, job = settlement.ran, settlement.outcome, settlement.lease.job
        done = type(outcome) is Done
        if done:
            self.completed += 1
        else:
            self.others.update(_names_of(outcome))
        started = job.started_at
        if ran is None or started is None:
            return
        seconds = ran.total_seconds()
        self.runs[bisect_left(names.SECONDS, seconds)] += 1
        self.ran += seconds
        waited = max((started - job.run_at).total_seconds(), 0.0)
        self.waits[bisect_left(names.SECONDS, waited)] += 1
        self.waited += waited
        if done:
            whole = (started - job.enqueued_at).total_seconds() + seconds
            self.ends[bisect_left(names.SECONDS, whole)] += 1
            self.ended += whole

    def told(self) -> dict[str, int]:
        happened = dict(self.others) | {names.COMPLETED: self.completed, names.STARTED: sum(self.runs)}
        for measure, buckets, seconds in (
            (names.WAIT, self.waits, self.waited),
            (names.RUN, self.runs, self.ran),
            (names.END_TO_END, self.ends, self.ended),
        ):
            happened |= {names.bucket(measure, number): value for number, value in enumerate(buckets)}
            happened[names.total(measure)] = round(seconds * _MILLION)
        return {name: value for name, value in happened.items() if value}


def _names_of(outcome: Outcome) -> tuple[str, ...]:
    match outcome:
        case Done():
            return (names.COMPLETED,)
        case Again():
            return (names.FAILED, names.RETRIED, names.failed_because(outcome.error.reason))
        case Dead():
            return (names.FAILED, names.DEAD, names.failed_because(outcome.error.reason))
        case Snoozed():
            return (names.SNOOZED,)
        case Released():
            return (names.RELEASED,)
        case Cancelled():
            return (names.CANCELLED,)
