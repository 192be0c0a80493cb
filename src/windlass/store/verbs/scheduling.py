"""How do schedules fire, each fire time once, and how are they changed?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from windlass import settings
from windlass.clock import from_micros, span, uuid7
from windlass.errors import InvalidValue, Refused, ScheduleConflict, ScheduleNotFound
from windlass.job import DEFAULT_PRIORITY, NewJob
from windlass.schedule import NewSchedule, Timing, plan, run_at
from windlass.store import rows
from windlass.store.scheduling import REMEMBERED, Fire, Fired, FireOutcome, Origin, ScheduleInfo
from windlass.store.verbs import access, operating, upkeep

if TYPE_CHECKING:
    from windlass.store.transaction import Row, Tx
    from windlass.store.verbs.chaining import Storing
    from windlass.store.verbs.operating import Asked

# So much in one transaction; the rest follows in the next one, at once.
_SCHEDULES_AT_ONCE = 100
_TIMES_AT_ONCE = 100
_TRIMMED_AT_ONCE = 50
_KEY = "schedule:"
_KIND = "schedule"


# --- firing -------------------------------------------------------------------------------------


def idle(tx: Tx) -> Fired | None:
    """When the next fire time comes; None if one has come, and something is to be done."""
    next_in = next_fire(tx)
    return None if next_in is not None and next_in <= timedelta(0) else Fired((), next_in)


def fire(tx: Tx, store: Storing) -> Fired:
    """Deal with the fire times that have come."""
    jobs: list[str] = []
    for row in tx.rows("due_schedules", now=tx.now, limit=_SCHEDULES_AT_ONCE):
        try:
            # One that cannot be fired must not keep the others from it.
            with tx.part():
                jobs += _fire_one(tx, _schedule(row), row["next_at"], store)
                _trim(tx, row["name"])
        except (InvalidValue, Refused) as error:
            _note_problem(tx, row, str(error))
    return Fired(tuple(jobs), next_fire(tx))


def _trim(tx: Tx, name: str) -> None:
    tx.change("trim_fires", schedule=name, keep=REMEMBERED, limit=_TRIMMED_AT_ONCE)


def _fire_one(tx: Tx, new: NewSchedule, next_at: int, store: Storing) -> list[str]:
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
    held = _defaults(tx, new.type)
    drafts = [_draft(new, fire_at, held) for fire_at in todo.fire]
    made: list[str] = []
    for fire_at, done in zip(todo.fire, store(tx, drafts), strict=True):
        outcome = FireOutcome.ENQUEUED if done.created else FireOutcome.FOUND
        _note(tx, new.name, fire_at, outcome, job_id=done.id)
        made += [done.id] if done.created else []
    return made


def _draft(new: NewSchedule, fire_at: int, held: _Held) -> NewJob:
    priority = held.priority if new.priority is None else new.priority
    return NewJob(
        id=uuid7(),
        type=new.type,
        payload=new.payload,
        schema_version=new.schema_version,
        priority=min(priority, held.max_priority),
        max_attempts=held.max_attempts if new.max_attempts is None else new.max_attempts,
        run_at=from_micros(run_at(new.name, fire_at, new.timing.jitter)),
        key=f"{_KEY}{new.name}:{from_micros(fire_at).isoformat().replace('+00:00', 'Z')}",
        # The key says which run it is, whatever the schedule's payload has become.
        take_existing=True,
        tenant=new.tenant,
    )


class _Held(NamedTuple):
    """What holds for a type's jobs."""

    priority: int
    max_priority: int
    max_attempts: int


def _defaults(tx: Tx, job_type: str) -> _Held:
    """What holds for a type's jobs now: operator over code over default."""
    row = tx.row("type_named", name=job_type)
    options = {} if row is None else rows.type_from(row).options
    said = options.get("max_attempts") if "max_attempts" in options.get("said", ()) else None
    stored = settings.read(upkeep.settings(tx))
    return _Held(
        priority=options.get("priority", DEFAULT_PRIORITY),
        max_priority=stored.max_priority(job_type, options.get("max_priority")),
        max_attempts=stored.effective(job_type, max_attempts=said).max_attempts,
    )


def _note(
    tx: Tx,
    name: str,
    fire_at: int,
    outcome: FireOutcome,
    *,
    until_at: int | None = None,
    job_id: str | None = None,
    made_by: str | None = None,
) -> None:
    tx.change(
        "note_fire",
        id=uuid7(),
        schedule=name,
        fire_at=fire_at,
        outcome=outcome.value,
        until_at=until_at,
        job_id=job_id,
        made_by=made_by,
        now=tx.now,
    )


def _note_problem(tx: Tx, row: Row, problem: str) -> None:
    if row["problem"] != problem:
        tx.change("note_problem", name=row["name"], problem=problem)


def next_fire(tx: Tx) -> timedelta | None:
    """How long until the next schedule fires."""
    row = tx.row("next_fire")
    return None if row is None or row["next_at"] is None else timedelta(microseconds=row["next_at"] - tx.now)


# --- what code declares -------------------------------------------------------------------------


def declare(tx: Tx, schedules: Sequence[NewSchedule], types: Sequence[str]) -> list[str]:
    """Enter what code declares for its types, and mark what it declares no more."""
    held: list[str] = []
    # In a fixed order, so that two who declare never wait for each other.
    for new in sorted(schedules, key=lambda each: each.name):
        row = tx.row("lock_schedule", name=new.name)
        if row is None:
            tx.row("add_schedule", **_columns(tx, new, Origin.CODE))
        elif row["source"] == Origin.OPERATOR:
            held.append(new.name)
        elif row["withdrawn"] or _schedule(row) != new:
            _change(tx, row, new, Origin.CODE)
    declared = {new.name for new in schedules}
    for row in tx.rows("schedules"):
        ours = row["source"] == Origin.CODE and row["type"] in types
        if ours and row["name"] not in declared and not row["withdrawn"]:
            tx.change("withdraw_schedule", name=row["name"], now=tx.now)
    return held


# --- what operators do --------------------------------------------------------------------------


def add(tx: Tx, new: NewSchedule, replace: bool, by: str, why: str) -> ScheduleInfo:  # noqa: FBT001 - verbs take their words in order
    """Enter an operator's schedule, or put it in the place of one of that name."""
    row = tx.row("lock_schedule", name=new.name)
    before = None if row is None else _told(row)
    if row is None:
        if tx.row("add_schedule", **_columns(tx, new, Origin.OPERATOR)) is None:
            raise ScheduleConflict(new.name, "exists already")
    elif not replace:
        raise ScheduleConflict(new.name, "exists already; --replace puts this one in its place")
    else:
        _change(tx, row, new, Origin.OPERATOR)
    after = _told(_known(tx, new.name))
    access.note(tx, "add", _KIND, new.name, by=by, why=why, before=before, after=after)
    return get(tx, new.name)


def pause(tx: Tx, name: str, by: str, why: str) -> ScheduleInfo:
    """Hold a schedule; one that is paused stays as it was paused."""
    row = _known(tx, name)
    if not row["paused"]:
        tx.change(
            "pause_schedule",
            name=name,
            paused=1,
            paused_by=by,
            paused_at=tx.now,
            next_at=row["next_at"],
            now=tx.now,
        )
        before, after = {"paused": False}, {"paused": True}
        access.note(tx, "pause", _KIND, name, by=by, why=why, before=before, after=after)
    return get(tx, name)


def resume(tx: Tx, name: str, by: str, why: str) -> ScheduleInfo:
    """Let a schedule go on from its next fire time; what passed meanwhile is told, not caught up with."""
    row = _known(tx, name)
    if row["paused"]:
        next_at = _pass_over(tx, row, _schedule(row).timing)
        tx.change(
            "pause_schedule",
            name=name,
            paused=0,
            paused_by=None,
            paused_at=None,
            next_at=next_at,
            now=tx.now,
        )
        before, after = {"paused": True}, {"paused": False}
        access.note(tx, "resume", _KIND, name, by=by, why=why, before=before, after=after)
    return get(tx, name)


def run(tx: Tx, name: str, asked: Asked, store: Storing) -> str:
    """Make the schedule's job now, whatever runs and whatever its times are."""
    new = _schedule(_known(tx, name))
    draft = _draft(new, tx.now, _defaults(tx, new.type))
    # Nobody looks for this run by its time, and two of one moment are two, unless they are one request.
    key = f"{_KEY}{name}:by-hand:{asked.request_id or draft.id}"
    [done] = store(tx, [msgspec.structs.replace(draft, key=key, run_at=None)])
    if done.created:
        _note(tx, name, tx.now, FireOutcome.ENQUEUED, job_id=done.id, made_by=asked.by)
        _trim(tx, name)
        access.note(tx, "run", _KIND, name, by=asked.by, why=asked.why, after={"job": done.id})
    return done.id


def remove(tx: Tx, name: str, by: str, why: str) -> None:
    """Forget a schedule and what became of its fire times."""
    row = _known(tx, name)
    if row["source"] == Origin.CODE and not row["withdrawn"]:
        raise ScheduleConflict(name, "is declared in code: take it out there, or pause it")
    tx.change("remove_schedule", name=name)
    tx.change("remove_fires", schedule=name)
    access.note(tx, "remove", _KIND, name, by=by, why=why, before=_told(row))


def get(tx: Tx, name: str) -> ScheduleInfo:
    """One schedule."""
    row = tx.row("schedule", name=name)
    if row is None:
        raise ScheduleNotFound(name)
    return _info(tx, row)


def every(tx: Tx) -> list[ScheduleInfo]:
    """Every schedule, by name."""
    return [_info(tx, row) for row in tx.rows("schedules")]


def fires(tx: Tx, name: str, limit: int) -> list[Fire]:
    """The last fire times of a schedule, newest first."""
    get(tx, name)
    return _fires(tx, name, limit)


def _known(tx: Tx, name: str) -> Row:
    """A schedule that is to be changed; nobody else changes or fires it before we have."""
    row = tx.row("lock_schedule", name=name)
    if row is None:
        raise ScheduleNotFound(name)
    return row


def _change(tx: Tx, row: Row, new: NewSchedule, origin: Origin) -> None:
    """Give a schedule another definition. With the same times it stays where it is in them."""
    before = _schedule(row).timing
    same = (before.cron, before.every, before.tz) == (new.timing.cron, new.timing.every, new.timing.tz)
    next_at = row["next_at"] if same and not row["withdrawn"] else _pass_over(tx, row, new.timing)
    tx.change("change_schedule", **(_columns(tx, new, origin) | {"next_at": next_at}))


def _pass_over(tx: Tx, row: Row, timing: Timing) -> int | None:
    """The next fire time from now on; those that passed unfired are told."""
    if row["next_at"] is not None and row["next_at"] <= tx.now:
        _note(tx, row["name"], row["next_at"], FireOutcome.MISSED, until_at=tx.now)
    return timing.next_after(tx.now)


# --- rows ---------------------------------------------------------------------------------------


def _columns(tx: Tx, new: NewSchedule, origin: Origin) -> dict[str, Any]:
    timing = new.timing
    return {
        "name": new.name,
        "type": new.type,
        "payload": new.payload.decode(),
        "schema_version": new.schema_version,
        "cron": timing.cron,
        "every": None if timing.every is None else span(timing.every),
        "tz": timing.tz,
        "catch_up": timing.catch_up,
        "overlap": timing.overlap,
        "jitter": span(timing.jitter),
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        "tenant": new.tenant,
        "source": origin.value,
        "next_at": timing.next_after(tx.now),
        "now": tx.now,
    }


def _schedule(row: Row) -> NewSchedule:
    return NewSchedule(
        name=row["name"],
        timing=Timing(
            cron=row["cron"],
            every=None if row["every"] is None else timedelta(microseconds=row["every"]),
            tz=row["tz"],
            catch_up=row["catch_up"],
            overlap=row["overlap"],
            jitter=timedelta(microseconds=row["jitter"]),
        ),
        type=row["type"],
        payload=row["payload"].encode(),
        schema_version=row["schema_version"],
        priority=row["priority"],
        max_attempts=row["max_attempts"],
        tenant=row["tenant"],
    )


def _told(row: Row) -> dict[str, Any]:
    """A schedule for the audit log. Its payload stays out, as that of jobs does."""
    timing = _schedule(row).timing
    every = {} if timing.every is None else {"every": f"{timing.every.total_seconds():g}s"}
    cron = {} if timing.cron is None else {"cron": timing.cron, "tz": timing.tz}
    return {
        "type": row["type"],
        **cron,
        **every,
        "catch_up": timing.catch_up,
        "overlap": timing.overlap,
        "origin": row["source"],
        "paused": bool(row["paused"]),
    }


def _info(tx: Tx, row: Row) -> ScheduleInfo:
    last = _fires(tx, row["name"], 1)
    return ScheduleInfo(
        new=_schedule(row),
        origin=Origin(row["source"]),
        withdrawn=bool(row["withdrawn"]),
        paused=bool(row["paused"]),
        paused_by=row["paused_by"],
        paused_at=None if row["paused_at"] is None else from_micros(row["paused_at"]),
        next_at=None if row["next_at"] is None else from_micros(row["next_at"]),
        problem=row["problem"],
        created_at=from_micros(row["created_at"]),
        updated_at=from_micros(row["updated_at"]),
        last=last[0] if last else None,
    )


def _fires(tx: Tx, name: str, limit: int) -> list[Fire]:
    return [_fire(tx, row) for row in tx.rows("fires_of", schedule=name, limit=limit)]


def _fire(tx: Tx, row: Row) -> Fire:
    job = None if row["job_id"] is None else operating.get_by_id(tx, row["job_id"])
    return Fire(
        at=from_micros(row["fire_at"]),
        outcome=FireOutcome(row["outcome"]),
        until=None if row["until_at"] is None else from_micros(row["until_at"]),
        job_id=row["job_id"],
        job_state=None if job is None else job.state,
        made_by=row["made_by"],
        noted_at=from_micros(row["noted_at"]),
    )
