"""Remote workers: their rows in the fleet, the limits on their claims, and taking back their jobs.

A worker has a name of its own; its row is named by caller, name and a number that rises. A worker that was
declared dead gets a new row, because its jobs may run elsewhere by then. Limits, pauses and breakers hold as
for our own workers. A server also watches the fleet and takes back the jobs of dead workers by the same
rules, in case no other worker is there to do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from windlass.clock import Clock, SystemClock
from windlass.errors import WindlassError
from windlass.job import Lease, TypeInfo
from windlass.loop import Loop
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.policy import Limit, key_limits, limit_from
from windlass.server.identity import Identity
from windlass.store.engine import Settlement, Want
from windlass.store.fleet import Vitals, WorkerInfo
from windlass.store.store import Store
from windlass.upkeep.maintenance import Pruner, Ticks
from windlass.upkeep.membership import Membership, Watchman, here, is_gone
from windlass.upkeep.reaper import Reaper
from windlass.wakeup import Wakeup
from windlass.worker.admission import Admission, BreakerCounts, LiveSettings

K = TypeVar("K")
V = TypeVar("V")
_LIVING = ("running", "draining")
_MOST_REMEMBERED = 10_000
# A worker that asks for the same lease more often than this dies of its job each time.
_MOST_REPEATS = 3


class Remote:
    """Keeps the rows of remote workers alive by what they send, and counts leases that are sent again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._joining = threading.Lock()
        # By caller and name, the last used last; a row that is forgotten is looked for in the store.
        self._rows: OrderedDict[tuple[str, str], str] = OrderedDict()
        # By token: how often a lease was sent after the first time.
        self._repeated: OrderedDict[str, int] = OrderedDict()
        # By row and request, for as long as a claim of it is under way or waits for its turn.
        self._asking: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def attend(
        self, store: Store, who: Identity, name: str, types: Sequence[str], *, slots: int, host: str
    ) -> str:
        """The worker's row, which has just been given a sign of life; a new one enters."""
        met = self.beat(store, who, name, None)
        if met is not None:
            return met
        with self._joining:
            # Two requests of a new worker may come at one moment, also to two servers: it has one row all the
            # same. Who sees the same rows enters the same one next, and who comes later meets it.
            while True:
                rows = _rows(store, who, name)
                met = self._meet(store, who, name, rows, None)
                if met is not None:
                    return met
                # Higher than that of any row that it has had.
                had = (row.id.rpartition("~")[2] for row in rows)
                number = max((int(each) for each in had if each.isdecimal()), default=0) + 1
                row = f"{_prefix(who, name)}{number}"
                store.join(
                    WorkerInfo(
                        id=row,
                        host=host,
                        # No boot, no process: only its silence shows that it is gone.
                        boot="",
                        pid_space="",
                        pid=0,
                        pid_started=0,
                        version="http",
                        types=tuple(types),
                        slots=slots,
                    )
                )

    def beat(self, store: Store, who: Identity, name: str, busy: int | None) -> str | None:
        """A sign of life of a worker that has a row; None if it has none that is alive."""
        with self._lock:
            known = self._rows.get((who.name, name))
        if known is not None and _is_alive(store, known, busy):
            return self._remember(who, name, known)
        # Another server may have met it.
        return self._meet(store, who, name, _rows(store, who, name), busy)

    def _meet(
        self, store: Store, who: Identity, name: str, rows: Sequence[WorkerInfo], busy: int | None
    ) -> str | None:
        for row in rows:
            if row.state in _LIVING and _is_alive(store, row.id, busy):
                return self._remember(who, name, row.id)
        return None

    def is_draining(self, store: Store, row: str) -> bool:
        return any(worker.drain for worker in store.workers(row) if worker.id == row)

    def forget(self, who: Identity, name: str) -> None:
        with self._lock:
            self._rows.pop((who.name, name), None)

    @asynccontextmanager
    async def turn(self, row: str, request: str | None, patience: float) -> AsyncIterator[bool]:
        """Claims of one request, one at a time; whether this one got its turn within `patience` seconds."""
        if request is None:
            yield True
            return
        lock = self._asking.setdefault((row, request), asyncio.Lock())
        ours = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    ours = await lock.acquire()
            yield ours
        finally:
            if ours:
                lock.release()

    def may_repeat(self, lease: Lease) -> bool:
        """Whether to send it once more: a worker that died of its job looks like one that lost an answer."""
        with self._lock:
            times = self._repeated.get(lease.token, 0) + 1
            _put_last(self._repeated, lease.token, times)
        return times <= _MOST_REPEATS

    def _remember(self, who: Identity, name: str, row: str) -> str:
        with self._lock:
            _put_last(self._rows, (who.name, name), row)
        return row


def _prefix(who: Identity, name: str) -> str:
    return f"{who.name}~{name}~"


def belongs_to(row: str, who: Identity) -> bool:
    """Whether a caller may settle what runs in a worker's name: workers of its own service only.

    What was claimed before the server had keys has no service: the token alone proves who claimed it.
    """
    service, mark, _ = row.partition("~")
    return bool(mark) and service in ("", who.name)


def _rows(store: Store, who: Identity, name: str) -> list[WorkerInfo]:
    """Those that the worker has and has had, the newest first, as long as they are kept."""
    return store.workers(_prefix(who, name))


def _is_alive(store: Store, row: str, busy: int | None) -> bool:
    return store.beat(row, Vitals(busy=len(store.held_by(row)) if busy is None else busy))


def _put_last(known: OrderedDict[K, V], key: K, value: V) -> None:
    """Remember something as used last; what was not used for longest is forgotten."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > _MOST_REMEMBERED:
        known.popitem(last=False)


class _Limited(NamedTuple):
    limit: Limit
    limit_key: str | None


class Flow:
    """Makes the claims of remote workers by what the catalogue says, and counts what came of their runs."""

    def __init__(self, store: Store, clock: Clock, *, announced: bool) -> None:
        self._store = store
        # What the catalogue says. Never changed in place: others read it meanwhile.
        self._types: Mapping[str, TypeInfo] = {}
        self.limits: Mapping[str, Limit] = {}
        self.admission = Admission(self, {})
        self._breaker_counts = BreakerCounts(store, self.admission.breaker_of, clock=clock)
        self.ledger = Ledger(store)
        self.live = LiveSettings(
            store, {}, self.admission, self._breaker_counts, self.ledger.follow, announced=announced
        )
        # The tenant served last, by type; and how many jobs of the lowest priority are owed their share.
        self._turns: dict[str, str] = {}
        self._owed = 0.0
        self._lock = threading.Lock()

    def get(self, name: str, /) -> _Limited | None:
        known = self._types.get(name)
        return None if known is None else _Limited(limit_from(known.options), known.options.get("limit_key"))

    def ages(self, name: str) -> bool:
        known = self._types.get(name)
        return known is not None and known.options.get("max_age") is not None

    def start(self) -> None:
        """Follow what code and operators say. Waits for the store."""
        self.learn(self._store.types())
        # Before the first request: the first scrape shows the current depth.
        self._store.take_sample(timedelta(0))
        self.live.loop.start()
        self.ledger.loop.start()

    def stop(self) -> None:
        self.live.loop.stop(1.0)
        self.ledger.loop.stop(1.0)
        with contextlib.suppress(WindlassError):
            self.ledger.tick()

    def learn(self, types: Mapping[str, TypeInfo]) -> None:
        """Take what is registered now; what is news has its limits before its first job is claimed."""
        with self._lock:
            if types != self._types:
                self._types, self.limits = types, key_limits(types.values())
                self.admission.types = {name: info.schema_version for name, info in types.items()}
                self._breaker_counts.forget_types()
                self.live.refresh()

    def want(self, types: Mapping[str, int], *, limit: int, **asked: Any) -> Want | None:
        """What a worker may ask for now; None if all of it is held back. `asked` goes on to the claim."""
        open_types = self.admission.open(types)
        if not open_types:
            return None
        return Want(
            types=open_types,
            limit=limit,
            slots=limit,
            turns={name: self._turns[name] for name in open_types if name in self._turns},
            restricted=self.admission.restrictions(open_types),
            lowest=max(0, min(int(self._owed), limit)),
            **asked,
        )

    def claimed(self, want: Want, leases: Sequence[Lease], seconds: float) -> None:
        """It is the next tenant's turn; counted as the claims of our own workers are."""
        if leases:
            self.ledger.measure(names.CLAIM, len(leases))
            self.ledger.measure(names.RECEIVE, seconds)
        for lease in leases:
            self._turns[lease.job.type] = lease.job.tenant
        with self._lock:
            self._owed += self.admission.low_share * len(leases) - min(want.lowest, len(leases))

    def settled(self, settlement: Settlement) -> None:
        self._breaker_counts.note([settlement])
        self.ledger.settled([settlement], settlement.app)

    def tokens(self, job_type: str) -> tuple[tuple[str, int], ...]:
        """What the start of a job of that type takes of rates; it comes back if the job never started."""
        restriction = self.admission.restricted.get(job_type)
        return () if restriction is None else restriction.tokens


_EVERY = timedelta(seconds=1)
_BEAT_SECONDS = 1.75


class Upkeep:
    """Watches, reaps and prunes, on threads of their own."""

    def __init__(self, store: Store, wakeup: Wakeup, flow: Flow) -> None:
        clock = SystemClock()
        self._store = store
        self._clock = clock
        self._membership = Membership(here(), clock)
        self._live = flow.live
        watchman = Watchman(gone=partial(is_gone, seen_from=self._membership.place))
        ticks = Ticks(store, lambda: self._membership.id, clock=clock)
        self._reaper = Reaper(
            store,
            wakeup,
            watchman,
            policy=self._live.policy,
            clock=clock,
            ticked=ticks.note,
            ledger=flow.ledger,
        )
        self._loops = (
            Loop("watch-fleet", self.tick, every=_EVERY, longest_pause=_EVERY),
            self._reaper.loop,
            Pruner(store, ticks.note, clock=clock, ledger=flow.ledger).loop,
            ticks.loop,
        )
        self._ledger = flow.ledger

    def start(self) -> None:
        self._membership.confirm(self._clock.uptime(), self._store.generation)
        for loop in self._loops:
            loop.start(self._ledger.store_error)

    def stop(self) -> None:
        for loop in self._loops:
            loop.stop(1.0)

    def tick(self) -> None:
        """Look at the fleet; a worker's silence counts only while the store takes writes."""
        if self._clock.uptime() - self._membership.sent >= _BEAT_SECONDS:
            sent, generation = self._clock.uptime(), self._store.generation
            # A server has no row, so nothing is changed; but it was the store's writer that said so.
            self._store.beat(self._membership.id, Vitals())
            self._membership.confirm(sent, generation)
        look = self._store.look(self._membership.id, {})
        self._live.notice(look.revision)
        self._reaper.saw(self._membership.id, look, self._membership.pulse)
