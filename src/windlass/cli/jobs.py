"""How do jobs look from a terminal: all together, in a list, one alone?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from windlass.cli.commands import Command, filter_options, names_any, read_filter, tenant_option
from windlass.cli.screen import Cell, Screen, age, ago, as_typed, duration, number, one_line
from windlass.cli.session import session
from windlass.cli.story import COLOURS, JOB_COLUMNS, job_row, tell, tell_batch
from windlass.errors import Refused
from windlass.job import Job, JobState
from windlass.ops import Ops, Overview, TypeStatus
from windlass.ops.document import batch_document, encode, page_document, told_document
from windlass.ops.overview import ScheduleSummary
from windlass.ops.search import read_query
from windlass.ops.words import count
from windlass.policy import Retry, limit_text
from windlass.store.jobs import Filter, Page


@click.command(
    cls=Command,
    examples="""
        windlass status
        windlass status --json
        watch -n 2 windlass status
    """,
)
def status() -> None:
    """One look: jobs by type and state, workers, and what is wrong."""
    here = session()
    seen = here.ops().status()
    if here.json:
        click.echo(encode(seen))
        return
    click.echo(f"{here.place}: {_fleet(seen)}")
    warnings = list(seen.warnings)
    if seen.verdict is not None and seen.verdict.state == "trouble":
        # The worst is the headline; the others stand below.
        click.echo(here.screen.paint(as_typed(one_line(warnings.pop(0))), "red"))
    if seen.types:
        click.echo()
        click.echo("\n".join(_status_table(seen, here.screen)))
    else:
        click.echo(as_typed("\nNo jobs and no types yet. A first one: windlass run -- echo hello"))
    if seen.schedules is not None:
        click.echo(f"\n{_schedules(seen.schedules, seen.now)}")
    if warnings:
        click.echo()
    for warning in warnings:
        click.echo(here.screen.paint(f"! {as_typed(one_line(warning))}", "yellow"))


@click.command(
    "list",
    cls=Command,
    examples="""
        windlass list
        windlass list --state dead --type send_email
        windlass list --state retrying --error timeout
        windlass list --where payload.user.id=42 --older-than 1h
        windlass list 'type:send_email state:dead payload.user.id:42 error:Timeout older:1h'
        windlass list --limit 1000 --json
    """,
)
@click.argument("query", required=False, metavar="[QUERY]")
@filter_options
@click.option("--limit", default=50, show_default=True, metavar="N", help="So many at most, up to 1000.")
@click.option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")
def list_jobs(query: str | None, limit: int, cursor: str | None, **choice: Any) -> None:
    """Jobs, newest first, live and ended.

    QUERY says in one line which: words such as type: state: tenant: key: error: older: and payload.FIELD:
    with a value behind each; or a job's id or key alone. The options say the same.
    """
    if query is not None and names_any(choice):
        raise click.UsageError("a QUERY and options that choose jobs cannot be combined")
    show_page(read_filter(choice) if query is None else read_query(query), limit, cursor)


@click.command(
    cls=Command,
    examples="""
        windlass show 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11
        windlass show job1
        windlass show job1 --json
    """,
)
@click.argument("name", metavar="ID")
@tenant_option
def show(name: str, tenant: str | None) -> None:
    """One job and all that happened to it: times, payload, every attempt, who changed it.

    ID is an id or a key.
    """
    here = session()
    ops = here.ops()
    job, now = ops.show(name, tenant=tenant), ops.now()
    ties = ops.ties(job)
    if here.json:
        click.echo(encode(told_document(job, ties, now)))
        return
    click.echo("\n".join(tell(job, now, here.screen, ties, _why(ops, job))))


def _why(ops: Ops, job: Job) -> str | None:
    """What stands in its way. What has ended tells its own story; who may only produce is not told."""
    try:
        return None if job.ended else ops.explain(job.id).sentence
    except Refused:
        return None


@click.command(
    cls=Command,
    examples="""
        windlass explain 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11
        windlass explain job1
        windlass explain job1 --json
    """,
)
@click.argument("name", metavar="ID")
@tenant_option
def explain(name: str, tenant: str | None) -> None:
    """Why a job does not run, in one sentence, and what would let it.

    ID is an id or a key.
    """
    here = session()
    found = here.ops().explain(name, tenant=tenant)
    if here.json:
        click.echo(encode(found))
        return
    click.echo(as_typed(one_line(found.sentence)))
    for sentence in found.also:
        click.echo(f"also: {as_typed(one_line(sentence))}")
    if found.mend is not None:
        click.echo(f"to change that: {as_typed(found.mend)}")


@click.command(
    cls=Command,
    examples="""
        windlass batch 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11
        windlass batch 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11 --json
    """,
)
@click.argument("batch_id", metavar="ID")
def batch(batch_id: str) -> None:
    """Show a batch's progress by job state.

    `windlass show` names the batch of a job.
    """
    here = session()
    ops = here.ops()
    found, now = ops.batch(batch_id), ops.now()
    if here.json:
        click.echo(encode(batch_document(found)))
    else:
        click.echo("\n".join(tell_batch(found, now, here.screen)))


@click.command(
    cls=Command,
    examples="""
        windlass types
        windlass types --json
    """,
)
def types() -> None:
    """The job types that are registered or have jobs, with their options."""
    here = session()
    found = here.ops().types()
    if here.json:
        click.echo(encode({"types": found}))
    elif not found:
        click.echo("No types yet: a worker or producer of an application registers them.")
    else:
        rows = [_type_row(each) for each in found]
        click.echo("\n".join(here.screen.table(_TYPE_COLUMNS, rows)))


COMMANDS = (status, list_jobs, show, explain, batch, types)


def show_page(where: Filter, limit: int, cursor: str | None) -> None:
    """A page of jobs that match, as a table or JSON."""
    here = session()
    ops = here.ops()
    page, now = ops.find(where, limit=limit, cursor=cursor), ops.now()
    if here.json:
        click.echo(encode(page_document(page, now)))
        return
    if page.jobs:
        click.echo("\n".join(_page_table(page, now, here.screen)))
    if page.next and len(page.jobs) < limit:
        click.echo(f"Searched for long enough, but not all: go on with --cursor {page.next}", err=True)
    elif page.next:
        click.echo(f"There are more: --cursor {page.next}", err=True)
    elif not page.jobs:
        click.echo("No jobs match.", err=True)


def _page_table(page: Page, now: datetime, screen: Screen) -> list[str]:
    return screen.table(JOB_COLUMNS, [job_row(job, now) for job in page.jobs])


def _fleet(seen: Overview) -> str:
    fleet = seen.fleet
    if not fleet.alive and not fleet.silent:
        return "no worker is running"
    workers = f"{count(fleet.alive, 'worker')} {'is' if fleet.alive == 1 else 'are'}"
    silent = f"; {fleet.silent} silent" if fleet.silent else ""
    return f"{workers} running, {fleet.busy} of {count(fleet.slots, 'slot')} busy{silent}"


def _schedules(found: ScheduleSummary, now: datetime) -> str:
    many = count(found.count, "schedule")
    paused = f", {found.paused} paused" if found.paused else ""
    if found.next_at is None:
        return f"{many}{paused}"
    return f"{many}{paused}; next is {found.next_name} {ago(found.next_at, now)}"


def _status_table(seen: Overview, screen: Screen) -> list[str]:
    # Columns of only zeros say nothing, save for the four that everybody looks for.
    columns = [name for name, count in seen.counts.items() if count or name in _ALWAYS]
    head = ["TYPE", *(name.upper() for name in columns), "WORKERS", "OLDEST DUE"]
    rows: list[list[Cell | str | int]] = [
        [
            each.name,
            *(_count(name, each.counts[name]) for name in columns),
            each.workers,
            _oldest(each.oldest_due),
        ]
        for each in seen.types
    ]
    if len(rows) > 1:
        totals = [_count(name, seen.counts[name]) for name in columns]
        rows.append(["all", *totals, seen.fleet.alive, _oldest(seen.oldest_due)])
    lines = screen.table(head, rows)
    if seen.capped:
        lines.append("(of ended jobs at least so many; windlass db status has the number of records)")
    return lines


def _count(name: str, count: int) -> Cell:
    return Cell(number(count), COLOURS.get(name) if count else None)


def _oldest(waited: timedelta | None) -> str:
    return "" if waited is None else age(waited)


def _type_row(each: TypeStatus) -> list[Cell | str | int]:
    return [
        each.name,
        _schema(each),
        each.workers,
        one_line(", ".join(each.releases)),
        each.counts["due"],
        each.counts[JobState.DEAD],
        str(each.options.get("kind", "")),
        duration(each.effective.timeout),
        each.effective.max_attempts,
        _retry(each.effective.retry),
        _limit(each),
    ]


def _schema(each: TypeStatus) -> str:
    if not each.known:
        return "unknown"
    return f"{each.schema_version} ({each.schemas} live)" if each.schemas > 1 else str(each.schema_version)


def _limit(each: TypeStatus) -> str:
    parts = [limit_text(each.limit), each.limit_key and f"shares {each.limit_key}", each.paused and "paused"]
    parts.append("breaker open" if each.breaker and each.breaker.open else None)
    return ", ".join(part for part in parts if part)


def _retry(retry: Retry) -> str:
    if retry.kind == "never":
        return "never"
    if retry.kind == "list":
        return "after " + ", ".join(duration(timedelta(seconds=delay)) for delay in retry.delays)
    base, cap, jitter = (duration(timedelta(seconds=part)) for part in (retry.base, retry.cap, retry.jitter))
    bound = "" if retry.kind == "fixed" else f" up to {cap}"
    return f"{retry.kind} {base}{bound}" + (f", jitter {jitter}" if retry.jitter else "")


_TYPE_COLUMNS = (
    "TYPE",
    "SCHEMA",
    "WORKERS",
    "RELEASES",
    "DUE",
    "DEAD",
    "RUNS ON",
    "TIMEOUT",
    "ATTEMPTS",
    "RETRY",
    "LIMIT",
)
_ALWAYS = {"due", "processing", "dead", "completed"}
