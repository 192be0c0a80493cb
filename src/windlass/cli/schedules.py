"""How is work that comes by itself seen, made and held from a terminal?"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any

import click

from windlass.cli.actions import commands
from windlass.cli.commands import command, group, option, why_option
from windlass.cli.jobs import COLOURS
from windlass.cli.logs import log_to_stderr
from windlass.cli.process import leave, signals
from windlass.cli.screen import Cell, Row, Screen, as_typed, block, duration, one_line, say
from windlass.cli.session import answer, facts, session, table
from windlass.clock import SystemClock
from windlass.loop import Loop
from windlass.ops import ScheduleStatus, ScheduleWish
from windlass.ops.schedules import ScheduleHistory
from windlass.ops.words import ago, clock
from windlass.payload import parse
from windlass.registry import SHELL
from windlass.schedule import CATCH_UPS, OVERLAPS, TimingOptions
from windlass.store.schedules import Fire, FireOutcome
from windlass.upkeep.maintenance import Ticks
from windlass.upkeep.scheduler import Declarer, Scheduler

log = logging.getLogger("windlass.scheduler")


@group("""
    windlass schedule list
    windlass schedule add backup --command 'pg_dump shop > shop.sql' --cron '0 3 * * *' --tz Europe/Berlin
    windlass schedule pause backup
    windlass schedule run backup
""")
def schedule() -> None:
    """Schedules: jobs that come by themselves, by a cron expression or every so often.

    They are declared in code, `@queue.job(cron="0 3 * * *")`, or made here. Every worker fires them.
    """


@schedule.subcommand("""
    windlass schedule list
    windlass schedule list --json
""")
def list_command() -> None:
    """Every schedule: its times, what comes next, what became of the last one."""
    ops = session().ops()
    found, now = ops.schedules.list(), ops.now()
    answer({"schedules": found}, _listed(found, now))


def _listed(found: Sequence[ScheduleStatus], now: datetime) -> Iterator[str]:
    empty = 'No schedules yet: @queue.job(cron="0 3 * * *") in code, or windlass schedule add.'
    yield from table(
        ("NAME", "TYPE", "TIMES", "STATE", "NEXT", "LAST"), [_row(each, now) for each in found], empty
    )
    for each in found:
        for note in each.notes:
            yield session().screen.paint(f"! {each.name}: {one_line(note)}", "yellow")


@schedule.subcommand("""
    windlass schedule show backup
    windlass schedule show backup --limit 100 --json
""")
@click.argument("name")
@option("--limit N", "How many fire times, up to 100.", default=20, show_default=True)
def show(name: str, limit: int) -> None:
    """One schedule, and what became of its last fire times."""
    ops = session().ops()
    status = ops.schedules.show(name, fires=limit)
    answer(status, _tell(status, ops.now(), session().screen))


@schedule.subcommand("""
    windlass schedule add nightly report.build '{"days": 1}' --cron '0 3 * * *' --tz Europe/Berlin
    windlass schedule add sync sync_crm --every 15m --jitter 30s --app myapp:queue
    windlass schedule add backup --command 'pg_dump shop > shop.sql' --cron @daily --catch-up last
    windlass schedule add nightly report.build --cron '0 4 * * *' --replace
""")
@click.argument("name")
@click.argument("job_type", metavar="[TYPE]", required=False)
@click.argument("payload", required=False)
@option("--command LINE", "Run this shell command, in place of a TYPE.")
@option("--cron EXPR", "Minute, hour, day, month, day of week; or @daily and the like.")
@option("--tz ZONE", "The zone of the cron expression, such as Europe/Berlin.  [UTC]")
@option("--every DURATION", "Every so often: 30s, 15m, 1h.")
@option(
    "--catch-up",
    "Fire times that passed while nobody was there: fire none, the last one, or all.  [last]",
    type=click.Choice(CATCH_UPS),
)
@option("--overlap", "If the run before has not ended: skip, or queue.  [skip]", type=click.Choice(OVERLAPS))
@option("--jitter DURATION", "Run up to so much later, each time by another amount.")
@option("--priority N", "Of its jobs; else what holds for the type.", type=int)
@option("--max-attempts N", "Of its jobs; else what holds for the type.", type=int)
@option("--tenant NAME", "Of its jobs.", default="")
@option("--replace", "Put it in the place of one that has this name.")
@why_option
def add(name: str, job_type: str | None, payload: str | None, command: str | None, **given: Any) -> None:
    """Make a schedule, or with --replace change one.

    One that stands in the place of the code's holds until it is removed.
    """
    if (job_type is None) == (command is None):
        raise click.UsageError("say either a TYPE or --command")
    content = {"command": command} if job_type is None else {} if payload is None else parse(payload)
    ops = session().queue_ops()
    if ops.remote is None:
        # A server has the catalogue of its own application.
        session().queue.publish()
    replace, why = given.pop("replace"), given.pop("why")
    timing = {key: given.pop(key) for key in TimingOptions.__annotations__}
    said: Any = {key: value for key, value in timing.items() if value is not None}
    wish = ScheduleWish(name=name, type=job_type or SHELL, payload=content, timing=said, **given)
    status = ops.schedules.add(wish, replace=replace, why=why)
    _lines(status, "added")


@command("""
    windlass scheduler
    windlass scheduler myapp:queue
""")
@click.argument("app", required=False, metavar="[APP]")
@option("--log-json", "Log in JSON, a line per event.")
def scheduler(app: str | None, log_json: bool) -> None:
    """Fire schedules, and run no jobs.

    Every worker does so, too, and any number may: this is for times at which no worker runs. With an APP the
    schedules that its code declares are entered, too.
    """
    signals.obey()
    here = session()
    if app is not None:
        here.flags["app"] = app
    log_to_stderr(as_json=log_json or here.json, verbose=False)
    queue = here.queue
    # Who it is that fires schedules, in the store's records.
    name = f"scheduler-{socket.gethostname()}-{os.getpid()}"
    ticks = Ticks(queue.store, lambda: name, clock=SystemClock())
    loops = [Scheduler(queue.store, queue.wakeup, ticks.note).loop, ticks.loop]
    if here.config.app:
        declarer = Declarer(queue.store, queue.registry, queue.registry.names())

        def publish() -> None:
            queue.publish()
            declarer.tell()

        publish()
        loops.append(Loop("publish", publish, every=_PUBLISH_EVERY, first=_PUBLISH_EVERY))
    alone = _Alone(loops)
    signals.serve(alone)
    here.works = True
    alone.run()
    leave(here)


for _command in commands(
    "schedules/",
    pause=lambda _, status, __: _lines(status, "paused"),
    resume=lambda _, status, __: _lines(status, "resumed"),
    run=lambda _, job_id, given: click.echo(f"{job_id}  enqueued by {given['name']}"),
):
    schedule.add_command(_command)
COMMANDS = (schedule, scheduler)


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


def _lines(status: ScheduleStatus, what: str) -> None:
    when = f", next {clock(status.next_at)}" if status.next_at else ""
    answer(status, f"{status.name}: {what}{when}")
    for note in () if session().json else status.notes:
        say(as_typed(one_line(note)))


def _row(each: ScheduleStatus, now: datetime) -> Row:
    state, soon = Cell(each.state, _STATES[each.state]), ago(each.next_at, now) if each.next_at else "-"
    last = each.last and f"{each.last.job_state or each.last.outcome}, {ago(each.last.at, now)}"
    return [each.name, each.type, _times(each), state, soon, last or "-"]


def _tell(found: ScheduleHistory, now: datetime, screen: Screen) -> Iterator[str]:
    yield f"{screen.strong(found.name)}  {screen.paint(found.state, _STATES[found.state])}"
    yield ""
    shown = [
        ("type", one_line(found.type)),
        ("payload", block(bytes(found.payload).decode())[0]),
        ("times", _times(found)),
        ("catch-up", found.catch_up),
        ("overlap", found.overlap),
        ("jitter", duration(found.jitter) if found.jitter else "none"),
        ("made by", "the code" if found.origin == "code" else "an operator"),
    ]
    if found.state == "paused" and found.paused_at is not None:
        shown.append(("paused", f"by {one_line(found.paused_by or 'unknown')} {ago(found.paused_at, now)}"))
    if found.next_at is not None:
        shown.append(("next", f"{clock(found.next_at)}  ({ago(found.next_at, now)})"))
    yield from facts(shown)
    for note in found.notes:
        yield screen.paint(f"! {as_typed(one_line(note))}", "yellow")
    if found.history:
        yield ""
        yield screen.strong("Fire times")
        yield from (f"  {clock(fire.at)}  {_fate(fire)}" for fire in found.history)


def _times(status: ScheduleStatus) -> str:
    return f"every {duration(status.every)}" if status.every else f"{status.cron} {status.tz}"


def _fate(fire: Fire) -> str:
    if fire.outcome is FireOutcome.SKIPPED:
        return "skipped: the run before had not ended"
    if fire.outcome is FireOutcome.MISSED:
        return f"missed, with all up to {clock(fire.until)}" if fire.until else "missed"
    by = f", by {one_line(fire.made_by)}" if fire.made_by is not None else ""
    state = "its record is gone" if fire.job_state is None else fire.job_state.value
    return f"{fire.job_id}  {state}{by}"


_STATES = {"active": None, "paused": "yellow", "withdrawn": COLOURS["cancelled"], "orphaned": "yellow"}
_LAST_SECONDS = 5.0
# As often as a scheduler looks: a replaced store file gets what the code declares at the next look.
_PUBLISH_EVERY = timedelta(seconds=5)
