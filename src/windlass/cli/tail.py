"""Follow one job, or everything that happens."""

from __future__ import annotations

import math
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import click

from windlass import connect
from windlass.cli.commands import command, option, span
from windlass.cli.jobs import COLOURS, error_line
from windlass.cli.screen import ago, cut, one_line, took
from windlass.cli.session import Session, answer, end, session
from windlass.clock import SystemClock
from windlass.errors import Refused, WaitTimeout
from windlass.job import Job, JobState
from windlass.ops import Ops
from windlass.ops.document import encode, job_document, plain
from windlass.ops.explain import START_SHELL
from windlass.ops.search import STATES, read_filter
from windlass.ops.tail import Event, Tail, held_now, listed_now
from windlass.ops.words import count, start_worker
from windlass.queue import JobHandle
from windlass.registry import SHELL


def follow(handle: JobHandle) -> None:
    """Tell each failed attempt as it happens; at the end show the output and exit 0 or 1."""
    here = session()
    ops = here.queue_ops()
    # A key that may only produce is not told who works.
    with suppress(Refused):
        if not any(worker.alive for worker in ops.workers()):
            start = start_worker([handle.get().type])
            _say(f"no worker is running: start one with {start}, in another terminal")
    tell_of_shell(ops, handle.get())
    job = _to_the_end(handle, ops)
    output = job.history[-1].output if job.history else None
    if here.json:
        answer({**plain(job_document(job, ops.now())), "created": handle.created}, ())
    elif output is not None:
        # What the last attempt said, each stream where it belongs.
        click.echo(output.stdout, nl=False)
        click.echo(output.stderr, nl=False, err=True)
    if job.state is not JobState.COMPLETED:
        attempts = count(job.attempts, "attempt")
        _say(f"{job.id} is {job.state} after {attempts}; windlass show {job.id} tells all")
        end(1)


def tell_of_shell(ops: Ops, job: Job) -> None:
    """Say so if no running worker takes a shell job: workers run them where they are told to."""
    if job.type != SHELL or job.state is not JobState.PENDING:
        return
    with suppress(Refused):
        found = ops.explain(job.id)
        if any(START_SHELL in text for text in (found.sentence, *found.also)):
            _say(f"no running worker takes this shell job: {START_SHELL}")


def _to_the_end(handle: JobHandle, ops: Ops) -> Job:
    reported = 0
    while True:
        try:
            job = handle.wait(timeout=_BETWEEN_LOOKS)
        except WaitTimeout:
            job = handle.get()
        for attempt in job.history:
            if attempt.claim > reported and attempt.outcome != JobState.COMPLETED:
                what = one_line(error_line(attempt.error)) or attempt.outcome
                waits = attempt is job.history[-1] and job.state is JobState.PENDING
                again = f"; next attempt {ago(job.run_at, ops.now())}" if waits else ""
                _say(f"attempt {attempt.number} of {job.max_attempts}: {what}{again}")
                reported = attempt.claim
        if job.ended:
            return job


def _say(message: str) -> None:
    click.echo(f"windlass: {message}", err=True)


_BETWEEN_LOOKS = 0.5


_EVERY = 1.0


@command("""
    windlass tail
    windlass tail --failures
    windlass tail --type send_email --state completed --state dead
    windlass tail --tenant acme --json
    windlass tail --db https://jobs.example
""")
@option("--type TYPE", "Jobs of this type; may be repeated.", name="types", multiple=True)
@option(
    "--state STATE",
    "Only what brings a job into this state; may be repeated.",
    name="states",
    multiple=True,
    type=click.Choice(STATES),
)
@option("--tenant NAME", "Jobs of this tenant.")
@option("--failures", "Only attempts that fail.")
@option("--for DURATION", "So long; else until Ctrl-C.", name="lasting", type=span)
def tail(types: tuple[str, ...], tenant: str | None, lasting: timedelta | None, **given: Any) -> None:
    """What happens to jobs, as it happens: enqueued, started, completed, failed, dead, changed by people.

    It looks once a second. Where more happens than a screen can show, it shows a part of it and says so;
    failures are shown before all else.
    """
    here = session()
    where = read_filter(types=types, tenant=tenant)
    running = listed_now if connect.is_http(here.config.database_url) else held_now
    following = Tail(here.ops(), where, running=running, **given)
    clock, pause = SystemClock(), threading.Event()
    if lasting is None:
        click.echo(f"windlass: follows {here.place}; Ctrl-C ends it", err=True)
    until = math.inf if lasting is None else clock.monotonic() + lasting.total_seconds()
    try:
        while clock.monotonic() < until:
            pause.wait(min(_EVERY, max(0.0, until - clock.monotonic())))
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
    text = "  ".join(part for part in parts if part)
    line = f"{event.at:%H:%M:%S}  {event.what:<10}  {one_line(job.type):<20}  {job.id}  {text}".rstrip()
    shown = line if here.screen.width is None else cut(line, here.screen.width)
    return here.screen.paint(shown, COLOURS.get(event.what))


COMMANDS = (tail,)
