"""How do jobs look from a terminal: all together, in a list, one alone?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from windlass.cli.commands import command, filter_options, names_any, option, read_filter, tenant_option
from windlass.cli.screen import Cell, Row, as_typed, block, cut, duration, marked, number, one_line, took
from windlass.cli.session import answer, facts, session, table
from windlass.errors import Refused
from windlass.job import HUNG, SUSPECT_AFTER, Attempt, Change, Error, Job, JobState, Output, View
from windlass.ops import Ops, Overview, Ties, TypeStatus
from windlass.ops.document import batch_document, change_shown, page_document, payload_shown, told_document
from windlass.ops.search import read_query
from windlass.ops.words import ago, clock, count, span
from windlass.policy import Retry, limit_text
from windlass.store.chains import BatchInfo
from windlass.store.jobs import Filter


@command("""
    windlass status
    windlass status --json
    watch -n 2 windlass status
""")
def status() -> None:
    """One look: jobs by type and state, workers, and what is wrong."""
    seen = session().ops().status()
    answer(seen, _lines(seen))


@command("""
    windlass list
    windlass list --state dead --type send_email
    windlass list --state retrying --error timeout
    windlass list --where payload.user.id=42 --older-than 1h
    windlass list 'type:send_email state:dead payload.user.id:42 error:Timeout older:1h'
    windlass list --limit 1000 --json
""")
@click.argument("query", required=False, metavar="[QUERY]")
@filter_options
@option("--limit N", "Show at most N, up to 1000.", default=50, show_default=True)
@option("--cursor CURSOR", "Go on where an earlier list ended.")
def list_command(query: str | None, limit: int, cursor: str | None, **choice: Any) -> None:
    """Jobs, newest first, live and ended.

    QUERY says in one line which: words such as type: state: tenant: key: error: older: and payload.FIELD:
    with a value behind each; or a job's id or key alone. The options say the same.
    """
    if query is not None and names_any(choice):
        raise click.UsageError("a QUERY and options that choose jobs cannot be combined")
    show_page(read_filter(choice) if query is None else read_query(query), limit, cursor)


@command("""
    windlass show 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11
    windlass show job1
    windlass show job1 --json
""")
@click.argument("name", metavar="ID")
@tenant_option
def show(name: str, tenant: str | None) -> None:
    """One job and all that happened to it: times, payload, every attempt, who changed it.

    ID is an id or a key.
    """
    ops = session().ops()
    job, now = ops.show(name, tenant=tenant), ops.now()
    ties = ops.ties(job)
    answer(told_document(job, ties, now), tell(job, now, ties, lambda: _why(ops, job)))


def _why(ops: Ops, job: Job) -> str | None:
    """What stands in its way. What has ended tells its own story; who may only produce is not told."""
    try:
        return None if job.ended else ops.explain(job.id).sentence
    except Refused:
        return None


@command("""
    windlass explain 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11
    windlass explain job1
    windlass explain job1 --json
""")
@click.argument("name", metavar="ID")
@tenant_option
def explain(name: str, tenant: str | None) -> None:
    """Why a job does not run, in one sentence, and what would let it.

    ID is an id or a key.
    """
    found = session().ops().explain(name, tenant=tenant)
    also = [f"also: {as_typed(one_line(sentence))}" for sentence in found.also]
    fix = [] if found.fix is None else [f"to change that: {as_typed(found.fix)}"]
    answer(found, [as_typed(one_line(found.sentence)), *also, *fix])


@command("""
    windlass batch 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11
    windlass batch 01980c1e-7f9a-7c43-9b3f-3f1d5a8e2b11 --json
""")
@click.argument("batch_id", metavar="ID")
def batch(batch_id: str) -> None:
    """Show a batch's progress by job state.

    `windlass show` names the batch of a job.
    """
    ops = session().ops()
    found, now = ops.batch(batch_id), ops.now()
    answer(batch_document(found), tell_batch(found, now))


@command("""
    windlass types
    windlass types --json
""")
def types() -> None:
    """The job types that are registered or have jobs, with their options."""
    found = session().ops().types()
    empty = "No types yet: a worker or producer of an application registers them."
    answer({"types": found}, table(_TYPE_COLUMNS, map(_type_row, found), empty))


COMMANDS = (status, list_command, show, explain, batch, types)


def show_page(where: Filter, limit: int, cursor: str | None) -> None:
    """A page of jobs that match, as a table or JSON."""
    ops = session().ops()
    page, now = ops.find(where, limit=limit, cursor=cursor), ops.now()
    rows = [job_row(job, now) for job in page.jobs]
    answer(page_document(page, now), table(JOB_COLUMNS, rows) if rows else ())
    if session().json:
        return
    if page.next and len(page.jobs) < limit:
        click.echo(f"Searched for long enough, but not all: go on with --cursor {page.next}", err=True)
    elif page.next:
        click.echo(f"There are more: --cursor {page.next}", err=True)
    elif not page.jobs:
        click.echo("No jobs match.", err=True)


def _lines(seen: Overview) -> Iterator[str]:
    here, warnings = session(), list(seen.warnings)
    yield f"{here.place}: {_fleet(seen)}"
    if seen.verdict is not None and seen.verdict.state == "trouble":
        # The worst is the headline; the others stand below.
        yield here.screen.paint(as_typed(one_line(warnings.pop(0))), "red")
    yield ""
    if seen.types:
        yield from _status_table(seen)
    else:
        yield as_typed("No jobs and no types yet. A first one: windlass run -- echo hello")
    if (found := seen.schedules) is not None:
        paused = f", {found.paused} paused" if found.paused else ""
        soon = "" if found.next_at is None else f"; next is {found.next_name} {ago(found.next_at, seen.now)}"
        yield f"\n{count(found.count, 'schedule')}{paused}{soon}"
    if warnings:
        yield ""
    for warning in warnings:
        yield here.screen.paint(f"! {as_typed(one_line(warning))}", "yellow")


def _fleet(seen: Overview) -> str:
    fleet = seen.fleet
    if not fleet.alive and not fleet.silent:
        return "no worker is running"
    workers = f"{count(fleet.alive, 'worker')} {'is' if fleet.alive == 1 else 'are'}"
    silent = f"; {fleet.silent} silent" if fleet.silent else ""
    return f"{workers} running, {fleet.busy} of {count(fleet.slots, 'slot')} busy{silent}"


def _status_table(seen: Overview) -> Iterator[str]:
    # Columns of only zeros say nothing, save for the four that everybody looks for.
    columns = [name for name, count in seen.counts.items() if count or name in _ALWAYS]
    head = ["TYPE", *(name.upper() for name in columns), "WORKERS", "OLDEST DUE"]

    def row(name: str, counts: dict[str, int], workers: int, waited: timedelta | None) -> Row:
        return [name, *(marked(counts[each], COLOURS[each]) for each in columns), workers, waited]

    rows = [row(each.name, each.counts, each.workers, each.oldest_due) for each in seen.types]
    if len(rows) > 1:
        rows.append(row("all", seen.counts, seen.fleet.alive, seen.oldest_due))
    yield from table(head, rows)
    if seen.capped:
        yield "(of ended jobs at least so many; windlass db status has the number of records)"


def _type_row(each: TypeStatus) -> Row:
    schema = f"{each.schema_version} ({each.schemas} live)" if each.schemas > 1 else str(each.schema_version)
    limits = [limit_text(each.limit), each.limit_key and f"shares {each.limit_key}", each.paused and "paused"]
    limits.append("breaker open" if each.breaker and each.breaker.open else None)
    releases, held = ", ".join(each.releases), ", ".join(part for part in limits if part)
    now: Row = [each.workers, releases, each.counts["due"], each.counts[JobState.DEAD]]
    runs: Row = [each.options.get("kind"), duration(each.effective.timeout), each.effective.max_attempts]
    return [each.name, schema if each.known else "unknown", *now, *runs, _retry(each.effective.retry), held]


def _retry(retry: Retry) -> str:
    if retry.kind == "never":
        return "never"
    if retry.kind == "list":
        return "after " + ", ".join(duration(timedelta(seconds=delay)) for delay in retry.delays)
    base, cap, jitter = (duration(timedelta(seconds=part)) for part in (retry.base, retry.cap, retry.jitter))
    bound = "" if retry.kind == "fixed" else f" up to {cap}"
    return f"{retry.kind} {base}{bound}" + (f", jitter {jitter}" if retry.jitter else "")


_OPTIONS = ("RUNS ON", "TIMEOUT", "ATTEMPTS", "RETRY", "LIMIT")
_TYPE_COLUMNS = ("TYPE", "SCHEMA", "WORKERS", "RELEASES", "DUE", "DEAD", *_OPTIONS)
_ALWAYS = {"due", "processing", "dead", "completed"}


# --- one job, in a line and in full ----------------------------------------------------------------

COLOURS = {
    "due": None,
    "pending": None,
    "scheduled": "blue",
    "waiting": "blue",
    "unreadable": "red",
    "retrying": "yellow",
    "processing": "cyan",
    "stuck": "magenta",
    "dead": "red",
    "completed": "green",
    "cancelled": "bright_black",
    "discarded": "bright_black",
}
_MOST_PARENTS = 10
_LONGEST_CELL = 200
JOB_COLUMNS = ("ID", "TYPE", "STATE", "PRI", "ATTEMPTS", "WHEN", "KEY / ERROR")


def job_row(job: Job, now: datetime) -> Row:
    """A job as a line of a table; the view stands in for the state where there is one."""
    shown = job.view(now) or job.state
    state, attempts = Cell(shown, COLOURS[shown]), f"{job.attempts}/{job.max_attempts}"
    # Also where nobody says how wide a line is: `show` and --json have it whole.
    why = cut(one_line(" · ".join(part for part in (job.key, error_line(job.error)) if part)), _LONGEST_CELL)
    return [job.id, job.type, state, job.priority, attempts, _when(job, now), why]


def tell(job: Job, now: datetime, ties: Ties, why: Callable[[], str | None]) -> Iterator[str]:
    """The whole story of a job, line by line; `why` says what stands in its way."""
    screen, shown = session().screen, job.view(now)
    state = f"{job.state} ({shown})" if shown else job.state.value
    yield f"{screen.strong(job.id)}  {screen.paint(state, COLOURS[shown or job.state])}"
    yield ""
    yield from facts([*_facts(job, now), *_ties(ties, now), ("why", one_line(why() or ""))])
    yield from _section("Payload", block(_pretty(payload_shown(job))))
    if job.result is not None:
        yield from _section("Result", block(_pretty(job.result)))
    elif job.result_missing is not None:
        yield from _section("Result", [f"not kept: {one_line(job.result_missing)}"])
    if job.history:
        yield from _section("Attempts", _attempts(job.history))
    if job.changes:
        yield from _section("Changes", _changes([change_shown(change) for change in job.changes]))


def tell_batch(batch: BatchInfo, now: datetime) -> Iterator[str]:
    """How far a batch has come, line by line."""
    screen, name = session().screen, f"  {one_line(batch.name)}" if batch.name else ""
    yield f"{screen.strong(batch.id)}{name}  {number(batch.ended)} of {number(batch.total)} ended"
    yield ""
    for state in JobState:
        if state in batch.counts:
            yield f"  {screen.paint(f'{state:<12}', COLOURS[state])}{number(batch.counts[state])}"
    then = batch.then_id and f"{batch.then_id}{'' if batch.finished_at else ', when all have ended'}"
    finished = _moment(batch.finished_at, now) if batch.finished_at else None
    yield from facts([("created", _moment(batch.created_at, now)), ("finished", finished), ("then", then)])


def _ties(ties: Ties, now: datetime) -> Iterator[tuple[str, str]]:
    if ties.progress is not None:
        done, total = ties.progress.done, ties.progress.total
        share = f" of {number(total)} ({done * 100 // max(total, 1)} %)" if total is not None else ""
        text = f", {one_line(ties.progress.message)}" if ties.progress.message else ""
        yield "progress", f"{number(done)}{share}{text}, said {_moment(ties.progress.noted_at, now)}"
    if ties.batch is not None:
        yield "batch", ties.batch
    for parent in ties.waits_for[:_MOST_PARENTS]:
        yield "waits for", parent
    if len(ties.waits_for) > _MOST_PARENTS:
        yield "waits for", f"and {len(ties.waits_for) - _MOST_PARENTS} more"


def error_line(error: Error | None) -> str:
    """An error in one line; the reason is only told where it says more than the class."""
    if error is None:
        return ""
    text = ": ".join(part for part in (error.kind, error.message) if part)
    return text if error.reason == "exception" and text else f"{error.reason}: {text}".rstrip(": ")


def _facts(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    waits = job.state is JobState.PENDING and job.view(now) not in (View.WAITING, View.UNREADABLE)
    yield "type", one_line(job.type) + (f"  (schema {job.schema_version})" if job.schema_version != 1 else "")
    shown = {
        "priority": str(job.priority),
        "key": job.key,
        "tenant": job.tenant,
        "reference": job.payload_ref,
        "trace": job.trace,
        "rerun of": job.rerun_of,
        "attempts": _attempts_line(job),
        "created": job.created_at,
        "runs at": job.run_at if waits else None,
        "started": job.started_at,
        "finished": job.finished_at,
        "worker": job.worker,
        "lease until": job.lease_until,
        "asked": None if job.request is None else f"{job.request}: its worker is told within a second",
        "error": error_line(job.error),
    }
    for name, value in shown.items():
        if value:
            yield name, _moment(value, now) if isinstance(value, datetime) else one_line(value)


def _attempts_line(job: Job) -> str:
    # A worker that a job has hung counts for more than one, so that the job is suspect at once.
    hangs = sum(attempt.error is not None and attempt.error.kind == HUNG for attempt in job.history)
    more = [
        (job.replay_count, "replayed"),
        (job.snoozes, "snoozed"),
        (job.interruptions, "interrupted by a shutdown"),
        (max(0, job.losses - hangs * (SUSPECT_AFTER - 1)), "lost with its worker"),
    ]
    parts = [f"{what} {'once' if count == 1 else f'{count} times'}" for count, what in more if count]
    return "; ".join([f"{job.attempts} of {job.max_attempts}", *parts])


def _attempts(history: Sequence[Attempt]) -> Iterator[str]:
    screen = session().screen
    for attempt in history:
        colour = _OUTCOMES.get(attempt.outcome)
        duration = took(attempt.finished_at - attempt.started_at)
        release = f" ({one_line(attempt.app)})" if attempt.app else ""
        yield (
            f"{screen.strong(f'#{attempt.number}')}  {screen.paint(attempt.outcome, colour)} after {duration}"
            f", {clock(attempt.started_at)}, by {one_line(attempt.worker)}{release}"
        )
        if attempt.output is not None:
            yield from _output(attempt.output)
        if attempt.error is not None:
            yield f"    {one_line(error_line(attempt.error))}"
            lines = block(attempt.error.traceback or "")
            # A single line is the error once more.
            yield from (f"    {line}" for line in lines if len(lines) > 1)


def _output(output: Output) -> Iterator[str]:
    if output.exit_code is not None:
        yield f"    exit code {output.exit_code}"
    for name, text in (("stdout", output.stdout), ("stderr", output.stderr)):
        yield from (f"    {name} | {line}" for line in block(text))


def _changes(changes: Sequence[Change]) -> Iterator[str]:
    for change in changes:
        why = f": {one_line(change.why)}" if change.why else ""
        yield f"{clock(change.at)}  {one_line(change.verb)} by {one_line(change.by) or 'unknown'}{why}"
        if change.before is not None:
            yield f"    payload before: {one_line(json.dumps(change.before, ensure_ascii=False))}"


def _section(title: str, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    yield ""
    yield session().screen.strong(title)
    for line in lines:
        yield f"  {line}".rstrip()


def _when(job: Job, now: datetime) -> str:
    match job.view(now):
        case View.DUE:
            return f"waits {span(now - job.run_at)}"
        case View.WAITING:
            return "for other jobs"
        case View.UNREADABLE:
            return "no worker that tried can read its payload"
    if job.state is JobState.PROCESSING:
        return f"for {span(now - (job.started_at or now))}"
    return ago(job.run_at if job.state is JobState.PENDING else job.finished_at or job.updated_at, now)


def _pretty(raw: msgspec.Raw) -> str:
    value = json.loads(bytes(raw))
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _ONE_LINE else json.dumps(value, indent=2, ensure_ascii=False)


def _moment(moment: datetime, now: datetime) -> str:
    return f"{clock(moment)}  ({ago(moment, now)})"


_ONE_LINE = 90
_OUTCOMES = {"completed": "green", "retry": "yellow", "dead": "red"}
