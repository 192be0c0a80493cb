"""Is all well? What is looked at, green or red, and what mends it."""

from __future__ import annotations

import click

from windlass import connect
from windlass.cli.called import as_typed
from windlass.cli.commands import Command
from windlass.cli.screen import one_line
from windlass.cli.session import Session, session
from windlass.clock import SystemClock
from windlass.errors import Refused, StoreError, StoreMismatch
from windlass.ops.doctor import Diagnosis, Level, checkup, diagnoses
from windlass.ops.document import encode
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
    # A damaged file has another remedy, which its message names.
    fix = "windlass db migrate" if "db migrate" in str(error) else None
    return Diagnosis(name="schema", level=Level.BAD, sentence=str(error), mend=fix)


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
