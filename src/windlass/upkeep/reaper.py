"""What becomes of the jobs of dead workers, and of leases that nobody renews?"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from windlass.clock import Clock
from windlass.job import Lease, Reason
from windlass.loop import Loop
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.outcome import Lost, Policy, decide
from windlass.store.engine import Settlement
from windlass.store.fleet import Look, WorkerInfo
from windlass.store.store import Store
from windlass.upkeep.maintenance import REAP
from windlass.upkeep.membership import Pulse, Watchman
from windlass.wakeup import Wakeup

log = logging.getLogger("windlass.reaper")

_BATCH = 500
_IDLE = timedelta(hours=1)


class Reaper:
    """Declares workers dead and settles what they held: the same decision, the same verb as a runner's."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        watchman: Watchman,
        *,
        policy: Callable[[str], Policy],
        clock: Clock,
        ledger: Ledger,
        chance: Callable[[], float] = random.random,
        ticked: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._ticked = ticked
        self._store = store
        self._wakeup = wakeup
        self._watchman = watchman
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._ledger = ledger
        self._seen: tuple[str, Look, Pulse] | None = None
        self.reaped = 0
        self.loop = Loop("reaper", self.work, every=_IDLE)

    def saw(self, me: str, look: Look, pulse: Pulse) -> None:
        """Judge this look soon, on the reaper's own thread: settling must not hold up whoever looked."""
        self._seen = (me, look, pulse)
        self.loop.wake()

    def work(self) -> None:
        """Judge the newest look, if there is one."""
        seen, self._seen = self._seen, None
        if seen is not None:
            self.tick(*seen)

    def tick(self, me: str, look: Look, pulse: Pulse) -> None:
        """Judge what one look showed."""
        expired = self._store.expired(limit=_BATCH) if look.expired else []
        found = self._watchman.check(me, look.workers, expired, pulse=pulse, now=self._clock.uptime())
        reaped = self._settle(found.unrenewed, Reason.LEASE_EXPIRED, look.now)
        died = self._declare(found.dead)
        if died or look.orphaned:
            reaped += self._reap_orphans(look.now)
        self._tell(reaped)
        self._ticked(REAP)

    def take_over(self, dead: Sequence[WorkerInfo]) -> None:
        """Hand back what these workers held, of whom somebody knows that they are gone."""
        if self._declare(dead):
            self._tell(self._reap_orphans(self._store.now()))

    def _declare(self, dead: Sequence[WorkerInfo]) -> list[WorkerInfo]:
        died = [worker for worker in dead if self._store.declare_dead(worker.id, worker.beat)]
        self._ledger.count(names.WORKERS_LOST, len(died))
        for worker in died:
            log.warning("worker.dead", extra={"worker": worker.id, "host": worker.host, "pid": worker.pid})
        return died

    def _tell(self, reaped: int) -> None:
        if reaped:
            self.reaped += reaped
            self._wakeup.notify()

    def _reap_orphans(self, now: datetime) -> int:
        reaped = 0
        while orphans := self._store.orphans(limit=_BATCH):
            if not (settled := self._settle(orphans, Reason.WORKER_LOST, now)):
                break
            reaped += settled
        return reaped

    def _settle(
        self,
        leases: Sequence[Lease],
        reason: Literal[Reason.WORKER_LOST, Reason.LEASE_EXPIRED],
        now: datetime,
    ) -> int:
        """Record the loss of these leases; how many were still there to be lost."""
        if not leases:
            return 0
        # The release that was lost with its worker: a bad one must not look as if it had never run.
        apps = {worker.id: worker.app for worker in self._store.workers()}
        policies = {job_type: self._policy(job_type) for job_type in {each.job.type for each in leases}}
        losses = []
        for lease in leases:
            job, lost = lease.job, Lost(reason, lease.job.hang)
            outcome = decide(job, lost, policies[job.type], now=now, chance=self._chance)
            losses.append(Settlement(lease, outcome, None, app=apps.get(lease.worker, "")))
        late = {lease.token for lease in self._store.settle(losses)}
        reaped = [each for each in losses if each.lease.token not in late]
        self._ledger.reaped(reaped)
        for each in reaped:
            log.warning("job.reaped", extra=each.lease.fields | {"reason": reason.value})
        return len(reaped)
