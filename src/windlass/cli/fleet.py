"""How does this process become the supervisor of several workers?"""

from __future__ import annotations

import logging
from pathlib import Path

from windlass.cli.logs import log_to_stderr
from windlass.cli.process import command_line, obey
from windlass.cli.session import Session
from windlass.clock import SystemClock
from windlass.config import Source, cores, variable
from windlass.errors import StoreError
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.queue import Queue
from windlass.upkeep.place import here as this_place
from windlass.upkeep.place import is_gone
from windlass.upkeep.reaper import Reaper
from windlass.upkeep.watchman import Watchman
from windlass.worker.address import HealthAddress
from windlass.worker.bounded import within
from windlass.worker.budget import SHARE_OF_MACHINE, machine_memory
from windlass.worker.changes import Changes
from windlass.worker.supervisor import Supervisor
from windlass.worker.terms import Terms

log = logging.getLogger("windlass.supervisor")

_HAND_BACK_SECONDS = 5.0


def supervise_here(
    here: Session, count: int, *, log_json: bool, verbose: bool, address: tuple[str, int] | None, watch: bool
) -> int:
    """Keep so many workers running, each by the command line of this process; the exit code."""
    log_to_stderr(as_json=log_json or here.json, verbose=verbose)
    clock = SystemClock()
    config = here.config.worker()
    supervisor = Supervisor(
        command_line(here),
        count,
        exit_after=config.exit_after.total_seconds(),
        died=_HandBack(here.queue).after,
        changed=Changes(Path.cwd(), clock.monotonic) if watch else None,
        environment=_shares(here, count),
        clock=clock,
    )
    if address is not None:
        HealthAddress(address, supervisor.health, supervisor.expose).start()
    obey(supervisor)
    here.works = True
    log.info("supervisor.started", extra={"workers": count})
    return supervisor.run()


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


class _HandBack:
    """Gives the jobs of a worker that died to others at once, instead of letting them find out."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def after(self, pid: int) -> bool:
        """Hand back what the worker with this number held; if the store is away, the others do it later.

        Answers whether it had entered the fleet, as far as the store can tell.
        """
        found: list[bool] = []
        within(_HAND_BACK_SECONDS, lambda: found.append(self._try(pid)), "hand-back")
        return not found or found[0]

    def _try(self, pid: int) -> bool:
        queue, place = self._queue, this_place()
        try:
            known = [
                worker for worker in queue.store.workers() if worker.pid == pid and is_gone(worker, place)
            ]
            # Another worker may have been faster.
            gone = [worker for worker in known if worker.state in ("running", "draining")]
            handlers = {handler.name: handler for handler in queue.registry.handlers()}
            terms = Terms(queue.store, handlers)
            watchman, ledger = Watchman(gone=lambda _: False), Ledger(queue.store)
            reaper = Reaper(
                queue.store, queue.wakeup, watchman, policy=terms.policy, clock=SystemClock(), ledger=ledger
            )
            reaper.take_over(gone)
            ledger.count(names.RESTARTS)
            ledger.tick()
        except StoreError as error:
            log.warning("supervisor.not_handed_back", extra={"pid": pid, "error": str(error)})
            return True
        return bool(known)
