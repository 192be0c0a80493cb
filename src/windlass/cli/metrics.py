"""How does somebody at a terminal see what happened, what is wrong, and how many workers it takes?"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from importlib import resources

import click

from windlass.cli.commands import Command
from windlass.cli.screen import Cell, ago, number, one_line, took
from windlass.cli.session import Session, session
from windlass.errors import Refused, StoreError
from windlass.observe.alerts import Severity
from windlass.observe.firing import Firing
from windlass.observe.firing import rules as rule_file
from windlass.ops import Ops
from windlass.ops.document import encode
from windlass.ops.observing import AlertReport, MetricsReport, ReleaseTotals, alerts_document
from windlass.ops.remote import RemoteOps
from windlass.ops.words import count

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
