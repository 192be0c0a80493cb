"""What can operators do over HTTP? Every verb of ops, translated; a test keeps the two equal."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import msgspec

from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.ops import Bulk, SettingValue
from windlass.ops.document import plain, worker_document
from windlass.ops.search import read_filter
from windlass.pace import Pace
from windlass.server.actions import BulkActionForm, bulk_arguments
from windlass.server.call import Call
from windlass.server.identity import Need, own
from windlass.server.problems import Problem
from windlass.server.reply import Reply
from windlass.server.routes import look, verb
from windlass.server.schemas.actions import FilterForm
from windlass.server.schemas.stats import WorkersDocument
from windlass.server.wire import exchange
from windlass.settings import SECRET
from windlass.store.jobs import Filter

# --- jobs ---------------------------------------------------------------------------------------


async def act_on_jobs(call: Call) -> Reply:
    """One verb for every job that a filter chooses, while the caller stays; a dry run only counts them."""
    form = await call.body(BulkActionForm)
    arguments = bulk_arguments(form)
    where = _filter(call, form.filter)
    stop = threading.Event()
    watching = asyncio.create_task(_stop_in_time(call, stop))
    try:
        done = await call.parts.run_long(
            call.ops(form).bulk,
            form.action,
            where,
            limit=form.limit,
            dry_run=form.dry_run,
            rate=Pace(form.rate, stop=stop),
            why=form.why,
            **arguments,
        )
    finally:
        watching.cancel()
    if stop.is_set():
        detail = f"the server stops: {done.matched} jobs are through, ask again for the others"
        raise Problem(503, "stopping", detail, headers={b"retry-after": b"1"})
    return Reply(200, done)


async def _stop_in_time(call: Call, stop: threading.Event) -> None:
    """Set `stop` when the caller hangs up, or the server is told to stop."""

    def look() -> None:
        if call.is_gone():
            stop.set()

    with exchange(call.scope).watched(look):
        await call.parts.stopped()
        stop.set()


def _filter(call: Call, form: FilterForm) -> Filter:
    if form == FilterForm():
        allowed = "an object with at least one condition"
        raise InvalidValue("filter needs at least one condition", field="filter", value="{}", allowed=allowed)
    for each in form.ids:
        if not _UUID.fullmatch(each):
            raise must_be("filter.ids", each, "ids of jobs, which are UUIDs")
    return own(
        call,
        read_filter(
            ids=form.ids,
            types=form.type,
            states=form.state,
            tenant=form.tenant,
            key=form.key,
            error=form.error,
            older_than=None if form.older_than is None else parse_duration(form.older_than, "older_than"),
            where=[(tuple(path.split(".")), value) for path, value in form.where.items()],
        ),
    )


# --- types, settings, workers -------------------------------------------------------------------


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every run-time setting with its effective value."""

    settings: list[SettingValue]


async def show_settings(call: Call) -> Reply:
    """Every run-time setting with its effective value; who may not set them is not shown secrets."""
    found = await call.run(call.parts.ops().settings)
    if not call.identity.may(Need.OPERATE):
        found = [msgspec.structs.replace(each, value=_hidden(each.name, each.value)) for each in found]
    return Reply(200, {"settings": plain(found)})


def _hidden(name: str, value: Any) -> Any:
    return HIDDEN if name in SECRET and value is not None else value


async def list_workers(call: Call) -> Reply:
    """Every worker that has a row, newest first."""
    found = await call.run(call.parts.ops().workers)
    return Reply(200, {"workers": [worker_document(each) for each in found]})


# In place of what is not shown.
HIDDEN = "(hidden)"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ROUTES = (
    verb(
        "jobs/actions",
        act_on_jobs,
        "Act on every job that a filter chooses",
        BulkActionForm,
        {200: Bulk},
        whole=False,
    ),
    look("settings", show_settings, "List run-time settings", SettingsDocument),
    look("workers", list_workers, "List workers", WorkersDocument),
)
