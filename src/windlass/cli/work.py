"""How are workers started, alone or with all else in one process, watched and stopped?"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.actions import commands
from windlass.cli.commands import command, group, option, options, span
from windlass.cli.fleet import Handover, Restart, supervise_here, take_adopted
from windlass.cli.process import leave, signals, work_here
from windlass.cli.screen import Cell, Row, age, as_typed, say
from windlass.cli.serve import PORT, patience_option, run_beside, serve_beside
from windlass.cli.session import Session, answer, end, keep_log, session, table
from windlass.config import Source
from windlass.demo import Producer, make_queue
from windlass.errors import InvalidValue, Refused, StoreError
from windlass.loop import Loop
from windlass.ops import Ops, WorkerHealth
from windlass.ops.document import worker_document
from windlass.queue import Queue
from windlass.size import size_text
from windlass.worker.health import parse_address
from windlass.worker.supervisor import take_up
from windlass.worker.worker import Remaining, Worker, within

if TYPE_CHECKING:
    from windlass.server.run import Server

log = logging.getLogger("windlass.up")

worker_options = options(
    option("--concurrency N", "So many jobs at once, of all kinds together.", type=int),
    option("--types A,B", "Serve only these types; patterns such as email.* are fine."),
    option(
        "--shell/--no-shell",
        "Run all shell jobs, or none.  [those of this machine, if the store is a file without API keys]",
        default=None,
    ),
    option("--hang-limit DURATION|off", "Kill a worker process that does not answer for so long.  [15s]"),
    option("--log-json", "Log in JSON, a line per event."),
    option("--verbose -v", "Log every job that is completed as well."),
)


@group("""
    windlass worker start myapp:queue
    windlass worker health
    windlass worker stop
""")
def worker() -> None:
    """Workers: the processes that run jobs."""


@worker.subcommand("""
    windlass worker start myapp:queue
    windlass worker start myapp:queue --concurrency 20 --types 'email.*,report'
    windlass worker start myapp:queue --count 4 --probe 8081
    windlass worker start myapp:queue --pool 'email=send_*:5' --pool 'reports=report.*:2'
    windlass worker start myapp:queue --watch           while developing
    windlass worker start myapp:queue --until-empty
    windlass worker start --shell                       shell jobs only
""")
@click.argument("app", required=False, metavar="[APP]")
@worker_options
@option("--count N", "So many worker processes, kept running.", type=click.IntRange(1, 1000), default=1)
@option("--pool NAME=TYPES:SLOTS", "Slots of their own for some types; may be repeated.", multiple=True)
@option("--memory SIZE", "What jobs with a memory limit may take together, such as 8GB.")
@option("--probe [HOST:]PORT", "Answer by HTTP whether all is well: 200 or 503.")
@option("--watch", "Restart when a file of the application changes.")
@option("--until-empty", "Exit when nothing runs and nothing can be claimed.")
def start(app: str | None, count: int, watch: bool, until_empty: bool, **given: Any) -> None:
    """Run jobs until stopped. APP is the application's queue as module:queue.

    Ctrl-C, SIGTERM or SIGHUP: nothing more is claimed, what runs may finish for 25 seconds, the rest is given
    back. A second Ctrl-C or SIGTERM: at once. With --until-empty, jobs that are scheduled or wait for a retry
    are counted on the last line, not waited for; a signal ends it with 130, 143 or 129, a drain with 1.
    """
    supervised, adopted = take_up(), take_adopted()
    once = until_empty and supervised is None
    signals.obey(supervised=supervised is not None, adopts=adopted is not None, ends_by_itself=once)
    here = keep_log(given)
    probe, given["pools"] = given.pop("probe"), given.pop("pool")
    here.flags |= worker_flags(app, given)
    address = None if probe is None else parse_address(probe)
    remaining, code = None, 0
    if adopted is not None or (supervised is None and (count > 1 or watch)):
        code = supervise_here(here, count, address=address, watch=watch, adopted=adopted)
        code = code or (signals.code if once else 0)
    else:
        remaining = work_here(
            here,
            here.queue,
            until_empty=until_empty,
            address=None if supervised else address,
            supervised=supervised,
            succession=None if supervised else partial(Handover, here),
        )
    if remaining is not None:
        answer(remaining, _lines(remaining))
        code = {"empty": 0, "drained": 1, "signal": signals.code}[remaining.ended] if once else 0
    leave(here, code)
    end(code)


@worker.subcommand("""
    windlass worker stop
    windlass worker stop --within 5m
""")
@option("--within DURATION", "Wait so long.", type=span, default="45s", show_default=True)
def stop(within: timedelta) -> None:
    """Stop the workers of this store that run on this machine, gently, and wait until they are gone."""
    result = session().ops().stop_local(within=within)
    lines = [f"{name}: stopped" for name in result.stopped]
    none = "no worker of this store runs on this machine"
    answer(result, lines or (() if result.left else none))
    for name in result.left:
        say(f"{name} still runs; it goes on stopping")
    end(int(bool(result.left)))


@worker.subcommand("""
    windlass worker health
    windlass worker health --all
    windlass worker health --json
""")
@option("--all", "Those that stopped as well.", name="everything")
def health(everything: bool) -> None:
    """Every worker and its last heartbeat; exit 0 if at least one is alive."""
    found = [each for each in session().ops().workers() if everything or each.info.state != "stopped"]
    head = ("WORKER", "STATE", "HEARTBEAT", "BUSY", "MEMORY", "DONE", "FAILED", "LATE", "TYPES")
    document = {"workers": [worker_document(each) for each in found]}
    answer(document, table(head, map(_row, found), "no worker is running"))
    end(int(not any(each.alive for each in found)))


for _command in commands("workers/"):
    worker.add_command(_command)


def worker_flags(app: str | None, given: Mapping[str, object]) -> dict[str, object]:
    """The flags that were given, by the names of their options."""
    flags = {"app": app, **{f"worker.{name}": value for name, value in given.items()}}
    return {name: value for name, value in flags.items() if value not in (None, ())}


def _row(each: WorkerHealth) -> Row:
    info = each.info
    ended = info.state in ("stopped", "dead")
    state = info.state if ended or each.alive else "silent"
    colour = "green" if each.alive else "bright_black" if state == "stopped" else "red"
    busy = f"{info.busy}/{info.slots}" + (f" (+{info.held} held)" if info.held else "")
    memory = None if info.resident_bytes is None else size_text(info.resident_bytes)
    seen, types = f"{age(each.silent_for)} ago", ", ".join(info.types)
    return [info.id, Cell(state, colour), seen, busy, memory, info.done, info.failed, info.late, types]


def _lines(remaining: Remaining) -> str:
    now = {"due": remaining.due, "processing": remaining.processing}
    why = {"signal": "stopped by a signal", "drained": "stopped by an operator"}.get(remaining.ended)
    if why is None:
        # Others may have enqueued or claimed some after the last look.
        why = "ended" if any(now.values()) else "nothing left to run"
        now = {what: number for what, number in now.items() if number}
    others = {
        "waiting for other jobs": remaining.waiting,
        "paused": remaining.paused,
        "unreadable by this release (windlass list --state unreadable)": remaining.unreadable,
    }
    more = "".join(f", {number} {what}" for what, number in others.items() if number)
    busy = "".join(f"{number} {what}, " for what, number in now.items())
    return as_typed(f"{why}; {busy}{remaining.scheduled} scheduled, {remaining.retrying} retrying{more}")


# --- everything in one process ------------------------------------------------------------------


@command("""
    windlass up                      demo jobs and the dashboard, to look around
    windlass up myapp:queue          the jobs of your application
    windlass up --port 9000          with the dashboard there, in place of 8080
    windlass status                  in another terminal
""")
@click.argument("app", required=False, metavar="[APP]")
@worker_options
@option(
    "--port PORT", f"Of the dashboard and the HTTP API.  [{PORT}, or any other if that is taken]", type=int
)
@patience_option
@option("--no-server", "Without the dashboard and the HTTP API.")
def up(app: str | None, port: int | None, patience: str | None, no_server: bool, **given: Any) -> None:
    """Start everything in one process: a worker, which fires schedules, dashboard, HTTP API, demo jobs.

    With an APP its own jobs are run in place of the demo's. The API is for this machine: `windlass serve` is
    for others. Ctrl-C stops it cleanly.
    """
    if no_server and port is not None:
        raise click.UsageError("say either --port or --no-server")
    signals.obey()
    here = keep_log(given)
    here.flags |= worker_flags(app, given) | {"server.port": port, "server.patience": patience}
    if here.config.app:
        _run(here, here.queue, serves=not no_server)
        return
    with make_queue(here.config.database_url) as demo:
        _run(here, demo, serves=not no_server)


def _run(here: Session, queue: Queue, *, serves: bool) -> None:
    """Work until a signal ends it."""
    reporter = Reporter(Ops(queue.store))
    loops = [Loop("report", reporter.tick, every=_REPORT_EVERY, first=_FIRST_REPORT)]
    stops: list[Callable[[], None]] = []

    def started(worker: Worker) -> None:
        server, said = _server(here, queue) if serves else (None, None)
        if not here.log_json:
            _greet(here, worker, said)
        elif said is not None:
            log.info("up.server", extra={"note": said})
        if server is not None:
            stops.append(run_beside(server, worker.stopping))
        if not here.config.app:
            loops.append(Producer(queue, worker.types, wanted=lambda: not worker.parts.draining).loop)
        for loop in loops:
            loop.start()

    try:
        restart = partial(Restart, here)
        work_here(here, queue, succession=restart, started=started)
    finally:
        for stop in stops:
            stop()
        # The store may be locked by others, and the worker's time is used up.
        for loop in loops:
            loop.stop(_LAST_SECONDS)
    within(_LAST_SECONDS, reporter.last_words, "last-report")
    leave(here)


def _server(here: Session, queue: Queue) -> tuple[Server | None, str]:
    """What answers requests, and what is said of it; without the server's packages the rest goes on."""
    fixed = here.config.values["server.port"].source is not Source.DEFAULT
    try:
        server, url = serve_beside(queue, here.config.server(), fixed=fixed)
    except InvalidValue as wrong:
        raise here.config.placed("server", wrong) from None
    except Refused as missing:
        if here.config.sets("server"):
            raise
        return None, f"There is no HTTP API: {missing}"
    api = f"The HTTP API is at {url}/api/v1, and described at {url}/docs"
    return server, f"The dashboard is at {url}\n{api}"


def _greet(here: Session, worker: Worker, server: str | None) -> None:
    db = f" --db {here.flags['database_url']}" if "database_url" in here.flags else ""
    demo = "No app was named: a demo producer enqueues a job every few seconds. Some fail on purpose."
    seen = f"windlass{db} status, windlass{db} list, windlass{db} dlq list"
    lines = (
        f"Windlass {version('windlass')} on {here.place}",
        f"A worker runs jobs of the types {', '.join(worker.types)}.",
        server,
        None if here.config.app else demo,
        f"Look at it from another terminal: {as_typed(seen)}",
        "Ctrl-C stops it.",
    )
    click.echo("\n".join(line for line in lines if line is not None) + "\n", err=True)


class Reporter:
    """Says now and then how things stand, when anything has changed."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._said: dict[str, int] = {}

    def tick(self) -> None:
        """Log the counts if they are news."""
        counts = {name: count for name, count in self._ops.status().counts.items() if count}
        if counts != self._said:
            log.info("queue.counts", extra=counts)
            self._said = counts

    def last_words(self) -> None:
        """The counts once more, if the store still tells."""
        with contextlib.suppress(StoreError):
            self.tick()


_LAST_SECONDS = 0.2
_FIRST_REPORT = timedelta(seconds=1)
_REPORT_EVERY = timedelta(seconds=5)
UP = (up,)
COMMANDS = (worker,)
