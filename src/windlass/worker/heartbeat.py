"""What do this worker and the store tell each other each second?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from windlass.clock import Clock
from windlass.job import Lease, Request
from windlass.loop import Loop
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.outcome import Stopped
from windlass.store.fleet import Look, Vitals, WorkerInfo
from windlass.store.running import Said
from windlass.store.store import Store
from windlass.worker.run import End, Run, Runs
from windlass.worker.runner import Runner
from windlass.worker.standing import Standing

log = logging.getLogger("windlass.heartbeat")

LOOK_EVERY = timedelta(seconds=1)
# A little under two looks, so that a tick that comes early does not put the beat off by another one.
_BEAT_SECONDS = 1.75
_BATCH = 500


class Heartbeat:
    """Beats, looks, keeps leases, and delivers what operators ask of running jobs."""

    def __init__(  # noqa: PLR0913 - wired once, in parts.py
        self,
        store: Store,
        standing: Standing,
        *,
        info: Callable[[str], WorkerInfo],
        vitals: Callable[[], Vitals],
        types: Callable[[], Mapping[str, int]],
        reader: str,
        runs: Runs,
        runner: Runner,
        stop: Callable[[Run, End], None],
        seen: Callable[[Look], None],
        ledger: Ledger,
        lease: timedelta,
        every: timedelta,
        clock: Clock,
    ) -> None:
        self._store = store
        self._standing = standing
        self._info = info
        self._vitals = vitals
        self._types = types
        self._reader = reader
        self._runs = runs
        self._runner = runner
        self._stop = stop
        self._seen = seen
        self._ledger = ledger
        self._lease = lease
        self._clock = clock
        self._keep_all = False
        self.loop = Loop("heartbeat", self.tick, every=every, longest_pause=LOOK_EVERY)

    def join(self) -> None:
        """Enter the fleet; that counts as the first beat."""
        # Read before the write: if the file is replaced in between, the next tick beats in the new one.
        sent, generation = self._clock.uptime(), self._store.generation
        self._standing.enter(generation)
        self._store.join(self._info(self._standing.id))
        self._standing.confirm(sent, generation)

    def tick(self) -> None:
        """Beat if it is time or the store's file is another one; then look, and act on what is seen."""
        moved = self._standing.generation != self._store.generation
        if moved or self._clock.uptime() - self._standing.sent >= _BEAT_SECONDS:
            self._beat()
        look = self._store.look(self._standing.id, self._types(), self._reader)
        self._deliver(look.requests)
        self._keep(look.now)
        if look.next_due is not None and look.next_due <= timedelta(0):
            self._store.promote()
        self._seen(look)
        self._note_progress()

    def _beat(self) -> None:
        sent, generation = self._clock.uptime(), self._store.generation
        if not self._store.beat(self._standing.id, self._vitals()):
            self._join_anew()
        elif self._standing.confirm(sent, generation):
            # After a gap every lease may be near its end, or past it and about to be reaped.
            self._keep_all = True

    def _join_anew(self) -> None:
        """The fleet does not know this worker: its jobs are others' by now, or not in this file at all.

        Start over under a new name.
        """
        old = self._standing.take_new_id()
        replaced = self._standing.left_behind(old, self._store.generation)
        why = "the store's file was replaced" if replaced else "the fleet took this worker for dead"
        log.warning("worker.renamed", extra={"old": old, "worker": self._standing.id, "why": why})
        for run in self._runs.all():
            if run.open and run.lease.worker == old:
                self._runner.lose(run)
        self.join()

    def _deliver(self, requests: Mapping[str, Request]) -> None:
        for token, request in requests.items():
            run = self._runs.get(token)
            if run is not None and run.open:
                self._stop(run, Stopped(request))

    def _keep(self, now: datetime) -> None:
        """Extend the leases that have used up a third of their time; after a gap, all."""
        due = self._lease * 2 / 3
        held = [run for run in self._runs.all() if not run.completed]
        runs = [run for run in held if self._keep_all or run.lease.until - now < due]
        for start in range(0, len(runs), _BATCH):
            self._extend(runs[start : start + _BATCH])
        self._keep_all = False

    def _note_progress(self) -> None:
        """What running jobs have said since the last look, all at once."""
        said: list[tuple[Lease, Said]] = []
        for run in self._runs.all():
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
            self._runner.lose(by_token[lease.token])
