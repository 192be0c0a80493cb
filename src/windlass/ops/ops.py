"""What can an operator see and do? Each verb once: it returns values and prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Unpack

from windlass import settings
from windlass.errors import WorkerNotFound
from windlass.observe.names import PRUNED
from windlass.ops.access import AccessVerbs
from windlass.ops.actions import Options
from windlass.ops.bulk import BulkVerbs, Operations, operation_findings
from windlass.ops.evidence import judged
from windlass.ops.flow import FlowVerbs
from windlass.ops.local import Stop, local_workers, stop, with_the_gone_dead
from windlass.ops.observing import ObservingVerbs
from windlass.ops.oncall import OncallVerbs
from windlass.ops.overview import Overview, TypeStatus, WorkerHealth, health_of, overview
from windlass.ops.schedules import Schedules, schedule_findings, with_schedules
from windlass.ops.signals import Signals, gather
from windlass.ops.words import span
from windlass.store.fleet import WorkerInfo
from windlass.store.store import Store
from windlass.store.upkeep import Retention, StoreStatus
from windlass.upkeep import ticks


class Ops(BulkVerbs, OncallVerbs, FlowVerbs, ObservingVerbs, AccessVerbs):
    """Every operator verb. `by` names who acts in the records; without one it is the operating system's user.

    Jobs are named by id or key; `tenant` says whose key it is, where several tenants have the same one. Verbs
    that change a job raise JobNotFound, AmbiguousKey and WrongState.
    """

    def __init__(self, store: Store, **options: Unpack[Options]) -> None:
        super().__init__(store, **options)
        self.operations = Operations(store, **options)
        self.schedules = Schedules(store, self.workers, **options)

    # --- looking --------------------------------------------------------------------------------

    def status(self) -> Overview:
        """One look at jobs, types and workers, with what is wrong in words."""
        seen, fleet = self._seen()
        signalled = gather(self.store, seen, fleet, anew=False).findings
        schedules = self.schedules.list()
        stalled = operation_findings(self.operations.list(), seen.now)
        told = judged(seen, self.store, (*signalled, *schedule_findings(seen, schedules), *stalled))
        return with_schedules(told, schedules)

    def signals(self) -> Signals:
        """What a depth does not tell: starved, untaken, done twice, completed without effect, stopped."""
        seen, fleet = self._seen()
        return gather(self.store, seen, fleet)

    def now(self) -> datetime:
        """The store's time, which ages are counted from."""
        return self.store.now()

    def types(self) -> list[TypeStatus]:
        """Every type that is registered or has jobs."""
        return self.status().types

    def workers(self) -> list[WorkerHealth]:
        """Every worker that has a row, newest first."""
        now = self.store.now()
        return [health_of(worker, now) for worker in self._fleet()]

    # --- workers --------------------------------------------------------------------------------

    def drain(self, worker: str, *, by: str | None = None, why: str = "") -> str:
        """Ask a worker to finish what runs and exit; answers its id, which may be given cut short.

        Of a dead worker it says that nobody misses it: its alert is over.
        """
        named = [each for each in self.workers() if each.info.id.startswith(worker)]
        running = [each.info.id for each in named if each.alive]
        found = running or [each.info.id for each in named if each.info.state == "dead"]
        if worker in found:
            found = [worker]
        if len(found) != 1:
            raise WorkerNotFound(worker)
        self.store.drain(found[0], by=self._who(by), why=why)
        return found[0]

    def stop_local(self, *, within: timedelta = timedelta(seconds=45)) -> Stop:
        """Stop this store's workers on this machine, each as gently as a shutdown is, and wait for them."""
        found = local_workers(self.workers())
        for worker in found:
            self.store.note_action("stop", "worker", worker.id, by=self._who(None))
        return stop(found, within=within, clock=self._clock)

    # --- the store ------------------------------------------------------------------------------

    def retention(self) -> Retention:
        """How long records are kept, as set at run time."""
        chosen = settings.read(self.store.settings())
        return Retention(ended=chosen.keep_ended, dead=chosen.keep_dead)

    def prune(
        self,
        *,
        ended: timedelta | None = None,
        dead: timedelta | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Delete every record past its retention, in small batches; answers how many."""
        standing = self.retention()
        keep = Retention(
            ended=standing.ended if ended is None else ended, dead=standing.dead if dead is None else dead
        )
        total, who = 0, self._who(None)
        while pruned := self.store.prune(keep, by=who):
            total += pruned
            progress(total)
        self.store.note_ticks({ticks.PRUNE: timedelta(0)}, who)
        kept = {"ended": span(keep.ended), "dead": span(keep.dead)}
        self.store.note_action("prune", "store", "records", by=who, after={"jobs": total, "kept": kept})
        if total:
            self.store.add_history({("", PRUNED): total})
        return total

    def db_status(self) -> StoreStatus:
        """Size, versions and warnings of the store."""
        return self.store.status()

    def backup(self, path: str) -> None:
        """Write a consistent copy of the store while others go on working."""
        self.store.backup(path)

    def check(self) -> list[str]:
        """What is wrong with the stored data; empty is the good answer."""
        return self.store.check()

    # --- shared ---------------------------------------------------------------------------------

    def _seen(self) -> tuple[Overview, list[WorkerHealth]]:
        held, fleet = settings.read(self.store.settings()), self._fleet()
        seen = overview(self._counts(), self.store.types(), fleet, held, self.store.switches())
        return seen, [health_of(worker, seen.now) for worker in fleet]

    def _fleet(self) -> list[WorkerInfo]:
        """The workers' rows; one whose process is gone from this machine is dead, though no row says so."""
        return with_the_gone_dead(self.store.workers())
