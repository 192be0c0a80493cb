"""Schedules: fire each fire time once, follow what code declares, and what operators change.

A fire time is dealt with in one transaction: the jobs are inserted and the schedule moves on, fenced by where
it stood. So any number of schedulers may look at the same time, and be killed at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from windlass import settings
from windlass.clock import from_micros, span, uuid7
from windlass.errors import InvalidValue, Refused, ScheduleConflict, ScheduleNotFound
from windlass.job import JobState, NewJob
from windlass.schedule import NewSchedule, Timing, plan, run_at
from windlass.store import access, catalogue, keys, rows, upkeep
from windlass.store.engine import Row, Tx
from windlass.store.fleet import LIVING, WorkerInfo, next_fire, worker_from

# So many fire times of each schedule are remembered.
REMEMBERED = 100


class Origin(StrEnum):
    """Who made a schedule: the application's code, or an operator at run time."""

    CODE = "code"
    OPERATOR = "operator"


class FireOutcome(StrEnum):
    """What became of a fire time."""

    ENQUEUED = "enqueued"
    # A job with that fire time's key was there already.
    FOUND = "found"
    # An earlier run had not ended.
    SKIPPED = "skipped"
    # Nobody was there; the policy says not to catch up with it.
    MISSED = "missed"


class Fire(msgspec.Struct, frozen=True, kw_only=True, rename={"job_id": "job", "made_by": "by"}):
    """A fire time and what became of it. `made_by`: somebody had it run by hand."""

    at: datetime
    outcome: FireOutcome
    # Of missed ones: fire times from `at` up to, and without, this moment.
    until: datetime | None = None
    job_id: str | None = None
    # How the job stands now; None if its record is gone, or there never was one.
    job_state: JobState | None = None
    made_by: str | None = None
    noted_at: datetime


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store knows it, and the last of its fire times."""

    new: NewSchedule
    origin: Origin
    # Declared by code once, and by no live release any more.
    withdrawn: bool = False
    # Declared by code that no live worker runs: it does not fire until one does.
    orphaned: bool = False
    paused: bool = False
    paused_by: str | None = None
    paused_at: datetime | None = None
    # None: never again.
    next_at: datetime | None = None
    # Why it could not be fired when its time had come.
    problem: str | None = None
    created_at: datetime
    updated_at: datetime
    last: Fire | None = None

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.new.name


class Fired(msgspec.Struct, frozen=True):
    """What one look at the schedules came to: the jobs that were made, and when to look again."""

    jobs: tuple[str, ...]
    # Until the next fire time; None if there is none.
    next_in: timedelta | None


# --- whose definition holds ---------------------------------------------------------------------
# A schedule exists while a live release declares it. If two live releases define it differently, the one that
# was seen first most recently holds, so that an old worker that restarts never puts its own back.


def digest_of(new: NewSchedule) -> str:
    """What tells two definitions of a schedule apart."""
    return hashlib.blake2b(msgspec.json.encode(new), digest_size=8).hexdigest()


# Processes say each minute what they declare; one that says it again sooner than this writes nothing.
_STALE = timedelta(seconds=30)
# A process that has said it within this time may be there without a row in the fleet: `windlass scheduler`,
# or a worker that is starting.
_RECENT = timedelta(minutes=2)
# A worker can declare once more after its last beat.
_BEAT = timedelta(seconds=5)
# A definition that nobody has declared for this long is forgotten, and with it its place in the order.
_FORGOTTEN = timedelta(days=30)
_NAMED_AT_MOST = 3


class Fleet:
    """Which workers are there, which functions they have, and which schedules they declare."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def serves(self, job_type: str) -> bool:
        """Whether a worker that was seen within `schedules.orphan_after` has this type."""
        return any(worker.serves(job_type) for worker in self.lately)

    def declares(self, digest: str) -> bool:
        """Whether a worker that declares this definition is there."""
        return any(digest in (worker.declares or ()) for worker in self.living)

    def declaring(self, digests: Collection[str], job_type: str) -> list[str]:
        """The workers that beat and declare one of these definitions, or may do so, in words."""
        return [
            f"{worker.id} (release {worker.app})" if worker.app else worker.id
            for worker in self._seen_since(self._tx.now - span(_RECENT))
            if worker.state in LIVING
            and (
                worker.serves(job_type)
                if worker.declares is None
                else any(digest in worker.declares for digest in digests)
            )
        ]

    def ended(self, entry: Entry) -> bool:
        """Whether the last process that declared this definition was a worker that has ended."""
        return any(
            row["state"] not in LIVING
            and row["beat_at"] + span(_BEAT) >= entry.seen_at
            and entry.digest in (row["declares"] or "")
            for row in self._rows
        )

    @cached_property
    def orphaned_before(self) -> int:
        """What was not seen since then has no live worker; with `schedules.orphan_after none`, never."""
        grace = self._settings.orphan_after
        return 0 if grace is None else self._tx.now - span(grace)

    @cached_property
    def gone_before(self) -> int:
        """A release that was not seen since then is gone."""
        grace = self._settings.orphan_after
        return self._tx.now - span(self._settings.keep_schemas if grace is None else grace)

    @cached_property
    def _settings(self) -> settings.Settings:
        return settings.read(upkeep.settings(self._tx))

    @cached_property
    def _rows(self) -> Sequence[Row]:
        return self._tx.rows("workers")

    @cached_property
    def lately(self) -> list[WorkerInfo]:
        """The workers that were seen within `schedules.orphan_after`."""
        return self._seen_since(self.orphaned_before)

    @cached_property
    def in_grace(self) -> list[WorkerInfo]:
        """The workers of releases that are not gone."""
        return self._seen_since(self.gone_before)

    @property
    def living(self) -> Iterator[WorkerInfo]:
        """Those of them that are there."""
        return (worker for worker in self.in_grace if worker.state in LIVING)

    def _seen_since(self, moment: int) -> list[WorkerInfo]:
        return [worker_from(row) for row in self._rows if row["beat_at"] >= moment]


class Entry(NamedTuple):
    """A definition of a schedule. Of those that live releases declare, the greatest holds."""

    first_at: int
    digest: str
    name: str
    type: str
    definition: str
    seen_at: int

    @property
    def new(self) -> NewSchedule:
        """The schedule."""
        return msgspec.json.decode(self.definition, type=NewSchedule)


class Declarations:
    """The definitions that code declares, or has declared."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.fleet = Fleet(tx)
        self._entries = {row["digest"]: Entry(**row) for row in tx.rows("declarations")}
        self._before = self._entries.copy()

    def holds(self) -> dict[str, Entry]:
        """By name, the newest definition that a live release declares."""
        return {each.name: each for each in sorted(filter(self._is_live, self._entries.values()))}

    def unsaid(self, schedules: Iterable[NewSchedule]) -> dict[str, NewSchedule]:
        """Which of these the store was not told lately, by digest."""
        fresh = self._tx.now - span(_STALE)
        by_digest = {digest_of(new): new for new in schedules}
        return {
            digest: new
            for digest, new in by_digest.items()
            if digest not in self._entries or self._entries[digest].seen_at < fresh
        }

    def say(self, schedules: Sequence[NewSchedule]) -> None:
        """Note that a process is there that declares these."""
        now = self._tx.now
        for digest, new in self.unsaid(schedules).items():
            first_at = self._entries[digest].first_at if digest in self._entries else now
            entry = Entry(first_at, digest, new.name, new.type, msgspec.json.encode(new).decode(), now)
            self._tx.change("note_declaration", **entry._asdict(), now=now)
            self._entries[digest] = entry
        self._tx.change("forget_declarations", before=now - span(_FORGOTTEN))

    def take_over(self, types: Iterable[str], schedules: Iterable[NewSchedule]) -> None:
        """Where no other worker of a type is left, what starts now counts alone: no deploy is rolling."""
        ours = set(map(digest_of, schedules))
        idle = {name for name in types if not any(worker.serves(name) for worker in self.fleet.living)}
        for each in list(self._entries.values()):
            if each.type in idle and each.digest not in ours and self.fleet.ended(each):
                self._tx.change("end_declaration", name=each.name, digest=each.digest)
                self._entries[each.digest] = each._replace(seen_at=0)

    def was_live(self, entry: Entry, moment: int) -> bool:
        """Whether a definition was declared at that moment, as far as was known before this transaction."""
        before = self._before.get(entry.digest)
        if before is None or before.first_at > moment:
            return False
        grace = self._tx.now - self.fleet.gone_before
        return self.fleet.declares(before.digest) or before.seen_at >= moment - grace

    def declared_by(self, name: str, job_type: str) -> str:
        """Which live processes declare a schedule, in words; empty if none does."""
        entries = [each for each in self._entries.values() if each.name == name]
        found = self.fleet.declaring([each.digest for each in entries], job_type)
        if found:
            more = len(found) - _NAMED_AT_MOST
            named = ", ".join(found[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
            return f"by worker {named}" if len(found) == 1 else f"by workers {named}"
        seen_at = max((each.seen_at for each in entries if not self.fleet.ended(each)), default=0)
        ago = self._tx.now - seen_at
        return f"by a process that was seen {ago // 1_000_000} s ago" if ago < span(_RECENT) else ""

    def _is_live(self, entry: Entry) -> bool:
        return entry.seen_at >= self.fleet.gone_before or self.fleet.declares(entry.digest)


# So much in one transaction; the rest follows in the next one, at once.
_SCHEDULES_AT_ONCE = 100
_TIMES_AT_ONCE = 100
_TRIMMED_AT_ONCE = 50
_KEY = "schedule:"
_KIND = "schedule"
_REMOVE = ("remove_schedule", "remove_fires", "remove_declarations")


def idle(tx: Tx) -> Fired | None:
    """When the next fire time comes; None if one has come, and something is to be done."""
    next_in = next_fire(tx)
    due = next_in is not None and next_in <= timedelta(0)
    return None if due or _returned(tx, Fleet(tx)) else Fired((), next_in)


def fire(tx: Tx) -> Fired:
    """Deal with the fire times that have come."""
    jobs: list[str] = []
    fleet = Fleet(tx)
    for name in _returned(tx, fleet):
        tx.change("orphan_schedule", name=name, orphaned_at=None)
    for row in tx.rows("due_schedules", now=tx.now, limit=_SCHEDULES_AT_ONCE):
        if _lacks(fleet, row):
            # It keeps its place: once a worker has the function again, the catch-up policy decides.
            tx.change("orphan_schedule", name=row["name"], orphaned_at=tx.now)
            continue
        try:
            # One that cannot be fired must not keep the others from it.
            with tx.part():
                jobs += _fire_one(tx, _schedule(row), row["next_at"])
                _trim(tx, row["name"])
        except (InvalidValue, Refused) as error:
            if row["problem"] != str(error):
                tx.change("note_problem", name=row["name"], problem=str(error))
    return Fired(tuple(jobs), next_fire(tx))


def _trim(tx: Tx, name: str) -> None:
    tx.change("trim_fires", schedule=name, keep=REMEMBERED, limit=_TRIMMED_AT_ONCE)


def _fire_one(tx: Tx, new: NewSchedule, next_at: int) -> list[str]:
    todo = plan(new.timing, next_at, tx.now, most=_TIMES_AT_ONCE)
    if not tx.change("advance_schedule", name=new.name, expected=next_at, next_at=todo.next_at):
        return []
    if todo.missed is not None:
        first, until = todo.missed
        _note(tx, new.name, first, FireOutcome.MISSED, until_at=until)
    if new.timing.overlap == "skip" and tx.row("unended_run", schedule=new.name) is not None:
        for fire_at in todo.fire:
            _note(tx, new.name, fire_at, FireOutcome.SKIPPED)
        return []
    if not todo.fire:
        return []
    held = _policy(tx, new.type)
    stored = tx.enqueue([_draft(new, fire_at, held) for fire_at in todo.fire])
    for fire_at, done in zip(todo.fire, stored, strict=True):
        outcome = FireOutcome.ENQUEUED if done.created else FireOutcome.FOUND
        _note(tx, new.name, fire_at, outcome, job_id=done.id)
    return [done.id for done in stored if done.created]


def _draft(new: NewSchedule, fire_at: int, held: settings.TypePolicy) -> NewJob:
    priority = held.priority if new.priority is None else new.priority
    return NewJob(
        id=uuid7(),
        type=new.type,
        payload=new.payload,
        schema_version=new.schema_version,
        priority=min(priority, held.max_priority),
        max_attempts=held.run.max_attempts if new.max_attempts is None else new.max_attempts,
        run_at=from_micros(run_at(new.name, fire_at, new.timing.jitter)),
        key=f"{_KEY}{new.name}:{from_micros(fire_at).isoformat().replace('+00:00', 'Z')}",
        # The key says which run it is, whatever the schedule's payload has become.
        take_existing=True,
        tenant=new.tenant,
    )


def _policy(tx: Tx, job_type: str) -> settings.TypePolicy:
    known = catalogue.types(tx).get(job_type)
    return settings.read(upkeep.settings(tx)).of_type(job_type, {} if known is None else known.options)


def _note(tx: Tx, name: str, fire_at: int, outcome: FireOutcome, **more: object) -> None:
    """`more`: until_at, job_id, made_by."""
    told = {"until_at": None, "job_id": None, "made_by": None, "fire_at": fire_at, **more}
    tx.change("note_fire", id=uuid7(), schedule=name, outcome=outcome.value, now=tx.now, **told)


def _lacks(fleet: Fleet, row: Row) -> bool:
    """Whether code declares this schedule, but no code that a live worker runs.

    Without any live worker nobody can tell: a fleet may be scaled down to none while there is no work.
    """
    if row["source"] != Origin.CODE or row["withdrawn"]:
        return False
    alive = any(worker.state in LIVING for worker in fleet.lately)
    return alive and row["updated_at"] < fleet.orphaned_before and not fleet.serves(row["type"])


def _returned(tx: Tx, fleet: Fleet) -> list[str]:
    """Orphaned schedules whose function a live worker has again."""
    return [row["name"] for row in tx.rows("orphaned_schedules") if fleet.serves(row["type"])]


# --- what code declares -------------------------------------------------------------------------


def declare(tx: Tx, schedules: Sequence[NewSchedule], types: Sequence[str]) -> list[str]:
    """Note what a process declares for its types, and let the schedules follow all live releases."""
    tx.row("lock_declarations")
    known = Declarations(tx)
    known.say(schedules)
    known.take_over(types, schedules)
    ours = {new.name for new in schedules}
    for name, entry in list(_outdated(tx, known, types)):
        try:
            _follow(tx, known, name, entry)
        except InvalidValue:
            # Another release's, in a time zone that this machine does not know: its own workers enter it.
            if name in ours:
                raise
    operators = {row["name"] for row in tx.rows("schedules") if row["source"] != Origin.CODE}
    return sorted(ours & operators)


def _follow(tx: Tx, known: Declarations, name: str, entry: Entry | None) -> None:
    """Let a schedule be as it is declared."""
    row = tx.row("lock_schedule", name=name)
    if row is None:
        if entry is not None:
            tx.row("add_schedule", **_columns(tx, entry.new, Origin.CODE))
    elif row["source"] != Origin.CODE:
        return
    elif entry is None:
        tx.change("withdraw_schedule", name=name, now=tx.now)
    else:
        # An older Windlass withdraws what it does not declare itself: it has been declared all the time.
        goes_on = not row["withdrawn"] or known.was_live(entry, row["updated_at"])
        _change(tx, row, entry.new, Origin.CODE, goes_on=goes_on)


def is_declared(tx: Tx, schedules: Sequence[NewSchedule], types: Sequence[str]) -> bool:
    """Whether `declare` would change nothing."""
    known = Declarations(tx)
    return not known.unsaid(schedules) and not any(_outdated(tx, known, types))


def _outdated(tx: Tx, known: Declarations, types: Sequence[str]) -> Iterator[tuple[str, Entry | None]]:
    """The schedules of these types that are not as live releases declare them, each with what holds.

    None: no live release declares it.
    """
    found, holds = {row["name"]: row for row in tx.rows("schedules")}, known.holds()
    for name in sorted(found.keys() | holds.keys()):
        row, entry = found.get(name), holds.get(name)
        ours = (row is not None and row["type"] in types) or (entry is not None and entry.type in types)
        if not ours or (row is not None and row["source"] != Origin.CODE):
            continue
        if entry is not None:
            if row is None or row["withdrawn"] or _schedule(row) != entry.new:
                yield name, entry
        elif row is not None and not row["withdrawn"]:
            # Nobody knows what a worker of an older Windlass declares.
            silent = (each for each in known.fleet.in_grace if each.declares is None)
            if not any(worker.serves(row["type"]) for worker in silent):
                yield name, None


def add(tx: Tx, new: NewSchedule, *, replace: bool = False, by: str = "", why: str = "") -> ScheduleInfo:
    """Enter an operator's schedule; ScheduleConflict if the name is taken and not to be replaced."""
    row = tx.row("lock_schedule", name=new.name)
    before = None if row is None else _told(row)
    if row is None:
        if tx.row("add_schedule", **_columns(tx, new, Origin.OPERATOR)) is None:
            raise ScheduleConflict(new.name, "exists already")
    elif not replace:
        raise ScheduleConflict(new.name, "exists already; --replace puts this one in its place")
    else:
        _change(tx, row, new, Origin.OPERATOR, goes_on=not row["withdrawn"])
    after = _told(_known(tx, new.name))
    access.note(tx, "add", _KIND, new.name, by=by, why=why, before=before, after=after)
    return get(tx, new.name)


def pause(tx: Tx, name: str, *, by: str = "", why: str = "") -> ScheduleInfo:
    """Hold a schedule; one that is paused stays as it was paused."""
    row = _known(tx, name)
    if not row["paused"]:
        _set_paused(tx, row, row["next_at"], 1, by, why)
    return get(tx, name)


def resume(tx: Tx, name: str, *, by: str = "", why: str = "") -> ScheduleInfo:
    """Let a schedule go on from its next fire time; what passed meanwhile is told, not caught up with."""
    row = _known(tx, name)
    if row["paused"]:
        _set_paused(tx, row, _pass_over(tx, row, _schedule(row).timing), 0, by, why)
    return get(tx, name)


def _set_paused(tx: Tx, row: Row, next_at: int | None, paused: int, by: str, why: str) -> None:
    name, at = row["name"], tx.now if paused else None
    told = {"paused": paused, "paused_by": by if paused else None, "paused_at": at}
    tx.change("pause_schedule", name=name, next_at=next_at, now=tx.now, **told)
    before, after = {"paused": not paused}, {"paused": bool(paused)}
    access.note(tx, "pause" if paused else "resume", _KIND, name, by=by, why=why, before=before, after=after)


def run(tx: Tx, name: str, *, by: str = "", why: str = "", request_id: str = "") -> str:
    """Make the schedule's job now, beside its fire times; the job's id. The same request makes one."""
    new = _schedule(_known(tx, name))
    draft = _draft(new, tx.now, _policy(tx, new.type))
    # Nobody looks for this run by its time, and two of one moment are two, unless they are one request.
    key = f"{_KEY}{name}:by-hand:{request_id or draft.id}"
    [done] = tx.enqueue([msgspec.structs.replace(draft, key=key, run_at=None)])
    if done.created:
        _note(tx, name, tx.now, FireOutcome.ENQUEUED, job_id=done.id, made_by=by)
        _trim(tx, name)
        access.note(tx, "run", _KIND, name, by=by, why=why, after={"job": done.id})
    return done.id


def remove(tx: Tx, name: str, *, by: str = "", why: str = "") -> None:
    """Forget a schedule and what became of its fire times."""
    tx.row("lock_declarations")
    row = _known(tx, name)
    if row["source"] == Origin.CODE and not row["withdrawn"]:
        who = Declarations(tx).declared_by(name, row["type"])
        if who:
            raise ScheduleConflict(
                name, f"is declared in code {who}: take it out there and restart, or pause it"
            )
    tx.change_all(_REMOVE, name=name)
    access.note(tx, "remove", _KIND, name, by=by, why=why, before=_told(row))


def get(tx: Tx, name: str) -> ScheduleInfo:
    """One schedule."""
    row = tx.row("schedule", name=name)
    if row is None:
        raise ScheduleNotFound(name)
    return _info(tx, row, Fleet(tx))


def every(tx: Tx) -> list[ScheduleInfo]:
    """Every schedule, by name."""
    fleet = Fleet(tx)
    return [_info(tx, row, fleet) for row in tx.rows("schedules")]


def fires(tx: Tx, name: str, *, limit: int = REMEMBERED) -> list[Fire]:
    """The last fire times of a schedule, newest first."""
    get(tx, name)
    return _fires(tx, name, limit)


def _known(tx: Tx, name: str) -> Row:
    """A schedule that is to be changed; nobody else changes or fires it before we have."""
    row = tx.row("lock_schedule", name=name)
    if row is None:
        raise ScheduleNotFound(name)
    return row


def _change(tx: Tx, row: Row, new: NewSchedule, origin: Origin, *, goes_on: bool) -> None:
    """Give a schedule another definition. With the same times it stays where it is in them, if it goes on."""
    before = _schedule(row).timing
    same = (before.cron, before.every, before.tz) == (new.timing.cron, new.timing.every, new.timing.tz)
    next_at = row["next_at"] if same and goes_on else _pass_over(tx, row, new.timing)
    tx.change("change_schedule", **(_columns(tx, new, origin) | {"next_at": next_at}))


def _pass_over(tx: Tx, row: Row, timing: Timing) -> int | None:
    """The next fire time from now on; those that passed unfired are told."""
    if row["next_at"] is not None and row["next_at"] <= tx.now:
        _note(tx, row["name"], row["next_at"], FireOutcome.MISSED, until_at=tx.now)
    return timing.next_after(tx.now)


def _columns(tx: Tx, new: NewSchedule, origin: Origin) -> dict[str, Any]:
    told = {"source": origin.value, "next_at": new.timing.next_after(tx.now), "now": tx.now}
    return rows.columns(new, timing=None) | rows.columns(new.timing) | told


def _schedule(row: Row) -> NewSchedule:
    return rows.read(NewSchedule, row, timing=rows.read(Timing, row))


def _told(row: Row) -> dict[str, Any]:
    """A schedule for the audit log. Its payload stays out, as that of jobs does."""
    timing = _schedule(row).timing
    every = {} if timing.every is None else {"every": f"{timing.every.total_seconds():g}s"}
    cron = {} if timing.cron is None else {"cron": timing.cron, "tz": timing.tz}
    more = {"catch_up": timing.catch_up, "overlap": timing.overlap, "origin": row["source"]}
    return {"type": row["type"], **cron, **every, **more, "paused": bool(row["paused"])}


def _info(tx: Tx, row: Row, fleet: Fleet) -> ScheduleInfo:
    told = {"new": _schedule(row), "origin": Origin(row["source"]), "orphaned": _lacks(fleet, row)}
    return rows.read(ScheduleInfo, row, **told, last=next(iter(_fires(tx, row["name"], 1)), None))


def _fires(tx: Tx, name: str, limit: int) -> list[Fire]:
    found = []
    for row in tx.rows("fires_of", schedule=name, limit=limit):
        job = None if row["job_id"] is None else keys.get_by_id(tx, row["job_id"])
        told = {"at": from_micros(row["fire_at"]), "until": rows.moment(row["until_at"])}
        found.append(rows.read(Fire, row, **told, job_state=None if job is None else job.state))
    return found
