"""How does one follow what happens, line by line?"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

import click

from windlass import connect
from windlass.cli.commands import Command
from windlass.cli.options import span
from windlass.cli.screen import cut, one_line, took
from windlass.cli.session import Session, session
from windlass.cli.story import COLOURS, error_line
from windlass.clock import SystemClock
from windlass.ops.document import encode, job_document
from windlass.ops.filters import STATES, read_filter
from windlass.ops.tail import Event, Tail, held_now, listed_now

_EVERY = 1.0


@click.command(
    cls=Command,
    examples="""
        windlass tail
        windlass tail --failures
        windlass tail --type send_email --state completed --state dead
        windlass tail --tenant acme --json
        windlass tail --db https://jobs.example
    """,
)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Jobs of this type; may be repeated.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    metavar="STATE",
    help="Only what brings a job into this state; may be repeated.",
)
@click.option("--tenant", metavar="NAME", help="Jobs of this tenant.")
@click.option("--failures", is_flag=True, help="Only attempts that fail.")
@click.option("--for", "lasting", type=span, metavar="DURATION", help="So long; else until Ctrl-C.")
def tail(
    types: tuple[str, ...],
    states: tuple[str, ...],
    tenant: str | None,
    failures: bool,
    lasting: timedelta | None,
) -> None:
    """What happens to jobs, as it happens: enqueued, started, completed, failed, dead, changed by people.

    It looks once a second. Where more happens than a screen can show, it shows a part of it and says so;
    failures are shown before all else.
    """
    here = session()
    where = read_filter(types=types, tenant=tenant)
    running = listed_now if connect.is_http(here.config.database_url) else held_now
    following = Tail(here.ops(), where, states=states, failures=failures, running=running)
    clock, pause = SystemClock(), threading.Event()
    if lasting is None:
        click.echo(f"windlass: follows {here.place}; Ctrl-C ends it", err=True)
    end = None if lasting is None else clock.monotonic() + lasting.total_seconds()
    try:
        while end is None or clock.monotonic() < end:
            pause.wait(_EVERY if end is None else min(_EVERY, max(0.0, end - clock.monotonic())))
            _show(here, following)
    except KeyboardInterrupt:
        return


def _show(here: Session, following: Tail) -> None:
    for event in following.look():
        click.echo(_as_json(event) if here.json else _as_line(here, event))
    sys.stdout.flush()
    if following.flooded and not here.json:
        click.echo("(more happens than is shown)", err=True)


def _as_json(event: Event) -> str:
    document = {
        "at": event.at,
        "what": event.what,
        "attempt": event.attempt,
        "seconds": event.ran,
        "by": event.by,
        "error": event.error,
        "job": job_document(event.job, event.at),
    }
    # On one line, as programs read it.
    return " ".join(encode(document).split("\n"))


def _as_line(here: Session, event: Event) -> str:
    job = event.job
    parts = [
        f"attempt {event.attempt}/{job.max_attempts}" if event.attempt else "",
        f"in {took(event.ran)}" if event.ran is not None else "",
        f"by {one_line(event.by)}" if event.by else "",
        one_line(job.key or ""),
        f"tenant {one_line(job.tenant)}" if job.tenant else "",
        one_line(error_line(event.error)),
    ]
    told = "  ".join(part for part in parts if part)
    line = f"{event.at:%H:%M:%S}  {event.what:<10}  {one_line(job.type):<20}  {job.id}  {told}".rstrip()
    shown = line if here.screen.width is None else cut(line, here.screen.width)
    return here.screen.paint(shown, COLOURS.get(event.what))


COMMANDS = (tail,)
