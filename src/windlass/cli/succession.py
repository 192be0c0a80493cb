"""How does a worker without a supervisor hand over to a new process when only that helps?"""

from __future__ import annotations

import logging
import os

from windlass.cli.fleet import make_supervisor
from windlass.cli.process import command_line, restart_process
from windlass.cli.session import Session
from windlass.clock import Clock, SystemClock
from windlass.queue import Queue
from windlass.worker.health import Health
from windlass.worker.supervisor import Adopted, Launch, Supervisor
from windlass.worker.worker import Worker

log = logging.getLogger("windlass.worker")

# The successor's process, its tag, where its reports come in and what it is watched by: from this process to
# its next image.
VARIABLE = "WINDLASS_ADOPTED"
# So long may late work end by itself before a process that cannot hand over drains.
_PATIENCE_SECONDS = 10.0


class Handover:
    """Starts a successor below this process, lets the worker finish, and becomes the successor's supervisor.

    The number of the process stays, so the process that started it still signals the right one.
    """

    def __init__(self, here: Session, worker: Worker, *, queue: Queue) -> None:
        self._here = here
        self._worker = worker
        self._queue = queue
        self._supervisor: Supervisor | None = None

    @property
    def begun(self) -> bool:
        """Whether there is anything to shut down yet."""
        return self._worker.begun

    def look(self) -> None:
        """Start the successor if one is needed; the worker leaves only when that one is well."""
        if self._supervisor is None:
            if not self._worker.restart_reason:
                return
            log.info("worker.replacing", extra={"pid": os.getpid(), "why": self._worker.restart_reason})
            self._supervisor = make_supervisor(
                self._here,
                self._queue,
                1,
                Launch(command_line(self._here), self._here.environment, self._here.folder),
                alone=False,
            )
        self._supervisor.look()
        if not self._worker.leaving and self._supervisor.well:
            log.info("worker.succeeded", extra={"pid": os.getpid()})
            self._worker.retire()

    def request_stop(self) -> None:
        """Both end, each with the usual grace for its jobs."""
        self._worker.request_stop()
        if self._supervisor is not None:
            self._supervisor.request_stop()

    def abandon(self) -> None:
        """Both end at once."""
        if self._supervisor is not None:
            self._supervisor.abandon()
        self._worker.abandon()

    def health(self) -> Health:
        """The worker's, and once it has handed over, its successor's."""
        if self._supervisor is not None and self._worker.retired:
            return self._supervisor.told()[0]
        return self._worker.health()

    def end(self) -> None:
        """End what does not end together with this image of the process; the next one keeps the successor."""
        if self._supervisor is None:
            return
        adopted = self._supervisor.released()
        if self._worker.retired and adopted is not None:
            if adopted.box >= 0:
                # The box closes its own descriptor when this image ends.
                adopted = adopted._replace(box=os.dup(adopted.box))
            _keep_open(adopted, inherited=True)
            restart_process(self._here, {VARIABLE: ":".join(map(str, adopted))})
        else:
            # A signal, or an operator who drained the worker before its successor was there.
            self._supervisor.request_stop()
        self._supervisor.run()

    def may_go(self) -> bool:
        """Whether only one worker is left to hand on; a successor may be replaced by another just now."""
        return self._supervisor is None or self._supervisor.released() is not None


class Restart:
    """Restarts a process that does more than work, and so cannot have a successor beside it: `windlass up`.

    It waits for late work to end by itself, then drains, for no longer than the grace of a shutdown.
    """

    def __init__(self, here: Session, worker: Worker, *, clock: Clock | None = None) -> None:
        self._here = here
        self._worker = worker
        self._clock = clock or SystemClock()
        self._since: float | None = None

    @property
    def begun(self) -> bool:
        """Whether there is anything to shut down yet."""
        return self._worker.begun

    def look(self) -> None:
        """Drain when the worker has needed a new process for a while."""
        now = self._clock.monotonic()
        if not self._worker.restart_reason:
            self._since = None
            return
        self._since = now if self._since is None else self._since
        if now - self._since >= _PATIENCE_SECONDS:
            self._worker.retire(self._here.config.worker().grace)

    def may_go(self) -> bool:
        """No successor is waited for."""
        return True

    def request_stop(self) -> None:
        """The worker ends, and this process with it."""
        self._worker.request_stop()

    def abandon(self) -> None:
        """The same at once."""
        self._worker.abandon()

    def health(self) -> Health:
        """The worker's."""
        return self._worker.health()

    def end(self) -> None:
        """The worker has ended: because only a new process helps, or because somebody asked for it."""
        if self._worker.retired:
            restart_process(self._here)


def take_adopted() -> Adopted | None:
    """The worker that this process started in its former image, and supervises from now on."""
    told = os.environ.pop(VARIABLE, None)
    if told is None:
        return None
    pid, tag, reports, box = told.split(":")
    adopted = Adopted(int(pid), tag, int(reports), int(box))
    _keep_open(adopted, inherited=False)
    return adopted


def _keep_open(adopted: Adopted, *, inherited: bool) -> None:
    for number in (adopted.reports, adopted.box):
        if number >= 0:
            os.set_inheritable(number, inherited)
