"""What can an operator see and do about schedules? Each verb once, as in ops.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

import msgspec

from windlass.checks import check_text
from windlass.errors import UnknownType, must_be
from windlass.job import HIGHEST_PRIORITY, MAX_ATTEMPTS, MAX_TENANT, TypeInfo
from windlass.ops.actions import Options, Verbs
from windlass.ops.finding import Cause, Finding
from windlass.ops.overview import Overview, ScheduleSummary, WorkerHealth, serves
from windlass.ops.words import count, start_worker
from windlass.payload import pack, validate_for
from windlass.registry import SENT_SHELL, SHELL
from windlass.schedule import NewSchedule, TimingOptions, check_name, read_timing
from windlass.store.schedules import Fire, Origin, ScheduleInfo
from windlass.store.store import Store

# A fire time that nobody has dealt with for so long: nobody looks.
LATE_AFTER = timedelta(minutes=1)


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, whether it is active, paused, withdrawn or orphaned, and what is wrong with it in words."""

    info: ScheduleInfo
    state: str
    notes: tuple[str, ...] = ()


class ScheduleWish(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that somebody wants, as it was said; what is left out holds as for the type."""

    name: str
    type: str
    payload: Mapping[str, Any]
    timing: TimingOptions
    priority: int | None = None
    max_attempts: int | None = None
    tenant: str = ""


class Schedules(Verbs):
    """The verbs on schedules."""

    def __init__(
        self, store: Store, fleet: Callable[[], list[WorkerHealth]], **options: Unpack[Options]
    ) -> None:
        super().__init__(store, **options)
        self._fleet = fleet

    def list(self) -> list[ScheduleStatus]:
        """Every schedule, by name."""
        found = self.store.schedules()
        # Most stores have none, and a look at all else costs as much again.
        look = self._look() if found else None
        return [] if look is None else [look.status(info) for info in found]

    def show(self, name: str) -> ScheduleStatus:
        """One schedule."""
        info = self.store.schedule(name)
        return self._look().status(info)

    def history(self, name: str, *, limit: int = 20) -> Sequence[Fire]:
        """What became of a schedule's last fire times, newest first."""
        if not 1 <= limit <= MOST_FIRES:
            raise must_be("limit", limit, f"between 1 and {MOST_FIRES}")
        return self.store.fires(name, limit=limit)

    def add(
        self, wish: ScheduleWish, *, replace: bool = False, by: str | None = None, why: str = ""
    ) -> ScheduleStatus:
        """Enter a schedule for a type of the catalogue; its payload must fit the type's schema."""
        types = self.store.types()
        info = types.get(wish.type)
        if info is None:
            raise UnknownType(wish.type, types)
        payload, version = _fitting(info, wish.payload)
        if self._sent and wish.type == SHELL:
            version = SENT_SHELL
        self.store.add_schedule(
            NewSchedule(
                name=check_name(wish.name),
                timing=read_timing(wish.timing),
                type=wish.type,
                payload=payload,
                schema_version=version,
                priority=_within("priority", wish.priority, 0, HIGHEST_PRIORITY),
                max_attempts=_within("max_attempts", wish.max_attempts, 1, MAX_ATTEMPTS),
                tenant=check_text("tenant", wish.tenant, MAX_TENANT, least=0),
            ),
            replace=replace,
            by=self._who(by),
            why=why,
        )
        return self.show(wish.name)

    def pause(self, name: str, *, by: str | None = None, why: str = "") -> ScheduleStatus:
        """Let it fire no more until it is resumed."""
        self.store.pause_schedule(name, by=self._who(by), why=why)
        return self.show(name)

    def resume(self, name: str, *, by: str | None = None, why: str = "") -> ScheduleStatus:
        """Let it fire from its next fire time on."""
        self.store.resume_schedule(name, by=self._who(by), why=why)
        return self.show(name)

    def run(self, name: str, *, by: str | None = None, why: str = "") -> str:
        """Make its job now, beside its fire times; the job's id."""
        who = self._who(by)
        job_id = self.store.run_schedule(name, by=who, why=why, request_id=self._request_id)
        self._wake()
        return job_id

    def remove(self, name: str, *, by: str | None = None, why: str = "") -> None:
        """Forget it; its jobs stay."""
        self.store.remove_schedule(name, by=self._who(by), why=why)

    def _look(self) -> Surroundings:
        return Surroundings(self.store.now(), self.store.types(), self._fleet())


class Surroundings(msgspec.Struct, frozen=True):
    """What a schedule is judged by: the time, the catalogue, and who works."""

    now: datetime
    types: Collection[str]
    workers: Sequence[WorkerHealth]

    def status(self, info: ScheduleInfo) -> ScheduleStatus:
        """A schedule and what is wrong with it."""
        return ScheduleStatus(info=info, state=_state(info), notes=tuple(self._notes(info)))

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


def _state(info: ScheduleInfo) -> str:
    if info.withdrawn:
        return "withdrawn"
    if info.paused:
        return "paused"
    return "orphaned" if info.orphaned else "active"


def with_schedules(seen: Overview, found: Sequence[ScheduleStatus]) -> Overview:
    """One look at everything, schedules included."""
    if not found:
        return seen
    coming = [each.info for each in found if each.state == "active" and each.info.next_at is not None]
    first = min(coming, key=lambda info: info.next_at or seen.now, default=None)
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
        start = start_worker(each.info.new.type for each in found)
        return [_finding(f"No worker is running, so nobody runs what {many}", start)]
    wrong = [each for each in found if each.notes]
    told = [
        _finding(f"Schedule {each.info.name}: {each.notes[0]}", f"windlass schedule show {each.info.name}")
        for each in wrong[:_MOST_TOLD]
    ]
    if len(wrong) > _MOST_TOLD:
        more = f"Something is wrong with {count(len(wrong) - _MOST_TOLD, 'more schedule')}"
        told.append(_finding(more, "windlass schedule list"))
    return told


def _finding(sentence: str, mend: str) -> Finding:
    return Finding(cause=Cause.SCHEDULE, grave=False, sentence=sentence, mend=mend)


def schedule_document(status: ScheduleStatus) -> dict[str, Any]:
    """A schedule as plain values."""
    info, new, timing = status.info, status.info.new, status.info.new.timing
    return {
        "name": new.name,
        "type": new.type,
        "payload": msgspec.Raw(new.payload),
        "cron": timing.cron,
        "every": timing.every,
        "tz": timing.tz if timing.cron else None,
        "catch_up": timing.catch_up,
        "overlap": timing.overlap,
        "jitter": timing.jitter,
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        "tenant": new.tenant or None,
        "origin": info.origin.value,
        "state": status.state,
        "next_at": info.next_at if status.state == "active" else None,
        "last": None if info.last is None else fire_document(info.last),
        "paused_by": info.paused_by,
        "paused_at": info.paused_at,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "notes": list(status.notes),
    }


def fire_document(fire: Fire) -> dict[str, Any]:
    """A fire time and what became of it, as plain values."""
    return {
        "at": fire.at,
        "outcome": fire.outcome.value,
        "until": fire.until,
        "job": fire.job_id,
        "job_state": fire.job_state,
        "by": fire.made_by,
        "noted_at": fire.noted_at,
    }


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


MOST_FIRES = 100
_MOST_TOLD = 5
