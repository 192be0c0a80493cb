"""What starts with one command?"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands import command, option
from windlass.cli.fleet import Restart
from windlass.cli.process import leave, signals, work_here
from windlass.cli.screen import as_typed
from windlass.cli.serve import PORT, patience_option, run_beside, serve_beside
from windlass.cli.session import Session, keep_log
from windlass.cli.work import worker_flags, worker_options
from windlass.config import Source
from windlass.demo import Producer, make_queue
from windlass.errors import InvalidValue, Refused, StoreError
from windlass.loop import Loop
from windlass.ops import Ops
from windlass.queue import Queue
from windlass.worker.worker import Worker, within

if TYPE_CHECKING:
    from windlass.server.run import Server

log = logging.getLogger("windlass.up")


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
def up(
    app: str | None,
    *,
    log_json: bool,
    verbose: bool,
    port: int | None,
    patience: str | None,
    no_server: bool,
    **given: Any,
) -> None:
    """Start everything in one process: a worker, which fires schedules, dashboard, HTTP API, demo jobs.

    With an APP its own jobs are run in place of the demo's. The API is for this machine: `windlass serve` is
    for others. Ctrl-C stops it cleanly.
    """
    if no_server and port is not None:
        raise click.UsageError("say either --port or --no-server")
    signals.obey()
    here = keep_log(log_json=log_json, verbose=verbose)
    here.flags |= worker_flags(app, given) | {"server.port": port, "server.patience": patience}
    if here.config.app:
        _run(here, here.queue, serves=not no_server)
        return
    with make_queue(here.config.database_url) as demo:
        _run(here, demo, serves=not no_server)


COMMANDS = (up,)


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
