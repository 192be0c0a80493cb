"""Look at schedules and change them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Unpack

import msgspec
from msgspec import Meta

from windlass.checks import Problems, check_text
from windlass.connect import Front
from windlass.errors import UnknownType, must_be
from windlass.job import HIGHEST_PRIORITY, MAX_ATTEMPTS, MAX_TENANT, MAX_TYPE, TypeInfo
from windlass.ops.actions import Action, Need, Option, Options, Verbs, Why
from windlass.ops.document import NAME, Object
from windlass.ops.overview import Overview, ScheduleSummary, WorkerHealth, serves
from windlass.ops.verdict import Cause, Finding
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


class Schedules(Verbs):
    """The verbs on schedules."""

    def __init__(
        self, front: Front, fleet: Callable[[], list[WorkerHealth]], **options: Unpack[Options]
    ) -> None:
        super().__init__(front, **options)
        self._fleet = fleet

    @Action(
        "GET schedules",
        need=Need.SEE,
        within="schedules",
        operation="list_schedules",
        answers=("schedules",),
    )
    def list(self) -> Sequence[ScheduleStatus]:
        """Every schedule: its times, what comes next, what became of the last one."""
        found = self.store.schedules()
        # Most stores have none, and a look at all else costs as much again.
        look = self._look() if found else None
        return [] if look is None else [look.status(info) for info in found]

    @Action("GET schedules/{name}", need=Need.SEE, within="schedules")
    def show(self, name: str, *, fires: Fires = 20) -> ScheduleHistory:
        """One schedule, and what became of its last fire times."""
        if not 1 <= fires <= MOST_FIRES:
            raise must_be("fires", fires, f"between 1 and {MOST_FIRES}")
        status = self._status(name)
        history = tuple(self.store.fires(name, limit=fires))
        return ScheduleHistory(**msgspec.structs.asdict(status), history=history)

    @Action(
        "POST schedules",
        need=Need.OPERATE,
        within="schedules",
        own_command=True,
        status=201,
        location="schedules/{name}",
        schema="ScheduleForm",
        past="added",
    )
    def add(
        self, wish: ScheduleWish, *, replace: Replace = False, by: str | None = None, why: Why = ""
    ) -> ScheduleStatus:
        """Make a schedule, or with `replace` change one; it holds, also over the code's, until it is removed.

        Its payload must fit the type's schema.
        """
        types = self.store.types()
        info = types.get(wish.type)
        if info is None:
            raise UnknownType(wish.type, types)
        problems = Problems()
        with problems:
            payload, version = _fitting(info, wish.payload)
        with problems:
            timing = read_timing(wish.timing)
        problems.check()
        if self._sent and wish.type == SHELL:
            version = SENT_SHELL
        self.store.add_schedule(
            NewSchedule(
                name=check_name(wish.name),
                timing=timing,
                type=wish.type,
                payload=payload,
                schema_version=version,
                priority=_within("priority", wish.priority, 0, HIGHEST_PRIORITY),
                max_attempts=_within("max_attempts", wish.max_attempts, 1, MAX_ATTEMPTS),
                tenant=check_text("tenant", wish.tenant or "", MAX_TENANT, least=0),
            ),
            replace=replace,
            by=self._who(by),
            why=why,
        )
        return self._status(wish.name)

    @Action(
        "POST schedules/{name}/pause",
        need=Need.OPERATE,
        within="schedules",
        past="paused",
        examples="""
            windlass schedule pause nightly
        """,
    )
    def pause(self, name: str, *, by: str | None = None, why: Why = "") -> ScheduleStatus:
        """Let a schedule fire no more until it is resumed; also the code cannot change that."""
        self.store.pause_schedule(name, by=self._who(by), why=why)
        return self._status(name)

    @Action(
        "POST schedules/{name}/resume",
        need=Need.OPERATE,
        within="schedules",
        past="resumed",
        examples="""
            windlass schedule resume nightly
        """,
    )
    def resume(self, name: str, *, by: str | None = None, why: Why = "") -> ScheduleStatus:
        """Let a schedule fire again; what passed meanwhile is not caught up with."""
        self.store.resume_schedule(name, by=self._who(by), why=why)
        return self._status(name)

    @Action(
        "POST schedules/{name}/run",
        need=Need.OPERATE,
        within="schedules",
        answers=("name", "job"),
        status=201,
        location="jobs/{job}",
        past="run",
        examples="""
            windlass schedule run nightly
            windlass schedule run nightly --json
        """,
    )
    def run(self, name: str, *, by: str | None = None, why: Why = "") -> str:
        """Make a schedule's job now, whatever its times are and whatever runs."""
        who = self._who(by)
        job_id = self.store.run_schedule(name, by=who, why=why, request_id=self._request_id)
        self._wake()
        return job_id

    @Action(
        "DELETE schedules/{name}",
        need=Need.OPERATE,
        within="schedules",
        answers=("name", "removed"),
        danger=True,
        past="removed",
        examples="""
            windlass schedule remove backup
        """,
    )
    def remove(self, name: str, *, by: str | None = None, why: Why = "") -> bool:
        """Remove a schedule; its jobs stay. One that a live worker declares is taken out of the code."""
        self.store.remove_schedule(name, by=self._who(by), why=why)
        return True

    def _status(self, name: str) -> ScheduleStatus:
        return self._look().status(self.store.schedule(name))

    def _look(self) -> Surroundings:
        return Surroundings(self.store.now(), self.store.types(), self._fleet())


class Surroundings(msgspec.Struct, frozen=True):
    """What a schedule is judged by: the time, the catalogue, and who works."""

    now: datetime
    types: Collection[str]
    workers: Sequence[WorkerHealth]

    def status(self, info: ScheduleInfo) -> ScheduleStatus:
        """A schedule and what is wrong with it."""
        new, timing, state = info.new, info.new.timing, _state(info)
        return ScheduleStatus(
            name=new.name,
            type=new.type,
            payload=msgspec.Raw(new.payload),
            cron=timing.cron,
            every=timing.every,
            tz=timing.tz if timing.cron else None,
            catch_up=timing.catch_up,
            overlap=timing.overlap,
            jitter=timing.jitter,
            priority=new.priority,
            max_attempts=new.max_attempts,
            tenant=new.tenant or None,
            origin=info.origin,
            state=state,
            next_at=info.next_at if state == "active" else None,
            last=info.last,
            paused_by=info.paused_by,
            paused_at=info.paused_at,
            created_at=info.created_at,
            updated_at=info.updated_at,
            notes=tuple(self._notes(info)),
        )

    def _notes(self, info: ScheduleInfo) -> list[str]:
        if info.withdrawn:
            gone = "no live release declares it any more, so it does not fire"
            return [f"{gone}; `windlass schedule remove {info.name}` removes it"]
        if info.orphaned:
            gone = f"no live worker has its function {info.new.type}, so it does not fire"
            return [
                f"{gone}; it does again when one has, and `windlass schedule remove {info.name}` removes it"
            ]
        notes = [] if info.problem is None else [f"it cannot be fired: {info.problem}"]
        if info.new.type not in self.types:
            notes.append(f"no type {info.new.type} is registered")
        elif not any(worker.alive and serves(worker.info, info.new.type) for worker in self.workers):
            missing = f"no running worker serves its type {info.new.type}"
            ends = (
                f"; if the function was deleted, `windlass schedule remove {info.name}` removes the schedule"
            )
            notes.append(missing + (ends if info.origin is Origin.CODE else ""))
        late = info.next_at is not None and self.now - info.next_at > LATE_AFTER
        if late and not info.paused and info.problem is None:
            notes.append("its time has passed: no worker and no `windlass scheduler` is running")
        return notes


def _state(info: ScheduleInfo) -> Literal["active", "paused", "withdrawn", "orphaned"]:
    if info.withdrawn:
        return "withdrawn"
    if info.paused:
        return "paused"
    return "orphaned" if info.orphaned else "active"


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
    return msgspec.structs.replace(seen, schedules=summary)


def schedule_findings(seen: Overview, found: Sequence[ScheduleStatus]) -> list[Finding]:
    """What is wrong with schedules, for the verdict."""
    if found and not seen.fleet.alive:
        # One line for all of them: each would say the same.
        many = "1 schedule brings" if len(found) == 1 else f"{len(found)} schedules bring"
        start = start_worker(each.type for each in found)
        return [_finding(f"No worker is running, so nobody runs what {many}", start)]
    wrong = [each for each in found if each.notes]
    told = [
        _finding(f"Schedule {each.name}: {each.notes[0]}", f"windlass schedule show {each.name}")
        for each in wrong[:_MOST_TOLD]
    ]
    if len(wrong) > _MOST_TOLD:
        more = f"Something is wrong with {count(len(wrong) - _MOST_TOLD, 'more schedule')}"
        told.append(_finding(more, "windlass schedule list"))
    return told


def _finding(sentence: str, mend: str) -> Finding:
    return Finding(cause=Cause.SCHEDULE, grave=False, sentence=sentence, mend=mend)


def _fitting(info: TypeInfo, payload: Mapping[str, Any]) -> tuple[bytes, int]:
    """The payload, and the schema version that it fits."""
    secret = sorted(set(info.options.get("encrypt", ())) & set(payload))
    if secret:
        allowed = "a payload without encrypted fields: a schedule keeps it in the clear"
        raise must_be(f"payload.{secret[0]}", "(hidden)", allowed)
    packed = pack(payload, info.name)
    return packed, validate_for(info, packed).schema_version


def _within(field: str, value: int | None, least: int, most: int) -> int | None:
    if value is not None and not least <= value <= most:
        raise must_be(field, value, f"a whole number between {least} and {most}")
    return value


_MOST_TOLD = 5
