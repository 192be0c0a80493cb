"""How do jobs get in from a terminal?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from windlass.cli.commands import Command
from windlass.cli.follow import follow, tell_of_shell
from windlass.cli.imports import import_batch, import_file, key_is_taken, type_is_unknown
from windlass.cli.options import F, moment, rate, span
from windlass.cli.request import Request, read_request
from windlass.cli.screen import ago
from windlass.cli.session import session
from windlass.errors import KeyConflict, Refused, UnknownType
from windlass.job import Job, View
from windlass.ops.document import encode, job_document, plain
from windlass.payload import parse
from windlass.queue import JobHandle
from windlass.registry import SHELL


def job_options(command: F) -> F:
    """Add the options that every new job takes."""
    for option in reversed(_JOB):
        command = option(command)
    return command


_JOB = (
    click.option(
        "--priority", type=int, metavar="N", help="0 to 10, higher first; 5 unless the type says otherwise."
    ),
    click.option("--delay", type=span, metavar="DURATION", help="Not before this time has passed."),
    click.option("--at", type=moment, metavar="TIME", help="Not before this time; without a zone it is UTC."),
    click.option("--key", metavar="KEY", help="A name of its own: the same job sent twice is stored once."),
    click.option(
        "--existing",
        is_flag=True,
        help="If the key is taken, answer with the job that has it, whatever it is.",
    ),
    click.option("--tenant", metavar="NAME", help="Tenants are served in turn."),
    click.option("--payload-ref", metavar="REF", help="Where large data is, for the handler to fetch."),
    click.option("--unique", metavar="NAME", help="At most one job of that name at a time."),
    click.option("--until", type=click.Choice(["start", "done"]), help="How long it holds the name. [done]"),
    click.option(
        "--on-unique",
        type=click.Choice(["skip", "replace", "error"]),
        help="If a job holds the name: answer with it, give it this work, or refuse. [skip]",
    ),
    click.option("--max-attempts", type=int, metavar="N", help="Executions at most, 1 to 20."),
    click.option(
        "--depends-on", multiple=True, metavar="ID|KEY", help="Only after this job has completed; repeatable."
    ),
    click.option(
        "--on-dead",
        type=click.Choice(["wait", "cancel", "run"]),
        help="What to do when a job that it depends on is dead; wait by default.",
    ),
)


@click.command(
    cls=Command,
    examples="""
        windlass enqueue send_email '{"to": "a@b.c", "subject": "Hi"}' --priority 8 --key signup:789
        windlass enqueue report.build '{"account_id": 7}' --at 2030-01-31T06:00:00Z
        windlass enqueue publish '{"page": "home"}' --depends-on render:home
        windlass enqueue '{"id": "job1", "command": "echo hi", "priority": 8}'
        windlass enqueue sync '{"account": 42}' --unique sync:42 --on-unique replace --delay 30s
        windlass enqueue --file jobs.ndjson --rate 200/s
        windlass enqueue --file pages.ndjson --batch catalogue       then: windlass batch ID
        generate-jobs | windlass enqueue --file -
    """,
)
@click.argument("type_or_job", metavar="TYPE|JOB", required=False)
@click.argument("payload", metavar="[PAYLOAD]", required=False)
@job_options
@click.option(
    "--file", "path", metavar="PATH", help="One job as a JSON object per line; - is standard input."
)
@click.option("--rate", type=rate, metavar="N/s", help="With --file: at most so many a second.")
@click.option("--batch", metavar="NAME", help="With --file: as one batch, all or none, up to 10,000 jobs.")
def enqueue(
    type_or_job: str | None,
    payload: str | None,
    path: str | None,
    rate: float | None,
    batch: str | None,
    **given: Any,
) -> None:
    """Put a job into the queue.

    Three forms: a TYPE with its PAYLOAD, a JSON object; one JSON object for the whole JOB, where a "command"
    is a shell job and an "id" is its key; or a file with many such objects, each on its own line. A file is
    checked to its end before the first job is stored.
    """
    options = _options(given)
    if path is not None:
        if type_or_job is not None or options:
            raise click.UsageError("with --file the lines say it all: no TYPE, PAYLOAD or options of a job")
        _import(path, rate, batch)
        return
    if rate is not None or batch is not None:
        raise click.UsageError(f"{'--rate' if rate is not None else '--batch'} is for --file")
    if type_or_job is None:
        raise click.UsageError("say which job: TYPE and PAYLOAD, a JSON object, or --file")
    _store(_asked(type_or_job, payload), options)


@click.command(
    cls=Command,
    options_metavar="[OPTIONS] --",
    examples="""
        windlass run -- tar czf backup.tgz data
        windlass run --wait -- sh -c 'make && make deploy'
        windlass run --max-attempts 3 --timeout 10m --key nightly -- ./nightly.sh
        windlass config set shell.retry.base 5s        how long failed commands wait
    """,
)
@click.argument("command", nargs=-1, required=True, metavar="COMMAND [ARG]...")
@job_options
@click.option(
    "--timeout", type=span, metavar="DURATION", help="Stop the command after this time; 5m by default."
)
@click.option("--cwd", metavar="DIR", help="The folder to run it in; the worker's own by default.")
@click.option(
    "--wait", is_flag=True, help="Follow it to its end, show its output, and exit 0 only if it succeeded."
)
def run(
    command: tuple[str, ...], timeout: timedelta | None, cwd: str | None, wait: bool, **given: Any
) -> None:
    """Run a command as a job. Any exit code but 0 is a failure, and is tried again as the settings say."""
    payload: dict[str, Any] = {"command": list(command)}
    if timeout is not None:
        if timeout <= timedelta(0):
            raise click.UsageError("--timeout must be more than 0")
        payload["timeout"] = timeout.total_seconds()
    if cwd is not None:
        payload["cwd"] = cwd
    request = Request(SHELL, payload, {})
    if not wait:
        _store(request, _options(given))
        return
    follow(_enqueued(request, _options(given)))


COMMANDS = (enqueue, run)


def _asked(type_or_job: str, payload: str | None) -> Request:
    if not type_or_job.lstrip().startswith("{"):
        return Request(type_or_job, parse(payload) if payload is not None else {}, {})
    if payload is not None:
        raise click.UsageError("a JSON object stands for the whole job: no PAYLOAD beside it")
    return read_request(type_or_job)


def _import(path: str, rate: float | None, batch: str | None) -> None:
    if batch is None:
        import_file(session().queue, path, rate)
    elif rate is not None:
        raise click.UsageError("--rate cannot be combined with --batch, which is stored at once")
    else:
        import_batch(session().queue, path, batch)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the job that were given, as a producer says them."""
    options = {name: value for name, value in given.items() if value is not None}
    if "delay" in options and "at" in options:
        raise click.UsageError("--at cannot be combined with --delay")
    if options.pop("existing"):
        options["on_conflict"] = "existing"
    if not options["depends_on"]:
        del options["depends_on"]
        if "on_dead" in options:
            raise click.UsageError("--on-dead is for --depends-on")
    return options


def _enqueued(request: Request, options: dict[str, Any]) -> JobHandle:
    try:
        return session().queue.enqueue(request.type, request.payload, **{**request.options, **options})
    except KeyConflict as error:
        raise Refused(f"{key_is_taken(error)}; use another key, or --existing to be given that job") from None
    except UnknownType as error:
        raise Refused(type_is_unknown(error, session().queue)) from None


def _store(request: Request, options: dict[str, Any]) -> None:
    here = session()
    handle = _enqueued(request, options)
    job, now = handle.get(), here.queue.store.now()
    if here.json:
        click.echo(encode({**plain(job_document(job, now)), "created": handle.created}))
    elif not handle.created:
        click.echo(f"{job.id}  {job.type} exists already with that key; it is {job.state}")
    else:
        click.echo(f"{job.id}  {job.type} enqueued{_when(job, now)}")
    tell_of_shell(here.queue_ops(), job)


def _when(job: Job, now: datetime) -> str:
    match job.view(now):
        case View.SCHEDULED:
            return f", runs {ago(job.run_at, now)}"
        case View.WAITING:
            return ", waits for others"
        case View.UNREADABLE:
            return ", waits for a worker that can read its payload"
        case _:
            return ""
