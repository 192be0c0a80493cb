"""Supervise several workers, or replace one that needs a new process."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

from windlass import connect, settings
from windlass.cli.logs import log_to_stderr
from windlass.cli.process import Succession, command_line, restart_process, signals
from windlass.cli.session import Session
from windlass.clock import Clock, SystemClock
from windlass.config import Source, cores, variable
from windlass.errors import StoreError, WorkerNotFound
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.queue import Queue
from windlass.upkeep.membership import Watchman, is_gone
from windlass.upkeep.membership import here as this_place
from windlass.upkeep.reaper import Reaper
from windlass.worker.admission import policy_of
from windlass.worker.children.process_tree import OomWatch
from windlass.worker.health import Health, HealthAddress
from windlass.worker.memory import SHARE_OF_MACHINE, machine_memory
from windlass.worker.supervisor import Adopted, Calls, Changes, Death, Launch, Supervisor
from windlass.worker.watch import Hang
from windlass.worker.watchdog import Notes
from windlass.worker.worker import Worker, within

log = logging.getLogger("windlass.supervisor")
_worker_log = logging.getLogger("windlass.worker")

_HAND_BACK_SECONDS = 5.0
_NOTE_SECONDS = 2.0


def supervise_here(
    here: Session, count: int, *, address: tuple[str, int] | None, watch: bool, adopted: Adopted | None
) -> int:
    """Keep so many workers running, each by the command line of this process; the exit code."""
    connect.check_direct(here.queue.url, "a worker")
    log_to_stderr(as_json=here.log_json, verbose=here.verbose)
    launch = Launch(command_line(here), {**os.environ, **_shares(here, count)})
    changed = Changes(Path.cwd(), SystemClock().monotonic) if watch else None
    supervisor = make_supervisor(here, count, launch, changed, adopted=adopted)
    if address is not None:
        HealthAddress(address, supervisor.health, supervisor.expose).start()
    signals.serve(supervisor)
    here.works = True
    log.info("supervisor.started", extra={"workers": count})
    return supervisor.run()


def make_supervisor(
    here: Session, count: int, launch: Launch, changed: Changes | None = None, **how: Any
) -> Supervisor:
    """A supervisor of workers that are started by the command line of this process."""
    config, clock, queue = here.config.worker(), SystemClock(), here.queue
    hands, limit = HandBack(queue), config.hang_limit
    notes = Notes(lambda: queue.store)
    notes.loop.start()

    def note(found: Hang) -> None:
        notes.note(found)
        # Before a kill the store should know why, if it answers.
        if found.event == "hung":
            notes.flush(_NOTE_SECONDS, clock)

    return Supervisor(
        launch,
        count,
        Calls(hands.after, note, hands.drain, changed),
        exit_after=config.exit_after.total_seconds(),
        hang_limit=None if limit is None else limit.total_seconds(),
        clock=clock,
        **how,
    )


def _shares(here: Session, count: int) -> dict[str, str]:
    """What there is once on a machine is shared out, unless somebody said otherwise."""
    machine = machine_memory()
    shares = {
        "worker.processes": max(1, cores() // count),
        "worker.memory": int(machine * SHARE_OF_MACHINE / count) if machine else None,
    }
    values = here.config.values
    return {
        variable(name): str(share)
        for name, share in shares.items()
        if share is not None and values[name].source is Source.DEFAULT
    }


class HandBack:
    """Gives the jobs of a worker that died to others at once, instead of letting them find out."""

    def __init__(self, queue: Queue, oom: OomWatch | None = None) -> None:
        self._queue = queue
        self._oom = oom or OomWatch()

    def after(self, death: Death) -> bool:
        """Hand back what this worker held; whether it had entered the fleet, as far as the store knows."""
        found: list[bool] = []
        within(_HAND_BACK_SECONDS, lambda: found.append(self._try(death)), "hand-back")
        return not found or found[0]

    def drain(self, worker: str, why: str) -> None:
        """Tell a worker to drain, without waiting for the store."""

        def drain() -> None:
            try:
                self._queue.store.drain(worker, by="supervisor", why=why)
            except (WorkerNotFound, StoreError) as error:
                log.warning("supervisor.not_drained", extra={"worker": worker, "error": str(error)})

        within(0.0, drain, "drain")

    def _try(self, death: Death) -> bool:
        queue, place, pid = self._queue, this_place(), death.pid
        try:
            known = [
                worker for worker in queue.store.workers() if worker.pid == pid and is_gone(worker, place)
            ]
            # Another worker may have been faster.
            gone = [worker for worker in known if worker.state in ("running", "draining")]
            types, now = queue.store.types(), settings.read(queue.store.settings())
            watchman, ledger = Watchman(gone=lambda _: False), Ledger(queue.store)
            reaper = Reaper(
                queue.store,
                queue.wakeup,
                watchman,
                policy=lambda name: policy_of(name, types.get(name), now),
                clock=SystemClock(),
                ledger=ledger,
            )
            reaper.take_over(gone)
            ledger.count(names.RESTARTS)
            ledger.count(f"{names.RESTARTED}{place.host}/{death.place}")
            if death.code == -signal.SIGKILL and not death.killed_here and self._oom.explains():
                log.warning("worker.out_of_memory", extra={"pid": pid, "place": death.place})
                ledger.count(names.OOM_KILLS)
            ledger.tick()
        except StoreError as error:
            log.warning("supervisor.not_handed_back", extra={"pid": pid, "error": str(error)})
            return True
        return bool(known)


# The successor's process, its tag, where its reports come in and what it is watched by: from this process to
# its next image.
VARIABLE = "WINDLASS_ADOPTED"
# So long may late work end by itself before a process that cannot hand over drains.
_PATIENCE_SECONDS = 10.0


class Handover(Succession):
    """Starts a successor below this process, lets the worker finish, and becomes the successor's supervisor.

    The number of the process stays, so the process that started it still signals the right one.
    """

    _supervisor: Supervisor | None = None

    def look(self) -> None:
        """Start the successor if one is needed; the worker leaves only when that one is well."""
        if self._supervisor is None:
            if not (why := self._worker.restart_reason):
                return
            _worker_log.info("worker.replacing", extra={"pid": os.getpid(), "why": why})
            here = self._here
            launch = Launch(command_line(here), here.environment, here.folder)
            self._supervisor = make_supervisor(here, 1, launch, alone=False)
        self._supervisor.look()
        if not self._worker.leaving and self._supervisor.well:
            _worker_log.info("worker.succeeded", extra={"pid": os.getpid()})
            self._worker.retire()

    def request_stop(self) -> None:
        """Both end, each with the usual grace for its jobs."""
        super().request_stop()
        if self._supervisor is not None:
            self._supervisor.request_stop()

    def abandon(self) -> None:
        """Both end at once."""
        if self._supervisor is not None:
            self._supervisor.abandon()
        super().abandon()

    def health(self) -> Health:
        """The worker's, and once it has handed over, its successor's."""
        if self._supervisor is not None and self._worker.retired:
            return self._supervisor.told()[0]
        return super().health()

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


class Restart(Succession):
    """Restarts a process that does more than work, and so cannot have a successor beside it: `windlass up`.

    It waits for late work to end by itself, then drains, for no longer than the grace of a shutdown.
    """

    def __init__(self, here: Session, worker: Worker, *, clock: Clock | None = None) -> None:
        super().__init__(here, worker)
        self._clock = clock or SystemClock()
        self._since: float | None = None

    def look(self) -> None:
        """Drain when the worker has needed a new process for a while."""
        now = self._clock.monotonic()
        if not self._worker.restart_reason:
            self._since = None
            return
        self._since = now if self._since is None else self._since
        if now - self._since >= _PATIENCE_SECONDS:
            self._worker.retire(self._here.config.worker().grace)

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
