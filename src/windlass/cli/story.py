"""How is a job told to a person: in one line, and in full?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from windlass.cli.screen import Cell, Screen, age, ago, block, cut, number, one_line, took
from windlass.job import HUNG, SUSPECT_AFTER, Attempt, Change, Error, Job, JobState, Output, View
from windlass.ops import Ties
from windlass.ops.document import change_shown, payload_shown
from windlass.store.chains import BatchInfo

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


def job_row(job: Job, now: datetime) -> list[Cell | str | int]:
    """A job as a line of a table; the view stands in for the state where there is one."""
    shown = job.view(now) or job.state
    return [
        job.id,
        one_line(job.type),
        Cell(shown, COLOURS[shown]),
        job.priority,
        f"{job.attempts}/{job.max_attempts}",
        _when(job, now),
        # Also where nobody says how wide a line is: `show` and --json have it whole.
        cut(one_line(" · ".join(part for part in (job.key, error_line(job.error)) if part)), _LONGEST_CELL),
    ]


def tell(
    job: Job, now: datetime, screen: Screen, ties: Ties | None = None, why: str | None = None
) -> Iterator[str]:
    """The whole story of a job, line by line."""
    shown = job.view(now)
    state = f"{job.state} ({shown})" if shown else job.state.value
    yield f"{screen.strong(job.id)}  {screen.paint(state, COLOURS[shown or job.state])}"
    yield ""
    for name, value in (*_facts(job, now), *_ties(ties or Ties(), now)):
        yield f"  {name:<12}{value}"
    if why is not None:
        yield f"  {'why':<12}{one_line(why)}"
    yield from _section(screen, "Payload", block(_pretty(payload_shown(job))))
    if job.result is not None:
        yield from _section(screen, "Result", block(_pretty(job.result)))
    elif job.result_missing is not None:
        yield from _section(screen, "Result", [f"not kept: {one_line(job.result_missing)}"])
    if job.history:
        yield from _section(screen, "Attempts", _attempts(job.history, screen))
    if job.changes:
        yield from _section(screen, "Changes", _changes([change_shown(change) for change in job.changes]))


def tell_batch(batch: BatchInfo, now: datetime, screen: Screen) -> Iterator[str]:
    """How far a batch has come, line by line."""
    name = f"  {one_line(batch.name)}" if batch.name else ""
    yield f"{screen.strong(batch.id)}{name}  {number(batch.ended)} of {number(batch.total)} ended"
    yield ""
    for state in JobState:
        if state in batch.counts:
            yield f"  {screen.paint(f'{state:<12}', COLOURS[state])}{number(batch.counts[state])}"
    yield f"  {'created':<12}{_moment(batch.created_at, now)}"
    if batch.finished_at is not None:
        yield f"  {'finished':<12}{_moment(batch.finished_at, now)}"
    if batch.then_id is not None:
        yield f"  {'then':<12}{batch.then_id}{'' if batch.finished_at else ', when all have ended'}"


def _ties(ties: Ties, now: datetime) -> Iterator[tuple[str, str]]:
    if ties.progress is not None:
        done, total = ties.progress.done, ties.progress.total
        share = f" of {number(total)} ({done * 100 // max(total, 1)} %)" if total is not None else ""
        told = f", {one_line(ties.progress.message)}" if ties.progress.message else ""
        yield "progress", f"{number(done)}{share}{told}, said {_moment(ties.progress.noted_at, now)}"
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
    told = ": ".join(part for part in (error.kind, error.message) if part)
    return told if error.reason == "exception" and told else f"{error.reason}: {told}".rstrip(": ")


def _facts(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    yield "type", one_line(job.type) + (f"  (schema {job.schema_version})" if job.schema_version != 1 else "")
    yield "priority", str(job.priority)
    named = ("key", job.key), ("tenant", job.tenant), ("reference", job.payload_ref), ("trace", job.trace)
    for name, given in (*named, ("rerun of", job.rerun_of)):
        if given:
            yield name, one_line(given)
    yield "attempts", _attempts_line(job)
    yield "created", _moment(job.created_at, now)
    if job.state is JobState.PENDING and job.view(now) not in (View.WAITING, View.UNREADABLE):
        yield "runs at", _moment(job.run_at, now)
    if job.started_at is not None:
        yield "started", _moment(job.started_at, now)
    if job.finished_at is not None:
        yield "finished", _moment(job.finished_at, now)
    if job.worker is not None:
        yield "worker", one_line(job.worker)
    if job.lease_until is not None:
        yield "lease until", _moment(job.lease_until, now)
    if job.request is not None:
        yield "asked", f"{job.request}: its worker is told within a second"
    if job.error is not None:
        yield "error", one_line(error_line(job.error))


def _attempts_line(job: Job) -> str:
    line = f"{job.attempts} of {job.max_attempts}"
    more = [
        (job.replay_count, "replayed"),
        (job.snoozes, "snoozed"),
        (job.interruptions, "interrupted by a shutdown"),
        (_losses(job), "lost with its worker"),
    ]
    told = [f"{what} {'once' if count == 1 else f'{count} times'}" for count, what in more if count]
    return "; ".join([line, *told])


def _losses(job: Job) -> int:
    """A worker that a job has hung counts for more than one, so that the job is suspect at once."""
    hangs = sum(attempt.error is not None and attempt.error.kind == HUNG for attempt in job.history)
    return max(0, job.losses - hangs * (SUSPECT_AFTER - 1))


def _attempts(history: Sequence[Attempt], screen: Screen) -> Iterator[str]:
    for attempt in history:
        colour = _OUTCOMES.get(attempt.outcome)
        duration = took(attempt.finished_at - attempt.started_at)
        yield (
            f"{screen.strong(f'#{attempt.number}')}  {screen.paint(attempt.outcome, colour)} after {duration}"
            f", {_clock(attempt.started_at)}, by {one_line(attempt.worker)}{_release(attempt)}"
        )
        if attempt.output is not None:
            yield from _output(attempt.output)
        if attempt.error is not None:
            yield f"    {one_line(error_line(attempt.error))}"
            lines = block(attempt.error.traceback or "")
            # A single line is the error once more.
            yield from (f"    {line}" for line in lines if len(lines) > 1)


def _release(attempt: Attempt) -> str:
    return f" ({one_line(attempt.app)})" if attempt.app else ""


def _output(output: Output) -> Iterator[str]:
    if output.exit_code is not None:
        yield f"    exit code {output.exit_code}"
    for name, text in (("stdout", output.stdout), ("stderr", output.stderr)):
        yield from (f"    {name} | {line}" for line in block(text))


def _changes(changes: Sequence[Change]) -> Iterator[str]:
    for change in changes:
        why = f": {one_line(change.why)}" if change.why else ""
        yield f"{_clock(change.at)}  {one_line(change.verb)} by {one_line(change.by) or 'unknown'}{why}"
        if change.before is not None:
            yield f"    payload before: {one_line(json.dumps(change.before, ensure_ascii=False))}"


def _section(screen: Screen, title: str, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    yield ""
    yield screen.strong(title)
    for line in lines:
        yield f"  {line}".rstrip()


def _when(job: Job, now: datetime) -> str:
    if job.state is JobState.PROCESSING:
        return f"for {age(now - (job.started_at or now))}"
    if job.view(now) is View.DUE:
        return f"waits {age(now - job.run_at)}"
    if job.view(now) is View.WAITING:
        return "for other jobs"
    if job.view(now) is View.UNREADABLE:
        return "no worker that tried can read its payload"
    if job.state is JobState.PENDING:
        return ago(job.run_at, now)
    return ago(job.finished_at or job.updated_at, now)


def _pretty(raw: msgspec.Raw) -> str:
    value = json.loads(bytes(raw))
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _ONE_LINE else json.dumps(value, indent=2, ensure_ascii=False)


def _moment(moment: datetime, now: datetime) -> str:
    return f"{_clock(moment)}  ({ago(moment, now)})"


def _clock(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


_ONE_LINE = 90
_OUTCOMES = {"completed": "green", "retry": "yellow", "dead": "red"}
