"""What happens now: a live screen, or a line for each event."""

from __future__ import annotations

import math
import os
import select
import shutil
import sys
import termios
import threading
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import click

from windlass.cli.commands import command, option, span
from windlass.cli.jobs import COLOURS, error_line
from windlass.cli.screen import Cell, Row, Screen, age, cut, marked, number, one_line, say, took
from windlass.cli.session import Session, answer, session
from windlass.clock import SystemClock
from windlass.job import Job, JobState, View
from windlass.ops import Ops, Overview, TypeStatus, WorkerHealth
from windlass.ops.document import encode, job_document, worker_document
from windlass.ops.search import STATES, read_filter
from windlass.ops.tail import Event, Tail
from windlass.ops.words import ago, count, start_worker
from windlass.size import size_text


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Gives what waits so many seconds for a key; an empty text: none was pressed."""
    if not sys.stdin.isatty():
        pause = threading.Event()

        def wait(seconds: float) -> str:
            pause.wait(seconds)
            return ""

        yield wait
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, 32).decode(errors="replace")[:1] if ready else ""

    try:
        tty.setcbreak(terminal)
        yield key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


_EVERY = 1.0
_RATED_SECONDS = 6.0
_ONE_BEAT_SECONDS = 2.2
_WIDTH, _HEIGHT = 80, 24
_NARROWEST = 40
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"


class Sight(NamedTuple):
    """One look at everything."""

    seen: Overview
    workers: Sequence[WorkerHealth]
    failures: Sequence[Job]


class Rates(NamedTuple):
    """What happened between two looks, a second; by worker."""

    done: float
    failed: float
    by_worker: Mapping[str, float]


def look(ops: Ops) -> Sight:
    """See how things stand."""
    return Sight(ops.status(), ops.workers(), ops.front.failures(limit=_HEIGHT))


def rates(before: Sight | None, after: Sight) -> Rates | None:
    """What the workers have done from one heartbeat to another; None if there was no earlier look."""
    if before is None:
        return None
    known = {each.info.id: each.info for each in before.workers}
    failed = 0.0
    by_worker: dict[str, float] = {}
    for each in after.workers:
        now, earlier = each.info, known.get(each.info.id)
        since = now.started_at if earlier is None else earlier.beat_at
        seconds = (now.beat_at - since).total_seconds() if now.beat_at and since else 0.0
        if seconds > 0:
            by_worker[now.id] = max(0, now.done - (earlier.done if earlier else 0)) / seconds
            failed += max(0, now.failed - (earlier.failed if earlier else 0)) / seconds
    return Rates(sum(by_worker.values()), failed, by_worker)


def frame(
    place: str, sight: Sight, pace: Rates | None, screen: Screen, *, height: int, note: str = ""
) -> list[str]:
    """The lines of one screen: types first, then workers, then what failed last; no more than fit."""
    width = screen.width or 10_000
    fit = Screen(width, screen.colours)
    lines = [*_head(place, sight.seen, pace, fit, note), ""]
    room = height - len(lines)
    # What failed last and who works have their share; types have the rest.
    failed = [_failure(job, sight.seen.now, fit) for job in sight.failures[: max(1, room // 5)]]
    workers = _workers(sight, pace, fit, max(1, room // 4))
    rest = room - len(workers) - len(failed) - 3
    lines += _types(sight.seen, fit, max(1, rest))
    lines += ["", *workers, "", *(failed or ["nothing has failed lately"])]
    return lines[:height]


def _table(screen: Screen, head: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """As many columns, from the left, as the screen is wide."""
    for columns in range(len(head), 1, -1):
        lines = screen.table(head[:columns], [row[:columns] for row in rows])
        plain = Screen(screen.width).table(head[:columns], [row[:columns] for row in rows])
        if screen.width is None or max(map(len, plain)) <= screen.width:
            return lines
    return [cut(str(row[0]), screen.width or _WIDTH) for row in rows]


def _head(place: str, seen: Overview, pace: Rates | None, screen: Screen, note: str) -> list[str]:
    fleet = seen.fleet
    silent = f", {fleet.silent} silent" if fleet.silent else ""
    who = f"{count(fleet.alive, 'worker')} alive{silent}, {fleet.busy} of {count(fleet.slots, 'slot')} busy"
    speed = "" if pace is None else f"   {pace.done:,.1f}/s done, {pace.failed:,.1f}/s failed"
    counts = [
        f"{name} {number(seen.counts[name])}"
        for name in (View.DUE, View.SCHEDULED, View.RETRYING, JobState.PROCESSING, View.STUCK, JobState.DEAD)
        if seen.counts[name] or name in _ALWAYS
    ]
    oldest = "" if seen.oldest_due is None else f"   oldest due {age(seen.oldest_due)}"
    width = screen.width or _WIDTH
    title = cut(f"windlass top  {place}  {seen.now:%H:%M:%S} UTC", width - len(note) - 2)
    return [
        screen.strong(title) + (f"  {note}" if note else ""),
        cut(who + speed, width),
        cut(", ".join(counts) + oldest, width),
        *(screen.paint(cut(f"! {one_line(each)}", width), "yellow") for each in seen.warnings[:1]),
    ]


def _types(seen: Overview, screen: Screen, room: int) -> list[str]:
    busy = sorted(seen.types, key=_urgency)
    shown = busy[: room - 1] if len(busy) > room else busy
    if not shown:
        return ["no types yet"]
    lines = _table(screen, _TYPE_HEAD, [_type(each) for each in shown])
    if len(shown) < len(busy):
        lines.append(f"and {count(len(busy) - len(shown), 'more type')}")
    return lines


def _urgency(each: TypeStatus) -> tuple[float, int, str]:
    """Whose jobs have waited for longest comes first."""
    waited = 0.0 if each.oldest_due is None else each.oldest_due.total_seconds()
    return -waited, -each.counts[JobState.PROCESSING] - each.counts[JobState.DEAD], each.name


def _type(each: TypeStatus) -> Row:
    later, due = sum(each.counts[view] for view in _LATER), each.counts[View.DUE]
    running, dead = each.counts[JobState.PROCESSING], marked(each.counts[JobState.DEAD], COLOURS["dead"])
    state = "paused" if each.paused else "breaker open" if each.breaker and each.breaker.open else ""
    if not state and due and not each.workers:
        state = "no worker"
    name = cut(one_line(each.name), _LONGEST_NAME)
    return [name, due, each.oldest_due, later, running, dead, each.workers, Cell(state, "yellow")]


def _workers(sight: Sight, pace: Rates | None, screen: Screen, room: int) -> list[str]:
    alive = [each for each in sight.workers if each.alive or each.info.state in _LIVING]
    if not alive:
        return [f"no worker is running: {start_worker(each.name for each in sight.seen.types)}"]
    shown = alive[: room - 1]
    lines = _table(screen, _WORKER_HEAD, [_worker(each, pace) for each in shown])
    if len(shown) < len(alive):
        lines[-1:] = [f"and {count(len(alive) - len(shown) + 1, 'more worker')}"]
    return lines


def _worker(each: WorkerHealth, pace: Rates | None) -> Row:
    info = each.info
    name = one_line(f"{info.host}:{info.pid}")[:_LONGEST_NAME]
    state = info.state if each.alive else Cell("silent", "red")
    busy, beat = f"{info.busy}/{info.slots}", f"{age(each.silent_for)} ago"
    rate = None if pace is None else f"{pace.by_worker.get(info.id, 0.0):,.1f}"
    memory = None if info.resident_bytes is None else size_text(info.resident_bytes)
    return [name, state, busy, info.done, rate, info.failed, beat, memory]


def _failure(job: Job, now: datetime, screen: Screen) -> str:
    when = job.history[-1].finished_at if job.history else job.updated_at
    state = "dead" if job.state is JobState.DEAD else "retrying"
    words = f"{ago(when, now):>9}  {state:<8}  {one_line(job.type)}  {one_line(error_line(job.error))}"
    return screen.paint(cut(words, screen.width or _WIDTH), COLOURS[state])


@command("""
    windlass top
    windlass top --once
    windlass top --every 5
""")
@option("--once", "One frame on standard output, after two seconds in which rates are seen.")
@option(
    "--every", "Seconds between looks.", type=click.FloatRange(0.2, 3600), default=_EVERY, show_default=True
)
def top(once: bool, every: float) -> None:
    """A live screen: types, workers, rates, oldest ages, recent failures.

    Keys: q leaves, p holds it still and lets it go on. Without a terminal it shows one frame.
    """
    here = session()
    ops = here.ops()
    if once or here.json or not sys.stdout.isatty():
        _show_once(here, ops)
        return
    try:
        _live(here, ops, every)
    except KeyboardInterrupt:
        return


def _show_once(here: Session, ops: Ops) -> None:
    if here.json:
        sight = look(ops)
        workers = [worker_document(each) for each in sight.workers]
        failures = [job_document(job, sight.seen.now) for job in sight.failures]
        answer({"status": sight.seen, "workers": workers, "failures": failures}, ())
        return
    with keys() as wait:
        before = look(ops)
        wait(_ONE_BEAT_SECONDS)
    after = look(ops)
    click.echo("\n".join(_drawn(here, after, rates(before, after))))


def _live(here: Session, ops: Ops, every: float) -> None:
    # The looks of the last seconds, so that rates do not jump with every beat.
    looks: deque[Sight] = deque(maxlen=max(2, round(_RATED_SECONDS / every) + 1))
    held = False
    click.echo(_OTHER_SCREEN + _HIDE_CURSOR, nl=False)
    try:
        with keys() as wait:
            looks.append(look(ops))
            while True:
                pace = rates(looks[0], looks[-1]) if len(looks) > 1 else None
                note = "p: go on" if held else "q: leave  p: hold"
                lines = _drawn(here, looks[-1], pace, note=note, least=_NARROWEST)
                drawn = "".join(line + _TO_LINE_END + "\r\n" for line in lines)
                click.echo(_HOME + drawn + _TO_SCREEN_END, nl=False)
                pressed = wait(every)
                if pressed in {"q", "Q", "\x04"}:
                    return
                held = not held if pressed in {"p", "P", " "} else held
                # A key is answered at once; a look is not taken more often for it.
                if not held and not pressed:
                    looks.append(look(ops))
    finally:
        click.echo(_SHOW_CURSOR + _FIRST_SCREEN, nl=False)


def _drawn(here: Session, sight: Sight, pace: Rates | None, *, note: str = "", least: int = 0) -> list[str]:
    window = shutil.get_terminal_size((_WIDTH, _HEIGHT))
    screen = Screen(max(least, window.columns), here.screen.colours)
    return frame(here.place, sight, pace, screen, height=window.lines - 1, note=note)


_LONGEST_NAME = 28
_LIVING = ("running", "draining")
_LATER = (View.SCHEDULED, View.RETRYING, View.WAITING, View.UNREADABLE)
_ALWAYS = {View.DUE, JobState.PROCESSING, JobState.DEAD}
_TYPE_HEAD = ("TYPE", "DUE", "OLDEST", "LATER", "RUNNING", "DEAD", "WORKERS", "")
_WORKER_HEAD = ("WORKER", "STATE", "BUSY", "DONE", "DONE/S", "FAILED", "BEAT", "MEMORY")


# --- one event after the other ------------------------------------------------------------------


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
    following = Tail(here.ops(), where, **given)
    clock, pause = SystemClock(), threading.Event()
    if lasting is None:
        say(f"follows {here.place}; Ctrl-C ends it")
    until = math.inf if lasting is None else clock.monotonic() + lasting.total_seconds()
    try:
        while clock.monotonic() < until:
            pause.wait(min(_EVERY, max(0.0, until - clock.monotonic())))
            for event in following.look():
                click.echo(_as_json(event) if here.json else _as_line(here, event))
            sys.stdout.flush()
            if following.flooded and not here.json:
                click.echo("(more happens than is shown)", err=True)
    except KeyboardInterrupt:
        return


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


COMMANDS = (top, tail)
