"""Look at schedules and change them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from windlass.checks import Problems, check_max_attempts, check_priority, check_text
from windlass.errors import UnknownType, must_be
from windlass.job import HIGHEST_PRIORITY, MAX_ATTEMPTS, MAX_TENANT, MAX_TYPE, TypeInfo
from windlass.ops.actions import Action, Option, Verbs, Why
from windlass.ops.document import NAME, Object
from windlass.ops.overview import Overview, ScheduleSummary, WorkerHealth
from windlass.ops.verdict import Cause, Finding, finding
from windlass.ops.words import count, start_worker
from windlass.payload import pack, validate_for
from windlass.registry import SENT_SHELL, SHELL
from windlass.schedule import MAX_NAME, NewSchedule, TimingOptions, check_name, read_timing
from windlass.store.schedules import Fire, Origin, ScheduleInfo

# A fire time that nobody has dealt with for so long: nobody looks.
LATE_AFTER = timedelta(minutes=1)
MOST_FIRES = 100
Replace = Annotated[bool, Option("Put it in the place of one that has this name.")]
Fires = Annotated[int, Meta(ge=1, le=MOST_FIRES), Option(f"How many fire times, 1 to {MOST_FIRES}.")]


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and what is wrong with it in words."""

    name: str
    type: str
    payload: Object
    cron: str | None
    every: timedelta | None
    tz: str | None
    catch_up: str
    overlap: str
    jitter: timedelta
    priority: int | None
    max_attempts: int | None
    tenant: str | None
    origin: Origin
    state: Literal["active", "paused", "withdrawn", "orphaned"]
    # None: not before somebody changes something.
    next_at: datetime | None
    last: Fire | None
    paused_by: str | None
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime
    notes: tuple[str, ...]


class ScheduleHistory(ScheduleStatus, frozen=True, kw_only=True):
    """A schedule with what became of its last fire times, newest first."""

    history: tuple[Fire, ...]


class ScheduleWish(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that somebody wants, as it was said; what is left out holds as for the type."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=NAME, examples=["nightly"])]
    type: Annotated[str, Meta(min_length=1, max_length=MAX_TYPE, pattern=NAME, examples=["report.build"])]
    payload: Annotated[Mapping[str, Any], Meta(description="Of its jobs.", examples=[{"days": 1}])] = {}
    timing: TimingOptions
    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    tenant: Annotated[str, Meta(min_length=1, max_length=MAX_TENANT)] | None = None


@dataclass(eq=False, kw_only=True)
class Schedules(Verbs):
    """The verbs on schedules."""

    fleet: Callable[[], list[WorkerHealth]]

    @Action("GET schedules", operation="list_schedules", answers=("schedules",))
    def list(self) -> Sequence[ScheduleStatus]:
        """Every schedule: its times, what comes next, what became of the last one."""
        return self._statuses(self.store.schedules())

    @Action("GET schedules/{name}")
    def show(self, name: str, *, fires: Fires = 20) -> ScheduleHistory:
        """One schedule, and what became of its last fire times."""
        if not 1 <= fires <= MOST_FIRES:
            raise must_be("fires", fires, f"between 1 and {MOST_FIRES}")
        status = structs.asdict(self._status(name))
        return ScheduleHistory(**status, history=tuple(self.store.fires(name, limit=fires)))

    def _wanted(self, wish: ScheduleWish, **_: object) -> NewSchedule:
        """The schedule as it is stored; everything that is wrong with it is refused at once."""
        types, problems = self.store.types(), Problems()
        with problems:
            info = types.get(wish.type)
            if info is None:
                raise UnknownType(wish.type, types)
            payload, version = _fitting(info, wish.payload)
        with problems:
            name = check_name(wish.name, field="name")
        with problems:
            timing = read_timing(wish.timing)
        priority = None if wish.priority is None else problems.tried(check_priority, wish.priority)
        most = None if wish.max_attempts is None else problems.tried(check_max_attempts, wish.max_attempts)
        with problems:
            tenant = check_text("tenant", wish.tenant or "", MAX_TENANT, least=0)
        problems.check()
        return NewSchedule(
            name=name,
            timing=timing,
            type=wish.type,
            payload=payload,
            schema_version=SENT_SHELL if self.sent and wish.type == SHELL else version,
            priority=priority,
            max_attempts=most,
            tenant=tenant,
        )

    @Action(
        "POST schedules",
        check=_wanted,
        own_command=True,
        status=201,
        location="schedules/{name}",
        schema="ScheduleForm",
        past="added",
    )
    def add(self, wish: ScheduleWish, *, replace: Replace = False, why: Why = "") -> ScheduleStatus:
        """Make a schedule, or with `replace` change one; it holds, also over the code's, until it is removed.

        Its payload must fit the type's schema.
        """
        self.store.add_schedule(self._wanted(wish), replace=replace, by=self._who, why=why)
        return self._status(wish.name)

    @Action("POST schedules/{name}/pause", past="paused", examples="windlass schedule pause nightly")
    def pause(self, name: str, *, why: Why = "") -> ScheduleStatus:
        """Let a schedule fire no more until it is resumed; also the code cannot change that."""
        self.store.pause_schedule(name, by=self._who, why=why)
        return self._status(name)

    @Action("POST schedules/{name}/resume", past="resumed", examples="windlass schedule resume nightly")
    def resume(self, name: str, *, why: Why = "") -> ScheduleStatus:
        """Let a schedule fire again; what passed meanwhile is not caught up with."""
        self.store.resume_schedule(name, by=self._who, why=why)
        return self._status(name)

    @Action(
        "POST schedules/{name}/run",
        answers=("name", "job"),
        status=201,
        location="jobs/{job}",
        past="run",
        examples="""
            windlass schedule run nightly
            windlass schedule run nightly --json
        """,
    )
    def run(self, name: str, *, why: Why = "") -> str:
        """Make a schedule's job now, whatever its times are and whatever runs."""
        who = self._who
        job_id = self.store.run_schedule(name, by=who, why=why, request_id=self.request_id)
        self._wake()
        return job_id

    @Action(
        "DELETE schedules/{name}",
        answers=("name", "removed"),
        danger=True,
        past="removed",
        examples="windlass schedule remove backup",
    )
    def remove(self, name: str, *, why: Why = "") -> bool:
        """Remove a schedule; its jobs stay. One that a live worker declares is taken out of the code."""
        self.store.remove_schedule(name, by=self._who, why=why)
        return True

    def _status(self, name: str) -> ScheduleStatus:
        return self._statuses([self.store.schedule(name)])[0]

    def _statuses(self, found: Sequence[ScheduleInfo]) -> Sequence[ScheduleStatus]:
        # Most stores have none, and a look at all else costs as much again.
        if not found:
            return []
        now, types, workers = self.store.now(), self.store.types(), self.fleet()
        return [_with_notes(info, _notes(info, now, types, workers)) for info in found]


def _with_notes(info: ScheduleInfo, notes: Iterable[str]) -> ScheduleStatus:
    new, timing = info.new, info.new.timing
    state = "paused" if info.paused else "orphaned" if info.orphaned else "active"
    state = "withdrawn" if info.withdrawn else state
    stored = {**structs.asdict(info), **structs.asdict(new), **structs.asdict(timing)}
    found_wrong = {
        "payload": msgspec.Raw(new.payload),
        "tz": timing.tz if timing.cron else None,
        "tenant": new.tenant or None,
        "state": state,
        "next_at": info.next_at if state == "active" else None,
        "notes": tuple(notes),
    }
    known = {name: stored[name] for name in ScheduleStatus.__struct_fields__ if name in stored}
    return ScheduleStatus(**(known | found_wrong))


def _notes(
    info: ScheduleInfo, now: datetime, types: Collection[str], workers: Sequence[WorkerHealth]
) -> Iterator[str]:
    """What is wrong with a schedule, judged by the time, the catalogue, and who works."""
    kind, remove = info.new.type, f"`windlass schedule remove {info.name}` removes"
    if info.withdrawn:
        yield f"no live release declares it any more, so it does not fire; {remove} it"
        return
    if info.orphaned:
        gone = f"no live worker has its function {kind}, so it does not fire"
        yield f"{gone}; it does again when one has, and {remove} it"
        return
    if info.problem is not None:
        yield f"it cannot be fired: {info.problem}"
    if kind not in types:
        yield f"no type {kind} is registered"
    elif not any(worker.alive and worker.info.serves(kind) for worker in workers):
        ends = f"; if the function was deleted, {remove} the schedule"
        yield f"no running worker serves its type {kind}" + (ends if info.origin is Origin.CODE else "")
    late = info.next_at is not None and now - info.next_at > LATE_AFTER
    if late and not info.paused and info.problem is None:
        yield "its time has passed: no worker and no `windlass scheduler` is running"


def with_schedules(seen: Overview, found: Sequence[ScheduleStatus]) -> Overview:
    """One look at everything, schedules included."""
    if not found:
        return seen
    coming = [each for each in found if each.next_at is not None]
    first = min(coming, key=lambda each: each.next_at or seen.now, default=None)
    summary = ScheduleSummary(
        count=len(found),
        paused=sum(each.state == "paused" for each in found),
        next_name=None if first is None else first.name,
        next_at=None if first is None else first.next_at,
    )
    return structs.replace(seen, schedules=summary)


def schedule_findings(seen: Overview, found: Sequence[ScheduleStatus]) -> list[Finding]:
    """What is wrong with schedules, for the verdict."""
    wrong = [each for each in found if each.notes]
    found_wrong = [
        (f"Schedule {each.name}: {each.notes[0]}", f"windlass schedule show {each.name}")
        for each in wrong[:_MOST_TOLD]
    ]
    if found and not seen.fleet.alive:
        # One line for all of them: each would say the same.
        many = "1 schedule brings" if len(found) == 1 else f"{len(found)} schedules bring"
        start = start_worker(each.type for each in found)
        found_wrong = [(f"No worker is running, so nobody runs what {many}", start)]
    elif len(wrong) > _MOST_TOLD:
        more = f"Something is wrong with {count(len(wrong) - _MOST_TOLD, 'more schedule')}"
        found_wrong.append((more, "windlass schedule list"))
    return [finding(Cause.SCHEDULE, sentence, fix, grave=False) for sentence, fix in found_wrong]


def _fitting(info: TypeInfo, payload: Mapping[str, Any]) -> tuple[bytes, int]:
    """The payload, and the schema version that it fits."""
    secret = sorted(set(info.options.get("encrypt", ())) & set(payload))
    if secret:
        allowed = "a payload without encrypted fields: a schedule keeps it in the clear"
        raise must_be(f"payload.{secret[0]}", "(hidden)", allowed)
    packed = pack(payload, info.name)
    return packed, validate_for(info, packed).schema_version


_MOST_TOLD = 5
