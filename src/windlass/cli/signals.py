"""How do the signals that do not lie look from a terminal?"""

from __future__ import annotations

from collections.abc import Iterator

import click

from windlass.cli.called import as_typed
from windlass.cli.commands import Command
from windlass.cli.screen import Cell, Screen, age, number, one_line
from windlass.cli.session import session
from windlass.ops.document import encode
from windlass.ops.finding import in_a_line
from windlass.ops.overview import Band
from windlass.ops.signals import Balance, Checked, Signals, Tick, Untaken

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


COMMANDS = (show_signals,)


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
