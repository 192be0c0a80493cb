"""What starts with one command?"""

from __future__ import annotations

import contextlib
import logging
from datetime import timedelta
from importlib.metadata import version

import click

from windlass.cli.commands import Command
from windlass.cli.process import leave, obey_signals, work_here
from windlass.cli.session import Session, session
from windlass.cli.work import worker_flags, worker_options
from windlass.demo import Producer, make_queue
from windlass.errors import StoreError
from windlass.loop import Loop
from windlass.ops import Ops
from windlass.queue import Queue
from windlass.worker.bounded import within
from windlass.worker.worker import Worker

log = logging.getLogger("windlass.up")


@click.command(
    cls=Command,
    examples="""
        windlass up                      demo jobs, to look around
        windlass up myapp:queue          the jobs of your application
        windlass status                  in another terminal
    """,
)
@click.argument("app", required=False, metavar="[APP]")
@worker_options
def up(
    app: str | None, concurrency: int | None, types: str | None, no_shell: bool, log_json: bool, verbose: bool
) -> None:
    """Start everything in one process: a worker, which fires schedules, and without an APP demo jobs for it.

    Ctrl-C stops it cleanly.
    """
    obey_signals()
    here = session()
    here.flags |= worker_flags(app, concurrency, types, no_shell=no_shell)
    if here.config.app:
        _run(here, here.queue, log_json=log_json, verbose=verbose)
        return
    with make_queue(here.config.database_url) as demo:
        _run(here, demo, log_json=log_json, verbose=verbose)


COMMANDS = (up,)


def _run(here: Session, queue: Queue, *, log_json: bool, verbose: bool) -> None:
    reporter = Reporter(Ops(queue.store))
    loops = [Loop("report", reporter.tick, every=_REPORT_EVERY, first=_FIRST_REPORT)]

    def started(worker: Worker) -> None:
        if not log_json and not here.json:
            _greet(here, worker)
        if not here.config.app:
            loops.append(Producer(queue, wanted=lambda: not worker.parts.draining).loop)
        for loop in loops:
            loop.start()

    try:
        work_here(here, queue, log_json=log_json, verbose=verbose, started=started)
    finally:
        # The store may be locked by others, and the worker's time is used up.
        for loop in loops:
            loop.stop(_LAST_SECONDS)
    within(_LAST_SECONDS, reporter.last_words, "last-report")
    leave(here)


def _greet(here: Session, worker: Worker) -> None:
    lines = [
        f"Windlass {version('windlass')} on {here.place}",
        f"A worker runs jobs of the types {', '.join(worker.types)}.",
    ]
    if not here.config.app:
        lines.append(
            "No app was named: a demo producer enqueues a job every few seconds. Some fail on purpose."
        )
    db = f" --db {here.flags['database_url']}" if "database_url" in here.flags else ""
    lines.append(
        f"Look at it from another terminal: windlass{db} status, windlass{db} list, windlass{db} dlq list"
    )
    lines.append("Ctrl-C stops it.")
    click.echo("\n".join(lines) + "\n", err=True)


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
