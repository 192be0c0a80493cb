"""What can operators do over HTTP about work that comes by itself?"""

from __future__ import annotations

from typing import Any

from windlass.ops import ScheduleStatus, ScheduleWish
from windlass.ops.document import plain
from windlass.ops.schedules import MOST_FIRES, fire_document, schedule_document
from windlass.payload import parse
from windlass.server.call import Call
from windlass.server.identity import check_type_allowed
from windlass.server.reply import Reply
from windlass.server.routes import look, verb
from windlass.server.schemas import WhyForm
from windlass.server.schemas.schedules import (
    RemovedDocument,
    RunDocument,
    ScheduleDocument,
    ScheduleForm,
    SchedulesDocument,
    ToldSchedule,
)


async def list_schedules(call: Call) -> Reply:
    """Every schedule: its times, what comes next, what became of the last one."""
    found = await call.run(call.parts.ops().schedules.list)
    return Reply(200, {"schedules": [_told(each) for each in found]})


async def show_schedule(call: Call) -> Reply:
    """One schedule, and what became of its last fire times."""
    name = call.path["name"]
    limit = call.whole("fires", _FIRES, 1, MOST_FIRES)

    def look() -> dict[str, Any]:
        schedules = call.parts.ops().schedules
        fires = schedules.history(name, limit=limit)
        return _told(schedules.show(name)) | {"history": [fire_document(fire) for fire in fires]}

    return Reply(200, await call.run(look))


async def add_schedule(call: Call) -> Reply:
    """Make a schedule, or with `replace` change one; it holds, also over the code's, until it is removed."""
    form = await call.body(ScheduleForm)
    check_type_allowed(call, form.type)
    wish = ScheduleWish(
        name=form.name,
        type=form.type,
        payload=parse(bytes(form.payload), "payload"),
        timing={
            "cron": form.cron,
            "every": form.every,
            "tz": form.tz,
            "catch_up": form.catch_up,
            "overlap": form.overlap,
            "jitter": form.jitter,
        },
        priority=form.priority,
        max_attempts=form.max_attempts,
        tenant=form.tenant or "",
    )
    schedules = call.parts.ops(call.identity).schedules
    added = await call.run(schedules.add, wish, replace=form.replace, why=form.why)
    return Reply(201, _told(added), headers={b"location": f"/api/v1/schedules/{form.name}".encode()})


async def pause_schedule(call: Call) -> Reply:
    """Let a schedule fire no more until it is resumed; also the code cannot change that."""
    form = await call.body(WhyForm)
    schedules = call.parts.ops(call.identity).schedules
    return Reply(200, _told(await call.run(schedules.pause, call.path["name"], why=form.why)))


async def resume_schedule(call: Call) -> Reply:
    """Let a schedule fire again; what passed meanwhile is not caught up with."""
    form = await call.body(WhyForm)
    schedules = call.parts.ops(call.identity).schedules
    return Reply(200, _told(await call.run(schedules.resume, call.path["name"], why=form.why)))


async def run_schedule(call: Call) -> Reply:
    """Make a schedule's job now, whatever its times are and whatever runs."""
    form = await call.body(WhyForm)
    name = call.path["name"]
    job_id = await call.run(call.ops(form).schedules.run, name, why=form.why)
    return Reply(201, {"name": name, "job": job_id}, headers={b"location": f"/api/v1/jobs/{job_id}".encode()})


async def remove_schedule(call: Call) -> Reply:
    """Forget a schedule; its jobs stay. One that code declares is removed there."""
    name = call.path["name"]
    why = call.one("why") or ""
    await call.run(call.parts.ops(call.identity).schedules.remove, name, why=why)
    return Reply(200, {"name": name, "removed": True})


def _told(status: ScheduleStatus) -> dict[str, Any]:
    told: dict[str, Any] = plain(schedule_document(status))
    return told


_FIRES = 20
ROUTES = (
    look("schedules", list_schedules, "List schedules", SchedulesDocument),
    verb("schedules", add_schedule, "Make or change a schedule", ScheduleForm, {201: ScheduleDocument}),
    look(
        "schedules/{name}",
        show_schedule,
        "Show a schedule",
        ToldSchedule,
        query={"fires": f"How many fire times, 1 to {MOST_FIRES}."},
        refuses=(404,),
    ),
    verb(
        "schedules/{name}",
        remove_schedule,
        "Remove a schedule",
        None,
        {200: RemovedDocument},
        method="DELETE",
        query={"why": "For the records."},
        refuses=(404, 409),
    ),
    verb("schedules/{name}/pause", pause_schedule, "Pause a schedule", gives={200: ScheduleDocument}),
    verb("schedules/{name}/resume", resume_schedule, "Resume a schedule", gives={200: ScheduleDocument}),
    verb("schedules/{name}/run", run_schedule, "Run a schedule's job now", gives={201: RunDocument}),
)
