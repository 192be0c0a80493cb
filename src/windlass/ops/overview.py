"""One look at jobs, types and workers; and the workers of this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import msgspec
from msgspec import structs

from windlass.clock import Clock
from windlass.errors import Refused, StoreError
from windlass.job import JobState, TypeInfo, View
from windlass.observe.fleet import missing
from windlass.ops.verdict import Verdict
from windlass.policy import UNLIMITED, Limit, limit_from
from windlass.settings import KEY, Effective, Settings
from windlass.store.fleet import ALIVE_WITHIN, WorkerInfo
from windlass.store.flow import Breaker, Pause, Switches
from windlass.store.jobs import Count, Counts
from windlass.upkeep.membership import Place, here, is_gone

# A count that takes no longer is made for everybody who asks.
_CHEAP_SECONDS = 0.03
# So many times as long as a dear one took passes before the next: counting takes a twentieth of the time.
_SPARE = 20
# Whoever finds none that is younger waits for a new one.
_OLDEST_SECONDS = 60.0


class Counting:
    """One store's counts for many askers; those of a moment ago are told with ages brought up to now."""

    def __init__(self, count: Callable[[], Counts], clock: Callable[[], float] = monotonic) -> None:
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Counts | None = None
        self._counted = 0.0
        self._took = 0.0

    def __call__(self) -> Counts:
        """The counts: new ones, or those of the last count while a new one is dear."""
        known, age = self._known, self._clock() - self._counted
        if known is None or self._took <= _CHEAP_SECONDS or age > _OLDEST_SECONDS:
            with self._lock:
                return self._anew()
        if age > _SPARE * self._took and self._lock.acquire(blocking=False):
            threading.Thread(target=self._behind, name="windlass-count", daemon=True).start()
        by = timedelta(seconds=age)
        older = [
            each if each.oldest is None else structs.replace(each, oldest=each.oldest + by)
            for each in known.counts
        ]
        return structs.replace(known, now=known.now + by, counts=older)

    def _anew(self) -> Counts:
        began = self._clock()
        counts = self._count()
        self._counted = self._clock()
        self._took = self._counted - began
        self._known = counts
        return counts

    def _behind(self) -> None:
        """Count while others are told the last counts; a store that is away is news for who waits next."""
        try:
            self._anew()
        except StoreError:
            return
        finally:
            self._lock.release()


SILENT_AFTER = ALIVE_WITHIN
# So long may a priority wait behind others.
STARVED_AFTER = timedelta(minutes=5)


class WorkerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's row, and what its beat says of it."""

    info: WorkerInfo
    alive: bool
    silent_for: timedelta

    def takes(self, job_type: str) -> bool:
        """Whether it starts jobs of a type; one that drains finishes what it runs."""
        return self.alive and self.info.state != _DRAINING and self.info.serves(job_type)


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The workers that are alive, together."""

    alive: int
    silent: int
    # Died, and no other has started in their place.
    missing: int = 0
    slots: int
    busy: int
    # The hosts of those that are not notified of new jobs.
    deaf: list[str] = []


class TooNew(msgspec.Struct, frozen=True, kw_only=True):
    """Due jobs of a type whose payload version no live worker takes."""

    count: int
    # The oldest such version, and the newest that a live worker of the type takes.
    version: int
    newest: int
    oldest: timedelta


class TypeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One type: what the catalogue says, and where its jobs stand. Not `known`: no code registered it."""

    name: str
    known: bool
    schema_version: int
    # What its code says ...
    options: dict[str, Any]
    # ... and what holds for its jobs, with what operators have set.
    effective: Effective
    counts: dict[str, int]
    oldest_due: timedelta | None
    workers: int
    # What the live workers of the type run, and how many schemas of it are live.
    releases: list[str] = []
    schemas: int = 0
    too_new: TooNew | None = None
    paused: Pause | None = None
    breaker: Breaker | None = None
    limit: Limit = UNLIMITED
    limit_key: str | None = None


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules, together, and the one that fires next."""

    count: int
    paused: int
    next_name: str | None
    next_at: datetime | None


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """One priority over all types: how many jobs are due, and for how long the oldest."""

    priority: int
    due: int
    oldest: timedelta
    # Jobs of a higher priority that came later are ahead of it, and it has waited for long.
    starved: bool = False


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One look at everything. `warnings` are the verdict's findings, each in a line."""

    now: datetime
    counts: dict[str, int]
    capped: bool
    oldest_due: timedelta | None
    fleet: FleetSummary
    types: list[TypeStatus]
    warnings: list[str] = []
    schedules: ScheduleSummary | None = None
    # The highest priority first.
    bands: list[Band] = []
    verdict: Verdict | None = None


# The columns of every count, in the order in which people read them.
COLUMNS = (
    *("due", "scheduled", "retrying", "waiting", "unreadable", "processing", "stuck"),
    *("dead", "completed", "cancelled", "discarded"),
)


def see(
    counts: Counts,
    catalogue: Mapping[str, TypeInfo],
    workers: Sequence[WorkerHealth],
    settings: Settings,
    switches: Switches,
) -> Overview:
    """All of it from one read each."""
    names = sorted({*catalogue, *(each.type for each in counts.counts)})
    types = [_type_status(name, counts, catalogue.get(name), workers, settings, switches) for name in names]
    alive = [worker for worker in workers if worker.alive]
    fleet = FleetSummary(
        alive=len(alive),
        silent=sum(not worker.alive and worker.info.state in _LIVING for worker in workers),
        slots=sum(worker.info.slots for worker in alive),
        busy=sum(worker.info.busy for worker in alive),
        missing=len(missing([worker.info for worker in workers])),
        deaf=[worker.info.host for worker in alive if worker.info.deaf],
    )
    return Overview(
        now=counts.now,
        counts={column: sum(each.counts[column] for each in types) for column in COLUMNS},
        capped=counts.capped,
        oldest_due=max((each.oldest_due for each in types if each.oldest_due is not None), default=None),
        fleet=fleet,
        types=types,
        bands=list(_bands(counts)),
    )


def health_of(worker: WorkerInfo, now: datetime) -> WorkerHealth:
    """Whether a worker is alive, as far as its row tells."""
    silent_for = max(timedelta(0), now - worker.beat_at) if worker.beat_at else timedelta(0)
    alive = worker.state in _LIVING and silent_for <= SILENT_AFTER
    return WorkerHealth(info=worker, alive=alive, silent_for=silent_for)


def _type_status(
    name: str,
    counts: Counts,
    info: TypeInfo | None,
    workers: Sequence[WorkerHealth],
    settings: Settings,
    switches: Switches,
) -> TypeStatus:
    here = [each for each in counts.counts if each.type == name]
    columns = dict.fromkeys(COLUMNS, 0)
    for each in here:
        stuck = each.state is JobState.PROCESSING and each.view == View.STUCK
        pending = each.state is JobState.PENDING
        columns[(each.view or View.DUE) if pending else View.STUCK if stuck else each.state] += each.count
    serving = [worker.info for worker in workers if worker.alive and worker.info.serves(name)]
    options = dict(info.options) if info else {}
    key = options.get("limit_key")
    return TypeStatus(
        name=name,
        known=info is not None,
        schema_version=info.schema_version if info else 0,
        options=options,
        effective=settings.of_type(name, options).run,
        counts=columns,
        oldest_due=max((each.oldest for each in here if each.oldest is not None), default=None),
        workers=sum(worker.takes(name) for worker in workers),
        # By what the application calls them, else by a name for the payloads that they can read.
        releases=sorted({each.app or f"unnamed {each.reader[:_SHORT]}".strip() for each in serving}),
        schemas=1 + len(info.others) if info else 0,
        too_new=_too_new(name, here, workers),
        paused=switches.pauses.get(name),
        breaker=switches.breakers.get(KEY + key if key else name),
        limit=settings.limit(name, limit_from(options) if info else None),
        limit_key=key,
    )


def _too_new(name: str, counts: Sequence[Count], workers: Sequence[WorkerHealth]) -> TooNew | None:
    known = [worker.info.knows(name) for worker in workers if worker.takes(name)]
    newer = [each for each in counts if each.view == View.DUE and each.schema_version > max(known, default=0)]
    if not known or not newer:
        return None
    return TooNew(
        count=sum(each.count for each in newer),
        version=min(each.schema_version for each in newer),
        newest=max(known),
        oldest=max(each.oldest or timedelta(0) for each in newer),
    )


def _bands(counts: Counts) -> Iterator[Band]:
    due: Counter[int] = Counter()
    ages: dict[int, timedelta] = {}
    for each in counts.counts:
        if each.priority is not None:
            due[each.priority] += each.count
            ages[each.priority] = max(each.oldest or timedelta(0), ages.get(each.priority, timedelta(0)))
    for priority in sorted(due, reverse=True):
        oldest = ages[priority]
        overtaken = any(ages[other] < oldest for other in ages if other > priority)
        starved = overtaken and oldest >= STARVED_AFTER
        yield Band(priority=priority, due=due[priority], oldest=oldest, starved=starved)


_SHORT = 6
_DRAINING = "draining"
_LIVING = ("running", _DRAINING)


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """What came of stopping workers: those that are gone, and those that were still there in the end."""

    stopped: list[str]
    left: list[str]


def local_workers(workers: Sequence[WorkerHealth], place: Place | None = None) -> list[WorkerInfo]:
    """The workers whose processes surely run here: same boot, same process numbers, same start."""
    place = place or here()
    ours = (place.host, place.boot, place.pid_space)
    return [
        info
        for each in workers
        if (info := each.info).state in _LIVING
        and info.pid != place.pid
        and (info.host, info.boot, info.pid_space) == ours
        and not is_gone(info, place)
        # Where the system tells no boot, only a fresh beat says that the number still means that process.
        and (place.boot or each.alive)
    ]


def with_the_gone_dead(workers: Sequence[WorkerInfo]) -> list[WorkerInfo]:
    """The same workers; those whose processes are gone from this machine as dead, whatever their rows say."""
    place = here()
    return [
        structs.replace(each, state="dead") if each.state in _LIVING and is_gone(each, place) else each
        for each in workers
    ]


def healths(workers: Sequence[WorkerInfo], now: datetime) -> list[WorkerHealth]:
    """The workers; one whose process is gone from this machine is dead, though no row says so."""
    return [health_of(worker, now) for worker in with_the_gone_dead(workers)]


def stop(workers: Sequence[WorkerInfo], *, within: timedelta, clock: Clock) -> Stop:
    """Ask processes of this machine to stop, and wait until they are gone."""
    for worker in workers:
        try:
            os.kill(worker.pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError:
            raise Refused(f"worker {worker.id} is the process {worker.pid} of another user") from None
    deadline = clock.monotonic() + within.total_seconds()
    place, pause = here(), threading.Event()
    left = list(workers)
    while left and clock.monotonic() < deadline:
        left = [worker for worker in left if not is_gone(worker, place)]
        pause.wait(_BETWEEN_LOOKS if left else 0)
    names = [worker.id for worker in left]
    return Stop(stopped=[worker.id for worker in workers if worker.id not in names], left=names)


_BETWEEN_LOOKS = 0.05
