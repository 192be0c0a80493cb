"""What can operators do over HTTP about work that comes by itself?"""

from __future__ import annotations

from windlass.ops import ScheduleStatus, ScheduleWish
from windlass.ops.document import plain
from windlass.payload import parse
from windlass.server.call import Call
from windlass.server.identity import check_type_allowed
from windlass.server.reply import Reply
from windlass.server.routes import verb
from windlass.server.schemas.schedules import (
    ScheduleForm,
)


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
    return Reply(201, plain(added), headers={b"location": f"/api/v1/schedules/{form.name}".encode()})


ROUTES = (verb("schedules", add_schedule, "Make or change a schedule", ScheduleForm, {201: ScheduleStatus}),)
