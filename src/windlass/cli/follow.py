"""How does one watch a job until its end?"""

from __future__ import annotations

from contextlib import suppress

import click

from windlass.cli.screen import ago, one_line
from windlass.cli.session import session
from windlass.cli.story import error_line
from windlass.errors import Refused, WaitTimeout
from windlass.job import Attempt, Job, JobState
from windlass.ops import Ops
from windlass.ops.document import encode, job_document, plain
from windlass.ops.waiting import START_SHELL
from windlass.ops.words import count, start_worker
from windlass.queue import JobHandle
from windlass.registry import SHELL


def follow(handle: JobHandle) -> None:
    """Tell each failed attempt as it happens; at the end show the output and exit 0 or 1."""
    here = session()
    ops = here.queue_ops()
    # A key that may only produce is not told who works.
    with suppress(Refused):
        if not any(worker.alive for worker in ops.workers()):
            start = start_worker([handle.get().type])
            _say(f"no worker is running: start one with {start}, in another terminal")
    tell_of_shell(ops, handle.get())
    job = _to_the_end(handle, ops)
    if here.json:
        click.echo(encode({**plain(job_document(job, ops.now())), "created": handle.created}))
    else:
        _show_output(job)
    if job.state is not JobState.COMPLETED:
        attempts = count(job.attempts, "attempt")
        _say(f"{job.id} is {job.state} after {attempts}; windlass show {job.id} tells all")
        click.get_current_context().exit(1)


def tell_of_shell(ops: Ops, job: Job) -> None:
    """Say so if no running worker takes a shell job: workers run them where they are told to."""
    if job.type != SHELL or job.state is not JobState.PENDING:
        return
    with suppress(Refused):
        found = ops.explain(job.id)
        if any(START_SHELL in told for told in (found.sentence, *found.also)):
            _say(f"no running worker takes this shell job: {START_SHELL}")


def _to_the_end(handle: JobHandle, ops: Ops) -> Job:
    told = 0
    while True:
        job = _look(handle)
        for attempt in job.history:
            if attempt.claim > told and attempt.outcome != JobState.COMPLETED:
                _say(_failure(attempt, job, ops))
                told = attempt.claim
        if job.ended:
            return job


def _look(handle: JobHandle) -> Job:
    try:
        return handle.wait(timeout=_BETWEEN_LOOKS)
    except WaitTimeout:
        return handle.get()


def _failure(attempt: Attempt, job: Job, ops: Ops) -> str:
    what = one_line(error_line(attempt.error)) or attempt.outcome
    waits = attempt is job.history[-1] and job.state is JobState.PENDING
    again = f"; next attempt {ago(job.run_at, ops.now())}" if waits else ""
    return f"attempt {attempt.number} of {job.max_attempts}: {what}{again}"


def _show_output(job: Job) -> None:
    """What the last attempt said, each stream where it belongs."""
    output = job.history[-1].output if job.history else None
    if output is not None:
        click.echo(output.stdout, nl=False)
        click.echo(output.stderr, nl=False, err=True)


def _say(message: str) -> None:
    click.echo(f"windlass: {message}", err=True)


_BETWEEN_LOOKS = 0.5
