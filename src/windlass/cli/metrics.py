"""What happened, what is wrong, and how many workers it takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import resources
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import msgspec

from windlass import connect
from windlass.bench.run import Figure, measure, steps
from windlass.cli.commands import command, option, rate, span
from windlass.cli.screen import Cell, Row, age, as_typed, duration, marked, number, one_line, progress, took
from windlass.cli.session import Session, answer, end, session, table
from windlass.clock import SystemClock
from windlass.errors import Refused, StoreError, StoreMismatch, must_be
from windlass.observe.firing import rules as rule_file
from windlass.ops import Ops
from windlass.ops.doctor import Diagnosis, Level, checkup, diagnoses
from windlass.ops.observing import AlertDocument, AlertsDocument, MetricsReport, ReleaseTotals, Scale
from windlass.ops.plan import Load, Plan, measured, plan
from windlass.ops.signals import Signals
from windlass.ops.verdict import in_a_line
from windlass.ops.words import ago, count
from windlass.size import parse_size
from windlass.smoke import Smoked, smoke, with_samples
from windlass.url import without_password

# Whoever looks wants what is there at this moment, and waits for it.
_NOW = timedelta(0)


@command("""
    windlass metrics
    windlass metrics --prometheus
    windlass metrics --json
""")
@option("--prometheus", "As Prometheus reads it, without a server.")
def metrics(prometheus: bool) -> None:
    """Event counts and average durations by type and release, what each service sent, and the last events."""
    if prometheus:
        # Left as it is found: how long nobody has looked is one of the things that it tells.
        click.echo(session().ops().scrape(), nl=False)
        return
    report = _looked().metrics()
    answer(report, _report(report))


def _looked() -> Ops:
    """The verbs on a store that was counted just now: there may be no worker or server that does so."""
    ops = session().ops()
    if ops.remote is not None:
        # A server counts by itself.
        return ops
    # What cannot be written to is shown as it was last counted.
    with suppress(StoreError):
        ops.store.take_sample(_NOW)
    return ops


def _report(report: MetricsReport) -> Iterator[str]:
    counted = ("type", "enqueued", "started", "completed", "failed")
    types = [
        [*attrgetter(*counted)(each), marked(each.dead), _average(each.wait_ms), _average(each.run_ms)]
        for each in report.types
    ]
    head = [*(name.upper() for name in counted), "DEAD", "AVG WAIT", "AVG RUN"]
    yield from table(head, types, "nothing has happened yet; what happens is counted within seconds")
    head = ["RELEASE", "FIRST SEEN", "ATTEMPTS", "FAILED", "SHARE", "AVG RUN", "FAILS MOST"]
    yield from _further(head, [_release(each, report.now) for each in report.releases])
    services = [
        (
            each.service,
            each.enqueued,
            each.enqueued_lately,
            marked(each.refused, "yellow"),
            marked(each.broken),
        )
        for each in report.services
    ]
    yield from _further(("SERVICE", "ENQUEUED", "LAST 10 MIN", "REFUSED (429)", "BROKEN (5XX)"), services)
    events = [
        (ago(each.at, report.now), each.event, each.type, each.job, each.error) for each in report.events
    ]
    yield from _further(("LAST EVENTS", "EVENT", "TYPE", "JOB", "ERROR"), events)


def _release(each: ReleaseTotals, now: datetime) -> Row:
    worst = "-"
    if each.failed:
        most = each.types[0]
        worst = f"{most.type} {_share(most.failed, most.attempts)}"
    first, failed, share = ago(each.first_at, now), marked(each.failed), _share(each.failed, each.attempts)
    return [each.version, first, each.attempts, failed, share, _average(each.run_ms), worst]


def _further(head: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield ""
        yield from table(head, rows)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _average(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else took(timedelta(milliseconds=milliseconds))


@command("""
    windlass alerts
    windlass alerts --json
    windlass alerts --rules
    windlass alerts --dashboard
""")
@option("--rules", "Print the rule file for Prometheus instead.")
@option("--dashboard", "Print the dashboard for Grafana instead.")
def alerts(rules: bool, dashboard: bool) -> None:
    """What is wrong now, by the conditions of the rule file; exit 1 if any alert fires."""
    if rules or dashboard:
        # The dashboard that ships with the package; edit the file, or save it from Grafana.
        grafana = resources.files("windlass.observe").joinpath("grafana.json")
        click.echo(rule_file() if rules else grafana.read_text(encoding="utf-8"), nl=False)
        return
    report = session().ops().alerts()
    answer(report, _alerts(report))
    if report.alerts and not report.watched and not session().json:
        text = "no server has been looking: what may have held for long enough is taken to have"
        click.echo(text, err=True)
    end(int(bool(report.firing)))


def _alerts(report: AlertsDocument) -> Iterator[str]:
    if not report.alerts:
        yield session().screen.paint("all is well: no alert holds", "green")
        return
    # What fires and what pages comes first.
    ordered = sorted(report.alerts, key=attrgetter("state", "severity"))
    head = ("STATE", "SEVERITY", "SINCE", "ALERT", "WHAT IS WRONG")
    yield from table(head, (_row(each, report.now) for each in ordered))


def _row(each: AlertDocument, now: datetime | None) -> Row:
    colour = "red" if each.severity == "page" else "yellow"
    state = Cell(each.state, colour if each.state == "firing" else None)
    since = "-" if now is None else ago(each.since, now)
    return [state, each.severity, since, each.name, each.summary]


@command("""
    windlass autoscale
    windlass config set autoscale.target 30s
    windlass config set autoscale.least 3
""")
def autoscale() -> None:
    """How many workers the load asks for, and why."""
    scale = _looked().autoscale()
    answer(scale, _scale(scale))


def _scale(scale: Scale) -> Iterator[str]:
    slots = count(scale.slots_per_worker, "slot")
    yield f"desired: {scale.desired} (alive: {scale.alive}, {slots} each)"
    rows = [
        (*attrgetter("type", "waiting", "running")(each), *(f"{rate:g}" for rate in _RATES(each)))
        for each in scale.types
        if each.slots
    ]
    if rows:
        yield from table(("TYPE", "WAITING", "RUNNING", "ARRIVALS/S", "SECONDS EACH", "SLOTS"), rows)


_RATES = attrgetter("arrivals_per_second", "service_seconds", "slots")


COMMANDS = (metrics, alerts, autoscale)


@command("""
    windlass smoke --app myapp:queue
    windlass smoke --app myapp:queue --type send_email --type report.build --within 2m
    windlass smoke --json
""")
@option("--type TYPE", "Only these types; else all with a sample.", name="types", multiple=True)
@option("--within", "All of them must be through by then.", type=span, default="60s", show_default=True)
def smoke_command(types: tuple[str, ...], within: timedelta) -> None:
    """Run one sample job of each type and verify what it did; exit 1 unless all is well.

    A type's sample is `@queue.job(smoke={...})`, and `verify=` says whether it did what it should. With --app
    the check is asked here, right after the job; without, a completed job is all that can be said.
    """
    here = session()
    queue = here.queue
    if here.config.app:
        queue.publish()
    chosen = types or tuple(with_samples(queue))
    if not chosen:
        raise Refused("no type has a sample job: @queue.job(smoke={...}) gives one")
    done = smoke(queue, chosen, within=within)
    well = all(each.ok for each in done)
    head = ("TYPE", "OUTCOME", "TOOK", "RELEASE", "WORKER", "DETAIL")
    answer({"types": done, "ok": well}, table(head, map(_smoked, done)))
    end(int(not well))


def _smoked(each: Smoked) -> Row:
    outcome = Cell(each.outcome.replace("_", " "), "green" if each.ok else "red")
    ran = None if each.seconds is None else took(timedelta(seconds=each.seconds))
    return [each.type, outcome, ran, each.app, each.worker, each.detail]


@command("""
    windlass plan --rate 500 --run 2s
    windlass plan --rate 500/s --run 2s --wait 5s --spike 10 --spike-for 30m
    windlass plan --rate 1000/m --run 300ms --payload 2KB --keep 30d --slots 20
    windlass plan
""")
@option("--rate RATE", "Jobs that come in: 500, 500/s, 1000/m.", type=rate)
@option("--run DURATION", "How long one takes.", type=span)
@option("--wait", "99 of 100 start within this.", type=span, default="30s", show_default=True)
@option("--slots N", "Slots of one worker.", type=int, default=10, show_default=True)
@option("--spike FACTOR", "So many times the rate ...", type=float, default=1.0)
@option("--spike-for DURATION", "... for so long.", type=span, default="0s")
@option("--payload SIZE", "Of one job: 500, 2KB.")
@option("--keep DURATION", "How long records are kept; else as it is set.", type=span)
def plan_command(payload: str | None, **given: Any) -> None:
    """Capacity on paper: from rate, durations and wait to workers, storage and the time after a spike.

    Without --rate and --run they are taken from what this store has seen in the last week: the busiest hour,
    and the mean over all types.
    """
    known = {name: value for name, value in given.items() if value is not None}
    if ("rate" in known) != ("run" in known):
        missing = "run" if "rate" in known else "rate"
        raise must_be(f"--{missing}", None, "given with --rate and --run, or both left out")
    if "rate" not in known:
        known = measured(session().ops().store) | known
    if payload is not None:
        known["payload"] = parse_size(payload, "--payload")
    found = plan(Load(**known))
    answer(found, _lines(found))


def _lines(found: Plan) -> Iterator[str]:
    load = found.load
    yield f"{_rate(load.rate)} that take {took(load.run)}, kept for {duration(load.keep)}:"
    yield ""
    yield f"  running at once   {_jobs(found.busy) if found.busy >= 1 else 'less than one job'}"
    in_time = f"99 of 100 start within {duration(load.wait)}"
    yield f"  slots             {number(found.slots_in_time)} so that {in_time}"
    yield f"                    {number(found.slots)} with 30 % to spare, which carry {_rate(found.capacity)}"
    yield f"  workers           {number(found.workers)} of {count(load.slots, 'slot')}"
    yield f"  jobs a day        {found.jobs_per_day:,.0f}"
    a_day, kept, indexed = (
        _bytes(each) for each in (found.bytes_per_day, found.bytes_kept, found.bytes_with_indexes)
    )
    yield f"  storage           {a_day} a day, {kept} kept, {indexed} with indexes"
    if found.spike_jobs:
        drain = "never: nothing is to spare" if found.drain is None else took(found.drain)
        yield ""
        more = count(round(found.spike_jobs), "job")
        yield f"  a spike of {load.spike:g} times for {duration(load.spike_for)} brings {more}"
        yield f"  waiting after it  {count(round(found.backlog), 'job')}"
        yield f"  until all is done {drain}"
        yield f"  to follow it      {count(found.spike_workers, 'worker')}"


def _bytes(amount: float) -> str:
    """As disks are sold: a GB of 1,000 MB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:,.1f} {unit}"
    return count(round(amount), "byte")


def _rate(per_second: float) -> str:
    return f"{_jobs(per_second)}/s" if per_second >= 1 else f"{_jobs(per_second * 60)}/m"


def _jobs(amount: float) -> str:
    text = f"{amount:,.4g}"
    return "1 job" if text == "1" else f"{text} jobs"


@command("""
    windlass bench
    windlass bench --scale 0.1                  a quick look
    windlass bench --folder .                   on the disk that counts
    windlass bench --db postgresql://...        on new databases of that server
    windlass bench http                         the server, beside a bare one
""")
@click.argument("what", required=False, type=click.Choice(["http"]), metavar="[http]")
@option("--scale", "More or fewer jobs than usual.", type=float, default=1.0, show_default=True)
@option("--folder", "Where to measure.", type=click.Path(exists=True, file_okay=False, path_type=Path))
def bench(what: str | None, scale: float, folder: Path | None) -> None:
    """Measure throughput, latency and idle cost on new stores, beside what the database itself can do."""
    here = session()
    if not 0 < scale <= _LARGEST_SCALE:
        raise click.BadParameter(f"must be above 0 and at most {_LARGEST_SCALE}", param_hint="--scale")
    begun = itertools.count()
    url = here.config.database_url
    http = what is not None
    with progress("measuring", steps(http=http, on_server=connect.is_postgres(url))) as advance:
        figures = measure(url, http=http, scale=scale, folder=folder, step=lambda _: advance(next(begun)))
    document = [{**msgspec.structs.asdict(each), "reached": each.reached} for each in figures]
    head = ("WHAT", "MEDIAN", "UNIT", "SHARE", "OF", "AIM", "")
    answer({"figures": document}, table(head, map(_figure, figures)))


def _figure(figure: Figure) -> Row:
    measured = f"{figure.median:.2f}" if figure.median < _WHOLE_FROM else round(figure.median)
    share = None if figure.share is None else f"{figure.share:.2f}"
    reached = _VERDICTS[figure.reached]
    return [figure.name, measured, figure.unit, share, figure.share_of, figure.aim, reached]


_VERDICTS = {None: "", True: "reached", False: "missed"}
_LARGEST_SCALE = 100
# Below this a figure has something to say behind its point.
_WHOLE_FROM = 100
PLANNING = (smoke_command, plan_command, bench)


# --- is everything well? ------------------------------------------------------------------------

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

    Each problem comes with the command that fixes it. Exit code 0: nothing is bad (warnings aside); 1:
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
        if each.fix is not None:
            yield f"{'':<18}to fix it: {as_typed(each.fix)}"
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
    answer(found, _signals(found))


DOCTOR = (doctor, signals_command)


def _signals(found: Signals) -> Iterator[str]:
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
