"""Metrics, alerts and how many workers it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from importlib import resources
from typing import Any

import click

from windlass.cli.commands import Command, rate, span
from windlass.cli.screen import Cell, ago, duration, number, one_line, took
from windlass.cli.session import Session, session
from windlass.errors import Refused, StoreError, must_be
from windlass.observe.alerts import Severity
from windlass.observe.firing import Firing
from windlass.observe.firing import rules as rule_file
from windlass.ops import Ops
from windlass.ops.document import encode
from windlass.ops.observing import AlertReport, MetricsReport, ReleaseTotals, alerts_document
from windlass.ops.plan import Load, Plan, measured, plan
from windlass.ops.remote import RemoteOps
from windlass.ops.words import count
from windlass.size import parse_size
from windlass.smoke import Smoked, smoke, with_samples

# Whoever looks wants what is there at this moment, and waits for it.
_NOW = timedelta(0)


@click.command(
    cls=Command,
    examples="""
        windlass metrics
        windlass metrics --prometheus
        windlass metrics --json
    """,
)
@click.option("--prometheus", is_flag=True, help="As Prometheus reads it, without a server.")
def metrics(prometheus: bool) -> None:
    """Event counts and average durations by type and release, what each service sent, and the last events."""
    here = session()
    if prometheus:
        # Left as it is found: how long nobody has looked is one of the things that it tells.
        click.echo(here.ops().scrape(), nl=False)
        return
    report = _looked(here).metrics()
    if here.json:
        click.echo(encode(report))
        return
    _show(report)


def _looked(here: Session) -> Ops:
    """The verbs on a store in which somebody has counted just now what came in and what waits.

    Workers and servers do so every few seconds, but there may be none.
    """
    ops = here.ops()
    if isinstance(ops, RemoteOps):
        name = click.get_current_context().info_name
        raise Refused(
            f"{name} needs the store itself, and this is a server: GET /api/v1/{name} tells the same"
        )
    # What cannot be written to is shown as it was last counted.
    with suppress(StoreError):
        ops.store.take_sample(_NOW)
    return ops


def _show(report: MetricsReport) -> None:
    screen = session().screen
    if not report.types:
        click.echo("nothing has happened yet; what happens is counted within seconds")
    else:
        head = ("TYPE", "ENQUEUED", "STARTED", "COMPLETED", "FAILED", "DEAD", "AVG WAIT", "AVG RUN")
        rows: list[list[Cell | str | int]] = [
            [
                each.type,
                each.enqueued,
                each.started,
                each.completed,
                each.failed,
                Cell(number(each.dead), "red" if each.dead else None),
                _average(each.wait_ms),
                _average(each.run_ms),
            ]
            for each in report.types
        ]
        click.echo("\n".join(screen.table(head, rows)))
    if report.releases:
        _show_releases(report)
    if report.services:
        _show_services(report)
    if report.events:
        click.echo()
        events: list[list[Cell | str | int]] = [
            [ago(each.at, report.now), each.event, each.type, each.job, one_line(each.error or "")]
            for each in report.events
        ]
        click.echo("\n".join(screen.table(("LAST EVENTS", "EVENT", "TYPE", "JOB", "ERROR"), events)))


def _show_releases(report: MetricsReport) -> None:
    head = ("RELEASE", "FIRST SEEN", "ATTEMPTS", "FAILED", "SHARE", "AVG RUN", "FAILS MOST")
    rows: list[list[Cell | str | int]] = [
        [
            each.version,
            ago(each.first_at, report.now),
            each.attempts,
            Cell(number(each.failed), "red" if each.failed else None),
            _share(each.failed, each.attempts),
            _average(each.run_ms),
            _worst(each),
        ]
        for each in report.releases
    ]
    click.echo()
    click.echo("\n".join(session().screen.table(head, rows)))


def _show_services(report: MetricsReport) -> None:
    head = ("SERVICE", "ENQUEUED", "LAST 10 MIN", "REFUSED (429)", "BROKEN (5XX)")
    rows: list[list[Cell | str | int]] = [
        [
            each.service,
            each.enqueued,
            each.enqueued_lately,
            Cell(number(each.refused), "yellow" if each.refused else None),
            Cell(number(each.broken), "red" if each.broken else None),
        ]
        for each in report.services
    ]
    click.echo()
    click.echo("\n".join(session().screen.table(head, rows)))


def _worst(release: ReleaseTotals) -> str:
    """The type of which most attempts fail."""
    if not release.failed:
        return "-"
    worst = release.types[0]
    return f"{worst.type} {_share(worst.failed, worst.attempts)}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _average(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else took(timedelta(milliseconds=milliseconds))


@click.command(
    cls=Command,
    examples="""
        windlass alerts
        windlass alerts --json
        windlass alerts --rules
        windlass alerts --dashboard
    """,
)
@click.option("--rules", is_flag=True, help="Print the rule file for Prometheus instead.")
@click.option("--dashboard", is_flag=True, help="Print the dashboard for Grafana instead.")
def alerts(rules: bool, dashboard: bool) -> None:
    """What is wrong now, by the conditions of the rule file; exit 1 if any alert fires."""
    if rules or dashboard:
        click.echo(rule_file() if rules else _grafana_dashboard(), nl=False)
        return
    here = session()
    report = here.ops().alerts()
    if here.json:
        click.echo(encode(alerts_document(report)))
    else:
        _tell(report)
    if report.firing:
        click.get_current_context().exit(1)


def _grafana_dashboard() -> str:
    """The dashboard that ships with the package; edit the file, or save it from Grafana."""
    return resources.files("windlass.observe").joinpath("grafana.json").read_text(encoding="utf-8")


def _tell(report: AlertReport) -> None:
    screen, firing = session().screen, report.firing
    if not report.alerts:
        click.echo(screen.paint("all is well: no alert holds", "green"))
        return
    ordered = sorted(
        report.alerts, key=lambda each: (each not in firing, each.alert.severity != Severity.PAGE)
    )
    rows = [_row(each, report, fires=each in firing) for each in ordered]
    click.echo("\n".join(screen.table(("STATE", "SEVERITY", "SINCE", "ALERT", "WHAT IS WRONG"), rows)))
    if not report.watched:
        click.echo(
            "no server has been looking: what may have held for long enough is taken to have", err=True
        )


def _row(each: Firing, report: AlertReport, *, fires: bool) -> list[Cell | str | int]:
    since = "-" if report.now is None else ago(each.since, report.now)
    colour = ("red" if each.alert.severity is Severity.PAGE else "yellow") if fires else None
    state = Cell("firing" if fires else "pending", colour)
    return [state, each.alert.severity.value, since, each.alert.name, one_line(each.summary)]


@click.command(
    cls=Command,
    examples="""
        windlass autoscale
        windlass config set autoscale.target 30s
        windlass config set autoscale.least 3
    """,
)
def autoscale() -> None:
    """How many workers the load asks for, and why."""
    here = session()
    scale = _looked(here).autoscale()
    if here.json:
        click.echo(encode(scale))
        return
    click.echo(
        f"desired: {scale.desired} (alive: {scale.alive}, {count(scale.slots_per_worker, 'slot')} each)"
    )
    wanted = [each for each in scale.types if each.slots]
    if wanted:
        head = ("TYPE", "WAITING", "RUNNING", "ARRIVALS/S", "SECONDS EACH", "SLOTS")
        rows: list[list[Cell | str | int]] = [
            [
                each.type,
                each.waiting,
                each.running,
                f"{each.arrivals_per_second:g}",
                f"{each.service_seconds:g}",
                f"{each.slots:g}",
            ]
            for each in wanted
        ]
        click.echo("\n".join(here.screen.table(head, rows)))


COMMANDS = (metrics, alerts, autoscale)


@click.command(
    "smoke",
    cls=Command,
    examples="""
        windlass smoke --app myapp:queue
        windlass smoke --app myapp:queue --type send_email --type report.build --within 2m
        windlass smoke --json
    """,
)
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Only these types; else all with a sample."
)
@click.option(
    "--within", type=span, default="60s", show_default=True, help="All of them must be through by then."
)
def smoke_test(types: tuple[str, ...], within: timedelta) -> None:
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
    if here.json:
        click.echo(encode({"types": done, "ok": all(each.ok for each in done)}))
    else:
        click.echo("\n".join(here.screen.table(_SMOKED, [_smoked(each) for each in done])))
    if not all(each.ok for each in done):
        click.get_current_context().exit(1)


_SMOKED = ("TYPE", "OUTCOME", "TOOK", "RELEASE", "WORKER", "DETAIL")


def _smoked(each: Smoked) -> list[Cell | str | int]:
    return [
        one_line(each.type),
        Cell(each.outcome.replace("_", " "), "green" if each.ok else "red"),
        "" if each.seconds is None else took(timedelta(seconds=each.seconds)),
        one_line(each.app or ""),
        one_line(each.worker or ""),
        one_line(each.detail),
    ]


@click.command(
    "plan",
    cls=Command,
    examples="""
        windlass plan --rate 500 --run 2s
        windlass plan --rate 500/s --run 2s --wait 5s --spike 10 --spike-for 30m
        windlass plan --rate 1000/m --run 300ms --payload 2KB --keep 30d --slots 20
        windlass plan
    """,
)
@click.option("--rate", type=rate, metavar="RATE", help="Jobs that come in: 500, 500/s, 1000/m.")
@click.option("--run", type=span, metavar="DURATION", help="How long one takes.")
@click.option("--wait", type=span, default="30s", show_default=True, help="99 of 100 start within this.")
@click.option("--slots", type=int, default=10, show_default=True, metavar="N", help="Slots of one worker.")
@click.option("--spike", type=float, default=1.0, metavar="FACTOR", help="So many times the rate ...")
@click.option("--spike-for", type=span, default="0s", metavar="DURATION", help="... for so long.")
@click.option("--payload", metavar="SIZE", help="Of one job: 500, 2KB.")
@click.option("--keep", type=span, metavar="DURATION", help="How long records are kept; else as it is set.")
def capacity_plan(payload: str | None, **given: Any) -> None:
    """Capacity on paper: from rate, durations and wait to workers, storage and the time after a spike.

    Without --rate and --run they are taken from what this store has seen in the last week: the busiest hour,
    and the mean over all types.
    """
    here = session()
    known = {name: value for name, value in given.items() if value is not None}
    if ("rate" in known) != ("run" in known):
        missing = "run" if "rate" in known else "rate"
        raise must_be(f"--{missing}", None, "given with --rate and --run, or both left out")
    if "rate" not in known:
        known = measured(here.ops().store) | known
    if payload is not None:
        known["payload"] = parse_size(payload, "--payload")
    found = plan(Load(**known))
    click.echo(encode(found) if here.json else "\n".join(_told(found)))


def _told(found: Plan) -> Iterator[str]:
    load = found.load
    yield f"{_rate(load.rate)} that take {took(load.run)}, kept for {duration(load.keep)}:"
    yield ""
    yield f"  running at once   {_busy(found.busy)}"
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


def _busy(jobs: float) -> str:
    return _jobs(jobs) if jobs >= 1 else "less than one job"


def _bytes(amount: float) -> str:
    """As disks are sold: a GB of 1,000 MB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:,.1f} {unit}"
    return count(round(amount), "byte")


def _rate(per_second: float) -> str:
    return f"{_jobs(per_second)}/s" if per_second >= 1 else f"{_jobs(per_second * 60)}/m"


def _jobs(amount: float) -> str:
    told = f"{amount:,.4g}"
    return "1 job" if told == "1" else f"{told} jobs"


PLANNING = (smoke_test, capacity_plan)
