"""Put jobs in: one by one, or from a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from itertools import islice
from typing import IO, Any

import click
import msgspec

from windlass import connect
from windlass.checks import read_moment
from windlass.cli.commands import command, moment, option, options, rate, span
from windlass.cli.jobs import error_line
from windlass.cli.screen import one_line, progress, say
from windlass.cli.session import answer, end, session
from windlass.errors import (
    InvalidValue,
    KeyConflict,
    Refused,
    StoreError,
    UnknownType,
    WaitTimeout,
    WindlassError,
    must_be,
)
from windlass.job import Job, JobState, NewJob, View
from windlass.ops import Ops, Pace
from windlass.ops.document import job_document, plain
from windlass.ops.explain import START_SHELL
from windlass.ops.words import ago, count, start_worker
from windlass.payload import parse
from windlass.queue import JobHandle, Queue
from windlass.registry import SHELL

_JOB_FIELDS = ("type", "payload")
_COMMAND = ("command", "timeout", "cwd", "env")
OPTIONS = (
    *("id", "key", "priority", "delay", "run_at", "max_attempts", "tenant", "payload_ref", "depends_on"),
    *("on_dead", "unique", "until", "on_unique"),
)


class Request(msgspec.Struct, frozen=True):
    """A job as asked for: its type, its payload, and the options of `Queue.enqueue`."""

    type: str
    payload: dict[str, Any]
    options: dict[str, Any]


def read_request(text: str | bytes, field: str = "job") -> Request:
    """A job from one JSON object: a type with its payload, or a command for the shell. An id is a key."""
    given = parse(text, field)
    allowed = (*(_COMMAND if "command" in given else _JOB_FIELDS), *OPTIONS)
    for name in given:
        if name not in allowed:
            raise must_be(f"each field of {field}", name, "one of " + ", ".join(allowed))
    if "command" in given:
        payload = {name: given[name] for name in _COMMAND if name in given}
        return Request(SHELL, payload, _job_options(given))
    if not isinstance(given.get("type"), str):
        raise must_be(field, text, 'an object with a "type" and a "payload", or with a "command"')
    payload = given.get("payload", {})
    if not isinstance(payload, dict):
        raise must_be(f"payload of {field}", payload, "a JSON object")
    return Request(given["type"], payload, _job_options(given))


def _job_options(given: dict[str, Any]) -> dict[str, Any]:
    if "id" in given and "key" in given:
        raise must_be("key", given["key"], "left out where there is an id: they are the same thing")
    options = {name: given[name] for name in OPTIONS if given.get(name) is not None}
    if "id" in options:
        options["key"] = options.pop("id")
    if "run_at" in options:
        if "delay" in options:
            problem = "run_at and delay exclude each other"
            raise InvalidValue(problem, field="run_at", value=options["run_at"], allowed="left out")
        options["at"] = read_moment(options.pop("run_at"))
    return options


class Imported(msgspec.Struct):
    """How far an import has come."""

    enqueued: int = 0
    existing: int = 0
    last_line: int = 0

    def count(self, handles: Sequence[JobHandle]) -> None:
        """Count what was stored, and what was there before."""
        created = sum(handle.created for handle in handles)
        self.enqueued += created
        self.existing += len(handles) - created


class _Line(msgspec.Struct, frozen=True):
    number: int
    job: NewJob
    size: int


def import_file(queue: Queue, path: str, rate: float | None) -> None:
    """Enqueue every line of a file, `-` being standard input; at most `rate` a second.

    A file that can be read twice is checked to its end before anything is stored. A stream cannot be: there,
    what stands before the piece with the bad line is stored, and the error says so.
    """
    pace = Pace(rate)
    with _opened(path) as file:
        status = os.fstat(file.fileno())
        length = status.st_size if stat.S_ISREG(status.st_mode) else None
        if length is not None:
            for _ in _lines(queue, file):
                pass
            file.seek(0)
        done = _store_lines(queue, file, length, pace)
    _tell(done)


def import_batch(queue: Queue, path: str, name: str) -> None:
    """Enqueue the lines of a file as one batch, all or none."""
    with _opened(path) as file:
        lines = list(_lines(queue, file))
    done = Imported()
    with _naming_lines(lines), queue.batch(name) as batch:
        batch.add(*(line.job for line in lines))
    done.count(batch.jobs)
    _tell(done, batch.id)


def _tell(done: Imported, batch_id: str | None = None) -> None:
    batch = {} if batch_id is None else {"batch": batch_id}
    text = f"{count(done.enqueued, 'job')} enqueued" + (f" as batch {batch_id}" if batch_id else "")
    text += f", {done.existing} existed already by their keys" if done.existing else ""
    answer({**batch, "enqueued": done.enqueued, "existing": done.existing}, text)


def key_is_taken(error: KeyConflict) -> str:
    """What stands against a key, without the words that only code can follow."""
    return f"key {error.key!r} belongs to job {error.job_id}, which has another type or payload"


def type_is_unknown(error: UnknownType, queue: Queue) -> str:
    """What makes a type known: a store learns of it from whoever has its code; so far nobody was there."""
    if connect.is_http(queue.url):
        # Who has the code here is not asked: behind a server only workers say which types there are.
        return f"{error}; a worker of the application, on the store of the server, makes its types known"
    if session().config.app:
        return str(error)
    return f"{error}; --app module:queue, or a worker of the application, makes its types known"


def _store_lines(queue: Queue, file: IO[bytes], length: int | None, pace: Pace) -> Imported:
    done, size = Imported(), 0
    lines = _lines(queue, file)
    try:
        with progress("enqueue", length) as advance:
            while chunk := list(islice(lines, min(pace.step or _CHUNK, _CHUNK))):
                with _naming_lines(chunk):
                    done.count(queue.enqueue_many(line.job for line in chunk))
                done.last_line = chunk[-1].number
                size += sum(line.size for line in chunk)
                advance(size)
                pace.passed(len(chunk))
    except WindlassError as error:
        if not done.last_line:
            raise
        raise _with_progress(error, done) from None
    return done


@contextmanager
def _naming_lines(lines: Sequence[_Line]) -> Iterator[None]:
    """Say in which line a key is that is taken."""
    try:
        yield
    except KeyConflict as error:
        number = next(line.number for line in lines if line.job.key == error.key)
        raise Refused(f"line {number}: {key_is_taken(error)}; use another key") from None


def _lines(queue: Queue, file: Iterable[bytes]) -> Iterator[_Line]:
    for number, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            request = read_request(text.strip())
            job = queue.draft(request.type, request.payload, **request.options)
        except InvalidValue as error:
            raise must_be(f"line {number}: {error.field}", error.value, error.allowed) from None
        except UnknownType as error:
            raise Refused(f"line {number}: {type_is_unknown(error, queue)}") from None
        except Refused as error:
            raise Refused(f"line {number}: {error}") from None
        yield _Line(number, job, len(text))


def _with_progress(error: WindlassError, done: Imported) -> WindlassError:
    """The same error, and what is stored all the same."""
    many = count(done.enqueued + done.existing, "job")
    stored = f"{many} up to line {done.last_line} are stored, the rest is not"
    if isinstance(error, InvalidValue):
        return must_be(error.field, error.value, f"{error.allowed} ({stored})")
    kind = StoreError if isinstance(error, StoreError) else Refused
    return kind(f"{error}; {stored}")


def _opened(path: str) -> AbstractContextManager[IO[bytes]]:
    try:
        return click.open_file(path, "rb")
    except OSError as error:
        raise must_be("--file", path, f"a file that can be read ({error.strerror})") from None


_CHUNK = 1000


job_options = options(
    option("--priority N", "0 to 10, higher first; 5 unless the type says otherwise.", type=int),
    option("--delay DURATION", "Not before this time has passed.", type=span),
    option("--at TIME", "Not before this time; without a zone it is UTC.", type=moment),
    option("--key KEY", "A name of its own: the same job sent twice is stored once."),
    option("--existing", "If the key is taken, answer with the job that has it, whatever it is."),
    option("--tenant NAME", "Tenants are served in turn."),
    option("--payload-ref REF", "Where large data is, for the handler to fetch."),
    option("--unique NAME", "At most one job of that name at a time."),
    option("--until", "How long it holds the name. [done]", type=click.Choice(["start", "done"])),
    option(
        "--on-unique",
        "If a job holds the name: answer with it, give it this work, or refuse. [skip]",
        type=click.Choice(["skip", "replace", "error"]),
    ),
    option("--max-attempts N", "Executions at most, 1 to 20.", type=int),
    option("--depends-on ID|KEY", "Only after this job has completed; repeatable.", multiple=True),
    option(
        "--on-dead",
        "What to do when a job that it depends on is dead; wait by default.",
        type=click.Choice(["wait", "cancel", "run"]),
    ),
)


@command("""
    windlass enqueue send_email '{"to": "a@b.c", "subject": "Hi"}' --priority 8 --key signup:789
    windlass enqueue report.build '{"account_id": 7}' --at 2030-01-31T06:00:00Z
    windlass enqueue publish '{"page": "home"}' --depends-on render:home
    windlass enqueue '{"id": "job1", "command": "echo hi", "priority": 8}'
    windlass enqueue sync '{"account": 42}' --unique sync:42 --on-unique replace --delay 30s
    windlass enqueue --file jobs.ndjson --rate 200/s
    windlass enqueue --file pages.ndjson --batch catalogue       then: windlass batch ID
    generate-jobs | windlass enqueue --file -
""")
@click.argument("type_or_job", metavar="TYPE|JOB", required=False)
@click.argument("payload", metavar="[PAYLOAD]", required=False)
@job_options
@option("--file PATH", "One job as a JSON object per line; - is standard input.", name="path")
@option("--rate N/s", "With --file: at most so many a second.", type=rate)
@option("--batch NAME", "With --file: as one batch, all or none, up to 10,000 jobs.")
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
    chosen = _options(given)
    if path is not None:
        if type_or_job is not None or chosen:
            raise click.UsageError("with --file the lines say it all: no TYPE, PAYLOAD or options of a job")
        if batch is None:
            import_file(session().queue, path, rate)
        elif rate is not None:
            raise click.UsageError("--rate cannot be combined with --batch, which is stored at once")
        else:
            import_batch(session().queue, path, batch)
        return
    if rate is not None or batch is not None:
        raise click.UsageError(f"{'--rate' if rate is not None else '--batch'} is for --file")
    if type_or_job is None:
        raise click.UsageError("say which job: TYPE and PAYLOAD, a JSON object, or --file")
    _store(_asked(type_or_job, payload), chosen)


@command("""
    windlass run -- tar czf backup.tgz data
    windlass run --wait -- sh -c 'make && make deploy'
    windlass run --max-attempts 3 --timeout 10m --key nightly -- ./nightly.sh
    windlass config set shell.retry.base 5s        how long failed commands wait
""")
@click.argument("command", nargs=-1, required=True, metavar="COMMAND [ARG]...")
@job_options
@option("--timeout DURATION", "Stop the command after this time; 5m by default.", type=span)
@option("--cwd DIR", "The folder to run it in; the worker's own by default.")
@option("--wait", "Follow it to its end, show its output, and exit 0 only if it succeeded.")
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
    request, chosen = Request(SHELL, payload, {}), _options(given)
    if wait:
        follow(_enqueued(request, chosen))
    else:
        _store(request, chosen)


run.options_metavar = "[OPTIONS] --"
COMMANDS = (enqueue, run)


def _asked(type_or_job: str, payload: str | None) -> Request:
    if not type_or_job.lstrip().startswith("{"):
        return Request(type_or_job, parse(payload) if payload is not None else {}, {})
    if payload is not None:
        raise click.UsageError("a JSON object stands for the whole job: no PAYLOAD beside it")
    return read_request(type_or_job)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the job that were given, as a producer says them."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if "delay" in chosen and "at" in chosen:
        raise click.UsageError("--at cannot be combined with --delay")
    if chosen.pop("existing"):
        chosen["on_conflict"] = "existing"
    if not chosen["depends_on"]:
        del chosen["depends_on"]
        if "on_dead" in chosen:
            raise click.UsageError("--on-dead is for --depends-on")
    return chosen


def _enqueued(request: Request, options: dict[str, Any]) -> JobHandle:
    try:
        return session().queue.enqueue(request.type, request.payload, **{**request.options, **options})
    except KeyConflict as error:
        raise Refused(f"{key_is_taken(error)}; use another key, or --existing to be given that job") from None
    except UnknownType as error:
        raise Refused(type_is_unknown(error, session().queue)) from None


def _store(request: Request, options: dict[str, Any]) -> None:
    handle, ops = _enqueued(request, options), session().queue_ops()
    job, now = handle.get(), ops.now()
    when = _WHEN.get(job.view(now), "")
    text = f"enqueued{when.format(ago(job.run_at, now))}"
    if not handle.created:
        text = f"exists already with that key; it is {job.state}"
    document = {**plain(job_document(job, now)), "created": handle.created}
    answer(document, f"{job.id}  {job.type} {text}")
    tell_of_shell(ops, job)


_WHEN: dict[View | None, str] = {
    View.SCHEDULED: ", runs {}",
    View.WAITING: ", waits for others",
    View.UNREADABLE: ", waits for a worker that can read its payload",
}


def follow(handle: JobHandle) -> None:
    """Tell each failed attempt as it happens; at the end show the output and exit 0 or 1."""
    here = session()
    ops = here.queue_ops()
    # A key that may only produce is not told who works.
    with suppress(Refused):
        if not any(worker.alive for worker in ops.workers()):
            start = start_worker([handle.get().type])
            say(f"no worker is running: start one with {start}, in another terminal")
    tell_of_shell(ops, handle.get())
    job = _to_the_end(handle, ops)
    output = job.history[-1].output if job.history else None
    if here.json:
        answer({**plain(job_document(job, ops.now())), "created": handle.created}, ())
    elif output is not None:
        # What the last attempt said, each stream where it belongs.
        click.echo(output.stdout, nl=False)
        click.echo(output.stderr, nl=False, err=True)
    if job.state is not JobState.COMPLETED:
        attempts = count(job.attempts, "attempt")
        say(f"{job.id} is {job.state} after {attempts}; windlass show {job.id} tells all")
        end(1)


def tell_of_shell(ops: Ops, job: Job) -> None:
    """Say so if no running worker takes a shell job: workers run them where they are told to."""
    if job.type != SHELL or job.state is not JobState.PENDING:
        return
    with suppress(Refused):
        found = ops.explain(job.id)
        if any(START_SHELL in text for text in (found.sentence, *found.also)):
            say(f"no running worker takes this shell job: {START_SHELL}")


def _to_the_end(handle: JobHandle, ops: Ops) -> Job:
    reported = 0
    while True:
        try:
            job = handle.wait(timeout=_BETWEEN_LOOKS)
        except WaitTimeout:
            job = handle.get()
        for attempt in job.history:
            if attempt.claim > reported and attempt.outcome != JobState.COMPLETED:
                what = one_line(error_line(attempt.error)) or attempt.outcome
                waits = attempt is job.history[-1] and job.state is JobState.PENDING
                again = f"; next attempt {ago(job.run_at, ops.now())}" if waits else ""
                say(f"attempt {attempt.number} of {job.max_attempts}: {what}{again}")
                reported = attempt.claim
        if job.ended:
            return job


_BETWEEN_LOOKS = 0.5
