"""Is everything well, and what is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from windlass import connect
from windlass.cli.commands import command, option
from windlass.cli.screen import Cell, Row, age, as_typed, marked, one_line
from windlass.cli.session import Session, answer, end, session, table
from windlass.clock import SystemClock
from windlass.errors import Refused, StoreError, StoreMismatch
from windlass.ops.doctor import Diagnosis, Level, checkup, diagnoses
from windlass.ops.signals import Signals
from windlass.ops.verdict import in_a_line
from windlass.ops.words import count
from windlass.url import without_password

_MARKS = {Level.OK: ("ok", "green"), Level.WARNING: ("!", "yellow"), Level.BAD: ("BAD", "red")}
_NO_STORE = 3


@command("""
    windlass doctor
    windlass doctor --json
    windlass doctor --quiet
""")
@option("--quiet -q", "Only what is not well.")
def doctor(quiet: bool) -> None:
    """Look at everything: store, clocks, disk, workers, upkeep, leases, what waits, what was verified.

    What is not well comes with the command that mends it. Exit code 0: nothing is bad (warnings aside); 1:
    something is; 3: the store cannot be reached.
    """
    here = session()
    found, code = _examined(here)
    answer({"healthy": code == 0, "diagnoses": found}, _diagnoses(here, found, quiet=quiet))
    end(code)


def _examined(here: Session) -> tuple[list[Diagnosis], int]:
    url = here.config.database_url
    if connect.is_http(url):
        shown = without_password(url)
        raise Refused(f"doctor needs the store itself, and {shown} is a server: run it where the server runs")
    found = [Diagnosis("configuration", Level.OK, f"the store is {here.place}")]
    try:
        found += diagnoses(checkup(here.ops(), SystemClock()))
    except StoreMismatch as error:
        # A damaged file has another remedy, which its message names.
        fix = "windlass db migrate" if "db migrate" in str(error) else None
        return [*found, Diagnosis("schema", Level.BAD, str(error), fix)], 1
    except StoreError as error:
        return [*found, Diagnosis("store", Level.BAD, str(error))], _NO_STORE
    return found, int(any(each.level is Level.BAD for each in found))


def _diagnoses(here: Session, found: list[Diagnosis], *, quiet: bool) -> Iterator[str]:
    paint = here.screen.paint
    for each in found:
        if quiet and each.level is Level.OK:
            continue
        mark, colour = _MARKS[each.level]
        yield f"{paint(f'{mark:<4}', colour)}{each.name:<14}{as_typed(one_line(each.sentence))}"
        if each.mend is not None:
            yield f"{'':<18}to fix it: {as_typed(each.mend)}"
    bad = sum(each.level is Level.BAD for each in found)
    warnings = sum(each.level is Level.WARNING for each in found)
    also = f" {count(warnings, 'warning')}" if warnings else ""
    if bad:
        yield paint(f"Not well: {bad} bad,{also or ' no warnings'}.", "red")
    else:
        yield paint(f"Well, with{also}.", "yellow") if warnings else paint("All is well.", "green")


@command("""
    windlass signals
    windlass signals --json
""")
def signals_command() -> None:
    """What a depth does not tell: what starves, is not taken, was done twice, had no effect, has stopped.

    Waiting jobs by priority; what went in and came out in the last hour; what came of verification samples
    (`@queue.job(verify=check)`); and when upkeep last succeeded.
    """
    found = session().ops().signals()
    answer(found, _lines(found))


COMMANDS = (doctor, signals_command)


def _lines(found: Signals) -> Iterator[str]:
    late, starved = Cell("late", "red"), Cell("starved", "red")
    bands = [(each.priority, each.due, each.oldest, starved if each.starved else "") for each in found.bands]
    yield from _section("Waiting, by priority", ("PRI", "DUE", "OLDEST", ""), bands)
    untaken = [(each.type, each.count, each.oldest, each.why.replace("_", " ")) for each in found.untaken]
    yield from _section("Due for long and not taken", ("TYPE", "DUE", "OLDEST", "WHY"), untaken)
    head = [*(name.upper() for name in _WENT[:-1]), "TOO LATE"]
    went = map(attrgetter(*_WENT), found.balances)
    yield from _section(f"Within the last {age(found.window)}", head, went)
    checked = [
        (each.type, each.matched, marked(each.mismatched), each.unknown, each.waiting, each.last_mismatch_job)
        for each in found.checked
    ]
    head = ["TYPE", "MATCHED", "MISMATCHED", "UNKNOWN", "WAITING", "LAST MISMATCH"]
    yield from _section("Verified", head, checked)
    ticks = [
        (each.name, "never" if each.age is None else each.age, each.within, late if each.late else "")
        for each in found.ticks
    ]
    yield from _section("Last succeeded", ("WHAT", "AGO", "WITHIN", ""), ticks)
    for finding in found.findings:
        text = as_typed(one_line(in_a_line(finding, found.now)))
        yield session().screen.paint(f"! {text}", "yellow")


_WENT = ("type", "enqueued", "started", "completed", "failed", "dead", "reaped", "late")


def _section(title: str, head: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    if shown := list(rows):
        yield session().screen.strong(title)
        yield from table(head, shown)
        yield ""
