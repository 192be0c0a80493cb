"""The heartbeat: each second, beat, look at the store, extend leases, and deliver operators' requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from windlass.job import Lease
from windlass.loop import Loop
from windlass.observe import names
from windlass.outcome import Stopped
from windlass.store.fleet import Look, Vitals, WorkerInfo
from windlass.store.running import Said
from windlass.worker.admission import Admission
from windlass.worker.run import Env, Run
from windlass.worker.runner import Runner

log = logging.getLogger("windlass.heartbeat")

LOOK_EVERY = timedelta(seconds=1)
# A little under two looks, so that a tick that comes early does not put the beat off by another one.
_BEAT_SECONDS = 1.75
_BATCH = 500


@dataclass(eq=False)
class Heartbeat:
    """Beats, looks, keeps leases, and delivers what operators ask of running jobs."""

    env: Env
    runner: Runner
    admission: Admission
    # Which payloads this worker can read.
    reader: str
    info: Callable[[], WorkerInfo]
    vitals: Callable[[], Vitals]
    # Called with each look at the store.
    seen: Callable[[Look], None]

    def __post_init__(self) -> None:
        self._store, self._clock, self._ledger = self.env.store, self.env.clock, self.env.ledger
        self._membership, self._runs, self._lease = self.env.membership, self.env.runs, self.env.config.lease
        self._types = {name: handler.version for name, handler in self.env.handlers.items()}
        self._keep_all = False
        every = min(LOOK_EVERY, self.env.config.poll)
        self.loop = Loop("heartbeat", self.tick, every=every, longest_pause=LOOK_EVERY)

    def join(self) -> None:
        """Enter the fleet; that counts as the first beat."""
        # Read before the write: if the file is replaced in between, the next tick beats in the new one.
        sent, generation = self._clock.uptime(), self._store.generation
        self._membership.enter(generation)
        self._store.join(self.info())
        self._membership.confirm(sent, generation)

    def tick(self) -> None:
        """Beat if it is time or the store's file is another one; then look, and act on what is seen."""
        moved = self._membership.generation != self._store.generation
        if moved or self._clock.uptime() - self._membership.sent >= _BEAT_SECONDS:
            self._beat()
        look = self._store.look(self._membership.id, self.admission.open(self._types), self.reader)
        for token, request in look.requests.items():
            run = self._runs.get(token)
            if run is not None and run.open:
                self.runner.deadlines.stop(run, Stopped(request))
        self._keep(look.now)
        if look.next_due is not None and look.next_due <= timedelta(0):
            self._store.promote()
        self.seen(look)
        self._note_progress()

    def _beat(self) -> None:
        sent, generation = self._clock.uptime(), self._store.generation
        if not self._store.beat(self._membership.id, self.vitals()):
            self._rejoin()
        elif self._membership.confirm(sent, generation):
            # After a gap every lease may be near its end, or past it and about to be reaped.
            self._keep_all = True

    def _rejoin(self) -> None:
        """Start over under a new id: the fleet does not know this worker, and its jobs are others' by now."""
        old = self._membership.take_new_id()
        replaced = self._membership.left_behind(old, self._store.generation)
        why = "the store's file was replaced" if replaced else "the fleet took this worker for dead"
        log.warning("worker.renamed", extra={"old": old, "worker": self._membership.id, "why": why})
        for run in list(self._runs.values()):
            if run.open and run.lease.worker == old:
                self.runner.lose(run)
        self.join()

    def _keep(self, now: datetime) -> None:
        """Extend the leases that have used up a third of their time; after a gap, all."""
        due = self._lease * 2 / 3
        unsettled = [run for run in list(self._runs.values()) if not run.completed]
        runs = [run for run in unsettled if self._keep_all or run.lease.until - now < due]
        for start in range(0, len(runs), _BATCH):
            self._extend(runs[start : start + _BATCH])
        self._keep_all = False

    def _note_progress(self) -> None:
        said: list[tuple[Lease, Said]] = []
        for run in list(self._runs.values()):
            progress, run.progress = run.progress, None
            if progress is not None:
                said.append((run.lease, progress))
        if said:
            self._store.note_progress(said)

    def _extend(self, runs: Sequence[Run]) -> None:
        kept, lost = self._store.extend([run.lease for run in runs], self._lease)
        self._ledger.count(names.RENEWED, len(kept))
        self._ledger.count(names.LOST, len(lost))
        by_token = {run.token: run for run in runs}
        for lease in kept:
            by_token[lease.token].lease = lease
        for lease in lost:
            # One whose result is on its way may have been settled just now: the settler will know.
            self.runner.lose(by_token[lease.token])
