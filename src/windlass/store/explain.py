"""The facts that say why a job does not run: limits, pauses, parents, workers and the jobs ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass import settings
from windlass.clock import from_micros, span, to_micros
from windlass.job import Job, JobState, TypeInfo, View
from windlass.policy import Limit, key_limits, limit_from
from windlass.settings import ALL, KEY, Settings
from windlass.store import catalogue, fleet, flow, keys, limits, rows, running, upkeep
from windlass.store.engine import Row, Tx
from windlass.store.fleet import ALIVE_WITHIN, LIVING, NEWEST_VERSION, WorkerInfo
from windlass.store.flow import Breaker, Pause, Switches
from windlass.store.lanes import versions
from windlass.store.running import Unread

# Jobs in front are counted up to here: the answer must not cost what a backlog costs.
MOST_AHEAD = 1_000
# So many of those that hold something are named.
MOST_NAMED = 10


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a job must pass: of a type, a key (`key:crm`) or all jobs (`*`); and what runs so."""

    name: str
    limit: Limit
    # Counted up to the limit; the oldest of them by id.
    running: int = 0
    jobs: tuple[str, ...] = ()
    # When its rate has a token; None: now.
    token_at: datetime | None = None


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another waits for; no state: its record is gone."""

    id: str
    state: JobState | None = None


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that are claimed before this one, counted up to MOST_AHEAD together."""

    # Of a higher priority, of the same type and of others that the same workers serve.
    higher: int = 0
    # Of the same tenant and priority, earlier.
    earlier: int = 0
    # Of other tenants, whose turn comes before; so many tenants.
    others: int = 0
    tenants: int = 0
    # Of other types, older and of the same priority.
    rivals: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.higher + self.earlier + self.others + self.rivals


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of those in front's types ended lately, in so much time."""

    ended: int = 0
    over: timedelta = timedelta(0)

    @property
    def per_second(self) -> float:
        """Jobs a second."""
        return self.ended / self.over.total_seconds() if self.over else 0.0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that bears on one job at one moment. What cannot matter to a job as it stands is not looked up."""

    now: datetime
    job: Job
    # Every row, the newest first.
    workers: tuple[WorkerInfo, ...] = ()
    pause: Pause | None = None
    breaker: Breaker | None = None
    # How often a breaker lets one job through, and the one that it has let through.
    probe: timedelta = timedelta(0)
    probing: str | None = None
    held: tuple[Held, ...] = ()
    # What of the job's tenant runs, where the type's limit has a bound for each.
    tenant: Held | None = None
    parents: tuple[Parent, ...] = ()
    # Why workers have left it to others.
    unread: Unread | None = None
    # The name of which it shall be the only job, and who has it.
    unique: str | None = None
    unique_holder: str | None = None
    ahead: Ahead = Ahead()
    pace: Pace = Pace()

    def without_others(self) -> Facts:
        """The same without the ids of jobs that may belong to another caller or tenant."""
        tenant = None if self.tenant is None else msgspec.structs.replace(self.tenant, jobs=())
        held = tuple(msgspec.structs.replace(each, jobs=()) for each in self.held)
        return msgspec.structs.replace(self, held=held, tenant=tenant, probing=None)


_MOST_TENANTS = 50
_NO_END = 2**62
_MOST_TYPES = 50
# How fast jobs end is seen from so many of the newest, within this time.
_MOST_ENDED = 1_000
_LATELY = timedelta(minutes=1)


def facts(tx: Tx, job_id: str) -> Facts | None:
    """All that bears on a job; what cannot matter to it as it stands is not looked up."""
    job = keys.get_by_id(tx, job_id)
    if job is None:
        return None
    found = Facts(now=from_micros(tx.now), job=job)
    more: dict[str, Any] = {}
    match job.state:
        case JobState.PROCESSING:
            more = {"workers": tuple(fleet.workers(tx))}
        case JobState.DEAD:
            more["unique"], more["unique_holder"] = _unique(tx, job)
        case JobState.PENDING if (aside := running.of_job(tx, job)) is not None:
            more = {"unread": aside, "workers": tuple(fleet.workers(tx))}
        case JobState.PENDING if job.view(found.now) is View.WAITING:
            states = tx.rows("parents_states", child_id=job.id)
            more = {"parents": tuple(rows.read(Parent, row, id=row["parent_id"]) for row in states)}
        case JobState.PENDING:
            return _of_pending(tx, found)
    return msgspec.structs.replace(found, **more)


def _of_pending(tx: Tx, found: Facts) -> Facts:
    job = found.job
    types, set_ = catalogue.types(tx), settings.read(upkeep.settings(tx))
    switches, workers = flow.switches(tx), fleet.workers(tx)
    breaker = switches.breakers.get(_breaker_of(job.type, types))
    probing = None if breaker is None or not breaker.open else tx.row("probe_of", name=breaker.name)
    found = msgspec.structs.replace(
        found,
        workers=tuple(workers),
        pause=switches.pauses.get(job.type),
        breaker=breaker,
        probe=timedelta(0) if breaker is None else set_.breaker(breaker.name).probe,
        probing=None if probing is None else probing["id"],
    )
    if job.view(found.now) is not View.DUE:
        return found
    limits = _limits(job.type, types, set_)
    serving = [each for each in workers if _alive(each, tx.now) and each.serves(job.type)]
    rivals = _rivals(job.type, serving, types, switches)
    return msgspec.structs.replace(
        found,
        held=tuple(_held(tx, name, limit) for name, limit in limits.items()),
        tenant=_tenant(tx, job, limits.get(job.type)),
        ahead=_ahead(tx, job, serving, rivals),
        pace=_pace(tx, {job.type, *rivals}),
    )


def _limits(job_type: str, types: Mapping[str, TypeInfo], set_: Settings) -> dict[str, Limit]:
    known = types.get(job_type)
    key = None if known is None else known.options.get("limit_key")
    limits = {
        job_type: set_.limit(job_type, None if known is None else limit_from(known.options)),
        ALL: set_.limit(ALL),
    }
    if key is not None:
        limits[KEY + key] = set_.limit(KEY + key, key_limits(types.values()).get(key))
    return {name: limit for name, limit in limits.items() if limit.bounds}


def _breaker_of(job_type: str, types: Mapping[str, TypeInfo]) -> str:
    known = types.get(job_type)
    key = None if known is None else known.options.get("limit_key")
    return job_type if key is None else KEY + key


def _held(tx: Tx, name: str, limit: Limit) -> Held:
    running = 0 if limit.concurrency is None else limits.running(tx, name, limit.concurrency)
    named: Sequence[Row] = ()
    if limit.concurrency is not None and running >= limit.concurrency:
        which, values = limits.under(name)
        named = tx.rows(f"limited{which}", **values, limit=MOST_NAMED)
    return Held(
        name=name,
        limit=limit,
        running=running,
        jobs=tuple(sorted(row["id"] for row in named)),
        token_at=_token_at(tx, name, limit),
    )


def _token_at(tx: Tx, name: str, limit: Limit) -> datetime | None:
    row = None if limit.rate is None else tx.row("limit", name=name)
    if row is None or limit.rate is None or limit.rate.tokens(row["next_at"], tx.now):
        return None
    return from_micros(row["next_at"])


def _tenant(tx: Tx, job: Job, limit: Limit | None) -> Held | None:
    if limit is None or limit.per_tenant is None:
        return None
    found = tx.rows("limited_tenant", type=job.type, tenant=job.tenant, limit=limit.per_tenant)
    jobs = tuple(sorted(row["id"] for row in found))
    return Held(name=job.type, limit=limit, running=len(jobs), jobs=jobs[:MOST_NAMED])


def _unique(tx: Tx, job: Job) -> tuple[str | None, str | None]:
    row = tx.row("unique_of", seq=job.seq)
    if row is None or row["unique_name"] is None:
        return None, None
    holder = tx.row("unique_holder", name=row["unique_name"], caller=job.caller, tenant=job.tenant)
    return row["unique_name"], None if holder is None else holder["id"]


def _alive(worker: WorkerInfo, now: int) -> bool:
    beat = 0 if worker.beat_at is None else to_micros(worker.beat_at)
    return worker.state in LIVING and now - beat <= span(ALIVE_WITHIN)


def _rivals(
    job_type: str, serving: Sequence[WorkerInfo], types: Mapping[str, TypeInfo], switches: Switches
) -> dict[str, int]:
    """The other types, with their versions, whose jobs the same workers may start now."""
    names = sorted({name for worker in serving for name in worker.types} - {job_type} - set(switches.pauses))
    shut = {name for name, breaker in switches.breakers.items() if breaker.open}
    known = [name for name in names if name in types and _breaker_of(name, types) not in shut]
    return {name: types[name].schema_version for name in known[:_MOST_TYPES]}


def _ahead(tx: Tx, job: Job, serving: Sequence[WorkerInfo], rivals: Mapping[str, int]) -> Ahead:
    newest = max((each.knows(job.type) for each in serving), default=NEWEST_VERSION)
    line = _Line(tx, job)
    for version in versions(tx, job.type, min(newest, NEWEST_VERSION - 1)):
        line.count(version)
    if rivals and line.room:
        lane = {"types": rows.json_text(rivals), "priority": job.priority, "seq": job.seq}
        row = tx.row("ahead_of_others", **lane, limit=line.room)
        if row is not None:
            line.found["higher"] += min(line.room, row["higher"])
            line.found["rivals"] += min(line.room, row["older"])
    return Ahead(**line.found, tenants=line.tenants)


class _Line:
    def __init__(self, tx: Tx, job: Job) -> None:
        self._tx = tx
        self._job = job
        # By the fields of `Ahead`.
        self.found: Counter[str] = Counter()
        self.tenants = 0

    @property
    def room(self) -> int:
        """How many more are worth counting."""
        return max(0, MOST_AHEAD - self.found.total())

    def count(self, version: int) -> None:
        """Those of one schema version."""
        job = self._job
        lane: dict[str, object] = {"type": job.type, "version": version, "priority": job.priority}
        self._count("higher", "ahead_higher", self.room, **lane)
        self._count("earlier", "ahead_in_lane", self.room, **lane, tenant=job.tenant, seq=job.seq)
        # Each other tenant has as many turns before it as its own has jobs before it, and one more.
        turns = self.found["earlier"] + 1
        for tenant in self._tenants(lane):
            most = min(turns, self.room)
            self.tenants += self._count("others", "ahead_in_lane", most, **lane, tenant=tenant, seq=_NO_END)

    def _tenants(self, lane: dict[str, object]) -> Iterator[str]:
        """The other tenants who have due jobs there, as far as they are worth counting."""
        first = self._tx.row("lane_first_tenant", **lane, now=self._tx.now)
        if first is not None:
            after = {"after": first["tenant"], "limit": _MOST_TENANTS, "now": self._tx.now}
            for row in (first, *self._tx.rows("lane_turn", **lane, **after)):
                if row["tenant"] != self._job.tenant:
                    yield row["tenant"]

    def _count(self, field: str, statement: str, most: int, **values: object) -> bool:
        row = self._tx.row(statement, limit=most, **values) if most else None
        found = 0 if row is None else int(row["count"])
        self.found[field] += found
        return bool(found)


def _pace(tx: Tx, types: set[str]) -> Pace:
    found = tx.rows("ended_lately", limit=_MOST_ENDED, since=tx.now - span(_LATELY))
    if not found:
        return Pace(over=_LATELY)
    ended = sum(row["count"] for row in found if row["type"] in types)
    # As many as are looked at: they tell of less than a minute.
    full = sum(row["count"] for row in found) >= _MOST_ENDED
    first = min(row["since"] for row in found)
    over = timedelta(microseconds=max(1_000, tx.now - first)) if full else _LATELY
    return Pace(ended=ended, over=over)
