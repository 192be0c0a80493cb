"""Every operator verb: it returns values and prints nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import structs

from windlass import settings
from windlass.errors import WorkerNotFound
from windlass.observe.names import PRUNED
from windlass.ops.access import AccessVerbs
from windlass.ops.actions import Action, Option, Verbs, Why
from windlass.ops.bulk import Operations, operation_findings
from windlass.ops.explain import OncallVerbs
from windlass.ops.flow import FlowVerbs
from windlass.ops.jobs import JobVerbs
from windlass.ops.observing import ObservingVerbs
from windlass.ops.overview import Overview, Stop, TypeStatus, WorkerHealth, healths, local_workers, see, stop
from windlass.ops.schedules import Schedules, schedule_findings, with_schedules
from windlass.ops.signals import Signals, gather
from windlass.ops.verdict import judged
from windlass.ops.words import span
from windlass.store.upkeep import Retention
from windlass.upkeep import maintenance


@dataclass(eq=False)
class Ops(JobVerbs, OncallVerbs, FlowVerbs, ObservingVerbs, AccessVerbs):
    """Every operator verb. `by` names who acts in the records; without one it is the operating system's user.

    Jobs are named by id or key; `tenant` says whose key it is, where several tenants have the same one. Verbs
    that change a job raise JobNotFound, AmbiguousKey and WrongState.
    """

    def __post_init__(self) -> None:
        shared: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(Verbs) if each.init}
        self.operations = Operations(**shared)
        self.schedules = Schedules(**shared, fleet=self.workers)

    @Action("GET stats", operation="show_stats")
    def status(self) -> Overview:
        """One look at jobs, types and workers, with what is wrong in words."""
        seen, fleet = self._seen()
        signalled = gather(self.store, seen, fleet, anew=False).findings
        schedules = self.schedules.list()
        stalled = operation_findings(self.operations.list(), seen.now)
        told = judged(seen, self.store, (*signalled, *schedule_findings(seen, schedules), *stalled))
        return with_schedules(told, schedules)

    @Action("GET signals", operation="show_signals")
    def signals(self) -> Signals:
        """What a depth does not tell: starved, untaken, done twice, completed without effect, stopped."""
        seen, fleet = self._seen()
        return gather(self.store, seen, fleet)

    def now(self) -> datetime:
        """The store's time, which ages are counted from."""
        return self.store.now()

    @Action("GET types", operation="list_types", answers=("types",))
    def types(self) -> list[TypeStatus]:
        """Every type that is registered or has jobs."""
        return self.status().types

    def workers(self) -> list[WorkerHealth]:
        """Every worker that has a row, newest first."""
        return healths(self.store.workers(), self.store.now())

    @Action(
        "POST workers/{id}/drain",
        command="worker drain",
        answers=("worker",),
        past="asked to finish what runs and exit",
        examples="""
            windlass worker health
            windlass worker drain web1-4711-9f86d081
        """,
    )
    def drain(self, worker: Annotated[str, Option("", "ID")], *, why: Why = "") -> str:
        """Ask one worker, wherever it runs, to finish what runs and exit. ID may be cut short.

        A dead worker that shall not come back is drained, too: then nobody misses it, and its alert ends.
        """
        named = [each for each in self.workers() if each.info.id.startswith(worker)]
        running = [each.info.id for each in named if each.alive]
        found = running or [each.info.id for each in named if each.info.state == "dead"]
        if not found and any(each.info.id == worker and each.info.state == "stopped" for each in named):
            # It was drained before, and has gone: nothing is left to ask.
            return worker
        if worker in found:
            found = [worker]
        if len(found) != 1:
            raise WorkerNotFound(worker)
        self.store.drain(found[0], by=self._who, why=why)
        return found[0]

    def stop_local(self, *, within: timedelta = timedelta(seconds=45)) -> Stop:
        """Stop this store's workers on this machine, each as gently as a shutdown is, and wait for them."""
        found = local_workers(self.workers())
        for worker in found:
            self.store.note_action("stop", "worker", worker.id, by=self._who)
        return stop(found, within=within, clock=self.clock)

    def retention(self) -> Retention:
        """How long records are kept, as set at run time."""
        chosen = settings.read(self.store.settings())
        return Retention(ended=chosen.keep_ended, dead=chosen.keep_dead)

    def prune(self, *, ended: timedelta | None = None, dead: timedelta | None = None) -> int:
        """Delete every record past its retention, in small batches; answers how many."""
        keep, total = self.retention(), 0
        if ended is not None:
            keep = structs.replace(keep, ended=ended)
        if dead is not None:
            keep = structs.replace(keep, dead=dead)
        while pruned := self.store.prune(keep, by=self._who):
            total += pruned
        self.store.note_ticks({maintenance.PRUNE: timedelta(0)}, self._who)
        after = {"jobs": total, "kept": {"ended": span(keep.ended), "dead": span(keep.dead)}}
        self.store.note_action("prune", "store", "records", by=self._who, after=after)
        if total:
            self.store.add_history({("", PRUNED): total})
        return total

    def _seen(self) -> tuple[Overview, list[WorkerHealth]]:
        counts, held = (self.counts or self.store.counts)(), settings.read(self.store.settings())
        fleet = healths(self.store.workers(), counts.now)
        return see(counts, self.store.types(), fleet, held, self.store.switches()), fleet
