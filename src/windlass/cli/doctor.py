"""Is everything well, and what is not."""

from __future__ import annotations

from collections.abc import Iterator

import click

from windlass import connect
from windlass.cli.commands import Command
from windlass.cli.screen import Cell, Screen, age, as_typed, number, one_line
from windlass.cli.session import Session, session
from windlass.clock import SystemClock
from windlass.errors import Refused, StoreError, StoreMismatch
from windlass.ops.doctor import Diagnosis, Level, checkup, diagnoses
from windlass.ops.document import encode
from windlass.ops.overview import Band
from windlass.ops.signals import Balance, Checked, Signals, Tick, Untaken
from windlass.ops.verdict import in_a_line
from windlass.ops.words import count
from windlass.url import without_password

_MARKS = {Level.OK: ("ok", "green"), Level.WARNING: ("!", "yellow"), Level.BAD: ("BAD", "red")}
_NO_STORE = 3


@click.command(
    cls=Command,
    examples="""
        windlass doctor
        windlass doctor --json
        windlass doctor --quiet
    """,
)
@click.option("--quiet", "-q", is_flag=True, help="Only what is not well.")
def doctor(quiet: bool) -> None:
    """Look at everything: store, clocks, disk, workers, upkeep, leases, what waits, what was verified.

    What is not well comes with the command that mends it. Exit code 0: nothing is bad (warnings aside); 1:
    something is; 3: the store cannot be reached.
    """
    here = session()
    found, code = _examined(here)
    if here.json:
        click.echo(encode({"healthy": code == 0, "diagnoses": found}))
    else:
        for each in found:
            if not quiet or each.level is not Level.OK:
                _tell(here, each)
        _conclude(here, found)
    if code:
        click.get_current_context().exit(code)


def _examined(here: Session) -> tuple[list[Diagnosis], int]:
    url = here.config.database_url
    shown = without_password(url)
    if connect.is_http(url):
        raise Refused(f"doctor needs the store itself, and {shown} is a server: run it where the server runs")
    found = [Diagnosis(name="configuration", level=Level.OK, sentence=f"the store is {here.place}")]
    try:
        ops = here.ops()
        found += diagnoses(checkup(ops, SystemClock()))
    except StoreMismatch as error:
        return [*found, _unusable(error)], 1
    except StoreError as error:
        return [*found, Diagnosis(name="store", level=Level.BAD, sentence=str(error))], _NO_STORE
    return found, int(any(each.level is Level.BAD for each in found))


def _unusable(error: StoreMismatch) -> Diagnosis:
    return Diagnosis(name="schema", level=Level.BAD, sentence=str(error), mend="windlass db migrate")


def _tell(here: Session, each: Diagnosis) -> None:
    mark, colour = _MARKS[each.level]
    click.echo(f"{here.screen.paint(f'{mark:<4}', colour)}{each.name:<14}{as_typed(one_line(each.sentence))}")
    if each.mend is not None:
        click.echo(f"{'':<18}to fix it: {as_typed(each.mend)}")


def _conclude(here: Session, found: list[Diagnosis]) -> None:
    bad = sum(each.level is Level.BAD for each in found)
    warnings = sum(each.level is Level.WARNING for each in found)
    also = f" {count(warnings, 'warning')}" if warnings else ""
    if bad:
        click.echo(here.screen.paint(f"Not well: {bad} bad,{also or ' no warnings'}.", "red"))
    elif warnings:
        click.echo(here.screen.paint(f"Well, with{also}.", "yellow"))
    else:
        click.echo(here.screen.paint("All is well.", "green"))


COMMANDS = (doctor,)


Row = list[Cell | str | int]


@click.command(
    "signals",
    cls=Command,
    examples="""
        windlass signals
        windlass signals --json
    """,
)
def show_signals() -> None:
    """What a depth does not tell: what starves, is not taken, was done twice, had no effect, has stopped.

    Waiting jobs by priority; what went in and came out in the last hour; what came of verification samples
    (`@queue.job(verify=check)`); and when upkeep last succeeded.
    """
    here = session()
    found = here.ops().signals()
    click.echo(encode(found) if here.json else "\n".join(_told(found, here.screen)))


SIGNALS = (show_signals,)


def _told(found: Signals, screen: Screen) -> Iterator[str]:
    yield from _section(screen, "Waiting, by priority", _BANDS, [_band(each) for each in found.bands])
    yield from _section(
        screen, "Due for long and not taken", _UNTAKEN, [_untaken(each) for each in found.untaken]
    )
    title = f"Within the last {age(found.window)}"
    yield from _section(screen, title, _BALANCES, [_balance(each) for each in found.balances])
    yield from _section(screen, "Verified", _CHECKED, [_checked(each) for each in found.checked])
    yield from _section(screen, "Last succeeded", _TICKS, [_tick(each) for each in found.ticks])
    for each in found.findings:
        yield screen.paint(f"! {as_typed(one_line(in_a_line(each, found.now)))}", "yellow")


def _section(screen: Screen, title: str, head: tuple[str, ...], rows: list[Row]) -> Iterator[str]:
    if rows:
        yield screen.strong(title)
        yield from screen.table(head, rows)
        yield ""


_BANDS = ("PRI", "DUE", "OLDEST", "")
_UNTAKEN = ("TYPE", "DUE", "OLDEST", "WHY")
_BALANCES = ("TYPE", "ENQUEUED", "STARTED", "COMPLETED", "FAILED", "DEAD", "REAPED", "TOO LATE")
_CHECKED = ("TYPE", "MATCHED", "MISMATCHED", "UNKNOWN", "WAITING", "LAST MISMATCH")
_TICKS = ("WHAT", "AGO", "WITHIN", "")


def _band(each: Band) -> Row:
    return [each.priority, each.due, age(each.oldest), Cell("starved", "red") if each.starved else ""]


def _untaken(each: Untaken) -> Row:
    return [one_line(each.type), each.count, age(each.oldest), each.why.replace("_", " ")]


def _balance(each: Balance) -> Row:
    went = [each.enqueued, each.started, each.completed, each.failed, each.dead, each.reaped, each.late]
    return [one_line(each.type), *went]


def _checked(each: Checked) -> Row:
    wrong = Cell(number(each.mismatched), "red" if each.mismatched else None)
    last = each.last_mismatch_job or ""
    return [one_line(each.type), each.matched, wrong, each.unknown, each.waiting, last]


def _tick(each: Tick) -> Row:
    ago = "never" if each.age is None else age(each.age)
    return [each.name, ago, age(each.within), Cell("late", "red") if each.late else ""]
