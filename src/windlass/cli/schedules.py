"""How is work that comes by itself seen, made and held from a terminal?"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any

import click

from windlass.cli.called import as_typed
from windlass.cli.commands import Command, Group
from windlass.cli.logs import log_to_stderr
from windlass.cli.process import leave, obey, obey_signals
from windlass.cli.screen import Cell, Screen, ago, block, duration, one_line
from windlass.cli.session import session
from windlass.cli.story import COLOURS
from windlass.clock import SystemClock
from windlass.loop import Loop
from windlass.ops import Ops, Schedules, ScheduleStatus, ScheduleWish
from windlass.ops.document import encode
from windlass.ops.schedules import fire_document, schedule_document
from windlass.payload import parse
from windlass.registry import SHELL
from windlass.schedule import CATCH_UPS, OVERLAPS
from windlass.store.schedules import Fire, FireOutcome
from windlass.upkeep.maintenance import Ticks
from windlass.upkeep.scheduler import Declarer, Scheduler

log = logging.getLogger("windlass.scheduler")
_why = click.option("--why", default="", metavar="TEXT", help="For the records.")


@click.group(
    cls=Group,
    examples="""
        windlass schedule list
        windlass schedule add backup --command 'pg_dump shop > shop.sql' --cron '0 3 * * *' --tz Europe/Berlin
        windlass schedule pause backup
        windlass schedule run backup
    """,
)
def schedule() -> None:
    """Schedules: jobs that come by themselves, by a cron expression or every so often.

    They are declared in code, `@queue.job(cron="0 3 * * *")`, or made here. Every worker fires them.
    """


def _on_one(examples: str) -> Callable[[Callable[[str, str], None]], click.Command]:
    """A command that does something to one schedule, and keeps why."""

    def made(function: Callable[[str, str], None]) -> click.Command:
        return schedule.command(examples=examples)(click.argument("name")(_why(function)))

    return made


@schedule.command(
    "list",
    examples="""
        windlass schedule list
        windlass schedule list --json
    """,
)
def list_schedules() -> None:
    """Every schedule: its times, what comes next, what became of the last one."""
    here = session()
    ops = here.ops()
    found, now = ops.schedules.list(), ops.now()
    if here.json:
        click.echo(encode({"schedules": [schedule_document(each) for each in found]}))
    elif not found:
        click.echo('No schedules yet: @queue.job(cron="0 3 * * *") in code, or windlass schedule add.')
    else:
        click.echo("\n".join(here.screen.table(_COLUMNS, [_row(each, now) for each in found])))
        for each in found:
            for note in each.notes:
                click.echo(here.screen.paint(f"! {each.info.name}: {one_line(note)}", "yellow"))


@schedule.command(
    examples="""
        windlass schedule show backup
        windlass schedule show backup --limit 100 --json
    """,
)
@click.argument("name")
@click.option("--limit", default=20, show_default=True, metavar="N", help="So many fire times, up to 100.")
def show(name: str, limit: int) -> None:
    """One schedule, and what became of its last fire times."""
    here = session()
    ops = here.ops()
    status, fires, now = ops.schedules.show(name), ops.schedules.history(name, limit=limit), ops.now()
    if here.json:
        history = {"history": [fire_document(fire) for fire in fires]}
        click.echo(encode(schedule_document(status) | history))
    else:
        click.echo("\n".join(_tell(status, list(fires), now, here.screen)))


@schedule.command(
    examples="""
        windlass schedule add nightly report.build '{"days": 1}' --cron '0 3 * * *' --tz Europe/Berlin
        windlass schedule add sync sync_crm --every 15m --jitter 30s --app myapp:queue
        windlass schedule add backup --command 'pg_dump shop > shop.sql' --cron @daily --catch-up last
        windlass schedule add nightly report.build --cron '0 4 * * *' --replace
    """,
)
@click.argument("name")
@click.argument("job_type", metavar="[TYPE]", required=False)
@click.argument("payload", required=False)
@click.option("--command", metavar="LINE", help="Run this shell command, in place of a TYPE.")
@click.option("--cron", metavar="EXPR", help="Minute, hour, day, month, day of week; or @daily and the like.")
@click.option("--tz", metavar="ZONE", help="The zone of the cron expression, such as Europe/Berlin.  [UTC]")
@click.option("--every", metavar="DURATION", help="Every so often: 30s, 15m, 1h.")
@click.option(
    "--catch-up",
    type=click.Choice(CATCH_UPS),
    help="Fire times that passed while nobody was there: fire none, the last one, or all.  [last]",
)
@click.option(
    "--overlap", type=click.Choice(OVERLAPS), help="If the run before has not ended: skip, or queue.  [skip]"
)
@click.option("--jitter", metavar="DURATION", help="Run up to so much later, each time by another amount.")
@click.option("--priority", type=int, metavar="N", help="Of its jobs; else what holds for the type.")
@click.option("--max-attempts", type=int, metavar="N", help="Of its jobs; else what holds for the type.")
@click.option("--tenant", default="", metavar="NAME", help="Of its jobs.")
@click.option("--replace", is_flag=True, help="Put it in the place of one that has this name.")
@_why
def add(
    name: str,
    job_type: str | None,
    payload: str | None,
    command: str | None,
    *,
    priority: int | None,
    max_attempts: int | None,
    tenant: str,
    replace: bool,
    why: str,
    **timing: Any,
) -> None:
    """Make a schedule, or with --replace change one.

    One that stands in the place of the code's holds until it is removed.
    """
    here = session()
    job_type, content = _asked(job_type, payload, command)
    queue = here.queue
    queue.publish()
    wish = ScheduleWish(
        name=name,
        type=job_type,
        payload=content,
        timing={key: value for key, value in timing.items() if value is not None},  # type: ignore[arg-type]
        priority=priority,
        max_attempts=max_attempts,
        tenant=tenant,
    )
    status = Ops(queue.store, wakeup=queue.wakeup).schedules.add(wish, replace=replace, why=why)
    _told(status, "added")


@_on_one(
    """
        windlass schedule pause nightly
    """
)
def pause(name: str, why: str) -> None:
    """Let a schedule fire no more until it is resumed; also the code cannot change that."""
    _told(_verbs().pause(name, why=why), "paused")


@_on_one(
    """
        windlass schedule resume nightly
    """
)
def resume(name: str, why: str) -> None:
    """Let a schedule fire again; what passed meanwhile is not caught up with."""
    _told(_verbs().resume(name, why=why), "resumed")


@_on_one(
    """
        windlass schedule run nightly
        windlass schedule run nightly --json
    """
)
def run(name: str, why: str) -> None:
    """Make a schedule's job now, whatever its times are and whatever runs."""
    job_id = _verbs().run(name, why=why)
    click.echo(encode({"name": name, "job": job_id}) if session().json else f"{job_id}  enqueued by {name}")


@_on_one(
    """
        windlass schedule remove backup
    """
)
def remove(name: str, why: str) -> None:
    """Remove a schedule; its jobs stay. One that a live worker declares is taken out of the code instead."""
    _verbs().remove(name, why=why)
    click.echo(encode({"name": name, "removed": True}) if session().json else f"{name}: removed")


@click.command(
    cls=Command,
    examples="""
        windlass scheduler
        windlass scheduler myapp:queue
    """,
)
@click.argument("app", required=False, metavar="[APP]")
@click.option("--log-json", is_flag=True, help="Log in JSON, a line per event.")
def scheduler(app: str | None, log_json: bool) -> None:
    """Fire schedules, and run no jobs.

    Every worker does so, too, and any number may: this is for times at which no worker runs. With an APP the
    schedules that its code declares are entered, too.
    """
    obey_signals()
    here = session()
    if app is not None:
        here.flags["app"] = app
    log_to_stderr(as_json=log_json or here.json, verbose=False)
    queue = here.queue
    ticks = Ticks(queue.store, _name, clock=SystemClock())
    loops = [Scheduler(queue.store, queue.wakeup, ticks.note).loop, ticks.loop]
    if here.config.app:
        declarer = Declarer(queue.store, queue.registry, queue.registry.names())

        def publish() -> None:
            queue.publish()
            declarer.tell()

        publish()
        loops.append(Loop("publish", publish, every=_PUBLISH_EVERY, first=_PUBLISH_EVERY))
    alone = _Alone(loops)
    obey(alone)
    here.works = True
    alone.run()
    leave(here)


COMMANDS = (schedule, scheduler)


def _name() -> str:
    """Who it is that fires schedules, in the store's records."""
    return f"scheduler-{socket.gethostname()}-{os.getpid()}"


class _Alone:
    """A scheduler that is a process of its own, until a signal ends it."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = loops
        # May be put to within a signal's handler.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self.begun = False

    def run(self) -> None:
        for loop in self._loops:
            loop.start()
        self.begun = True
        log.info("scheduler.started")
        self._bell.get()
        for loop in self._loops:
            loop.stop(_LAST_SECONDS)
        log.info("scheduler.stopped")

    def request_stop(self) -> None:
        self._bell.put(None)

    def abandon(self) -> None:
        """What it does is one transaction at a time: nothing is left half done."""


def _verbs() -> Schedules:
    return session().ops().schedules


def _asked(job_type: str | None, payload: str | None, command: str | None) -> tuple[str, dict[str, Any]]:
    if (job_type is None) == (command is None):
        raise click.UsageError("say either a TYPE or --command")
    if job_type is None:
        return SHELL, {"command": command}
    return job_type, parse(payload) if payload is not None else {}


def _told(status: ScheduleStatus, what: str) -> None:
    here = session()
    if here.json:
        click.echo(encode(schedule_document(status)))
        return
    info = status.info
    when = f", next {_clock(info.next_at)}" if status.state == "active" and info.next_at else ""
    click.echo(f"{info.name}: {what}{when}")
    for note in status.notes:
        click.echo(f"windlass: {as_typed(one_line(note))}", err=True)


def _row(status: ScheduleStatus, now: datetime) -> list[Cell | str | int]:
    info = status.info
    return [
        info.name,
        one_line(info.new.type),
        _times(status),
        Cell(status.state, _STATES[status.state]),
        ago(info.next_at, now) if status.state == "active" and info.next_at else "-",
        "-" if info.last is None else f"{_outcome(info.last)}, {ago(info.last.at, now)}",
    ]


def _tell(status: ScheduleStatus, fires: list[Fire], now: datetime, screen: Screen) -> Iterator[str]:
    info, new = status.info, status.info.new
    yield f"{screen.strong(new.name)}  {screen.paint(status.state, _STATES[status.state])}"
    yield ""
    facts = [
        ("type", one_line(new.type)),
        ("payload", block(new.payload.decode())[0]),
        ("times", _times(status)),
        ("catch-up", new.timing.catch_up),
        ("overlap", new.timing.overlap),
        ("jitter", duration(new.timing.jitter) if new.timing.jitter else "none"),
        ("made by", "the code" if info.origin == "code" else "an operator"),
    ]
    if info.paused and info.paused_at is not None:
        facts.append(("paused", f"by {one_line(info.paused_by or 'unknown')} {ago(info.paused_at, now)}"))
    if status.state == "active" and info.next_at is not None:
        facts.append(("next", f"{_clock(info.next_at)}  ({ago(info.next_at, now)})"))
    for name, value in facts:
        yield f"  {name:<12}{value}"
    for note in status.notes:
        yield screen.paint(f"! {as_typed(one_line(note))}", "yellow")
    if fires:
        yield ""
        yield screen.strong("Fire times")
        yield from (f"  {_clock(fire.at)}  {_fate(fire)}" for fire in fires)


def _times(status: ScheduleStatus) -> str:
    timing = status.info.new.timing
    return f"every {duration(timing.every)}" if timing.every else f"{timing.cron} {timing.tz}"


def _outcome(fire: Fire) -> str:
    return fire.job_state.value if fire.job_state is not None else fire.outcome.value


def _fate(fire: Fire) -> str:
    if fire.outcome is FireOutcome.SKIPPED:
        return "skipped: the run before had not ended"
    if fire.outcome is FireOutcome.MISSED:
        return f"missed, with all up to {_clock(fire.until)}" if fire.until else "missed"
    by = f", by {one_line(fire.made_by)}" if fire.made_by is not None else ""
    state = "its record is gone" if fire.job_state is None else fire.job_state.value
    return f"{fire.job_id}  {state}{by}"


def _clock(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


_COLUMNS = ("NAME", "TYPE", "TIMES", "STATE", "NEXT", "LAST")
_STATES = {"active": None, "paused": "yellow", "withdrawn": COLOURS["cancelled"], "orphaned": "yellow"}
_LAST_SECONDS = 5.0
# As often as a scheduler looks: a replaced store file gets what the code declares at the next look.
_PUBLISH_EVERY = timedelta(seconds=5)
