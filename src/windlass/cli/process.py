"""How does this process become a worker, and how does it end when told to?"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from fnmatch import fnmatchcase
from types import FrameType

import click
import msgspec

from windlass.cli.logs import log_to_stderr
from windlass.cli.session import Session
from windlass.config import WorkerConfig
from windlass.queue import Queue
from windlass.registry import SHELL
from windlass.worker.leftovers import Remaining
from windlass.worker.worker import Worker


def work_here(
    here: Session,
    queue: Queue,
    *,
    log_json: bool,
    until_empty: bool = False,
    started: Callable[[Worker], None] = lambda _: None,
) -> Remaining | None:
    """Be a worker until a signal, an operator or, if asked, an empty queue ends it."""
    config = _config(here)
    log_to_stderr(as_json=log_json or here.json)
    worker = Worker(queue.store, queue.wakeup, queue.registry, config)
    if not worker.types:
        raise click.UsageError("there is nothing to serve: name an APP, or leave --no-shell away")
    _obey_signals(worker)
    started(worker)
    if until_empty:
        return worker.run_until_empty()
    worker.run()
    return None


def _config(here: Session) -> WorkerConfig:
    """Shell jobs are a type like any other: a choice of types that leaves them out leaves them out."""
    config = here.config.worker()
    if config.types and not any(fnmatchcase(SHELL, pattern) for pattern in config.types):
        config = msgspec.structs.replace(config, shell=False)
    return config


def _obey_signals(worker: Worker) -> None:
    """The first signal begins the shutdown, a second one ends the process at once."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGINT, abandon)
        signal.signal(signal.SIGTERM, abandon)
        os.write(_STDERR, b"\n" if number == signal.SIGINT else b"")
        worker.request_stop()

    def abandon(number: int, _: FrameType | None) -> None:
        worker.abandon()
        # Without the interpreter's own farewell, which would wait for threads.
        os._exit(_SIGNALLED + number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


_STDERR = 2
_SIGNALLED = 128
