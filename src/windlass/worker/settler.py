"""The settler: writes outcomes to the store in batches."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from windlass.errors import StoreError
from windlass.job import Lease
from windlass.loop import Loop
from windlass.observe import names, tracing
from windlass.outcome import Again, Dead, Done, Left, Raised, Released, Result, Returned, Snoozed
from windlass.store.engine import Settlement
from windlass.worker.admission import Admission, BreakerCounts
from windlass.worker.other_releases import OtherReleases
from windlass.worker.pool import PollTriggers
from windlass.worker.run import Env

log = logging.getLogger("windlass.settler")

MOST_UNSETTLED = 10_000
_BATCH = 500
_GATHER_SECONDS = 0.003
_IDLE = timedelta(hours=1)


@dataclass(eq=False)
class Settler:
    """Writes outcomes in batches, and keeps them while the store is away."""

    env: Env
    admission: Admission
    breaker_counts: BreakerCounts
    releases: OtherReleases
    triggers: PollTriggers

    def __post_init__(self) -> None:
        self._store, self._ledger, self._runs = self.env.store, self.env.ledger, self.env.runs
        # Outcomes to write. Appended to by every thread that finishes a job; a deque needs no lock for that.
        self.queue: deque[Settlement] = deque()
        # Runs that had been settled before their work ended, which it has by now.
        self._over: deque[str] = deque()
        self._writing = False
        self._hurry = threading.Event()
        self._written = threading.Condition()
        self._woken = threading.Event()
        self.loop = Loop("settler", self.tick, every=_IDLE, woken=self._woken)
        # The last: handlers that failed after their own transaction had completed the job.
        self.done = self.failed = self.late = self.failed_late = 0

    @property
    def empty(self) -> bool:
        return not self.queue and not self._over and not self._writing

    def submit(self, settlement: Settlement) -> None:
        """Hand in an outcome; from any thread, never waits."""
        self.queue.append(settlement)
        # Reading is cheaper than setting, and a busy worker comes here thousands of times a second.
        if not self._woken.is_set():
            self._woken.set()

    def let_go(self, token: str) -> None:
        """Work that was settled before has ended: its permits are free. From any thread, never waits."""
        self._over.append(token)
        self.loop.wake()

    def flush(self, timeout: float) -> bool:
        """Wait until everything handed in is written; False if `timeout` seconds were not enough."""
        self._hurry.set()
        self.loop.wake()
        with self._written:
            written = self._written.wait_for(lambda: self.empty, timeout)
        self._hurry.clear()
        return written

    def tick(self) -> float | None:
        """Write one batch of what has finished, and let go of what it had kept."""
        # A short wait fills the batch while other jobs are finishing; alone, it would only cost latency.
        if 0 < len(self.queue) < min(_BATCH, len(self._runs)):
            self._hurry.wait(_GATHER_SECONDS)
        self._writing = True
        batch: list[Settlement] = []
        dead = False
        while self.queue and len(batch) < _BATCH:
            batch.append(self.queue.popleft())
            dead = dead or isinstance(batch[-1].outcome, Dead)
        try:
            # One that is dead for its payload may fit another release.
            self._write(self.releases.reconsider(batch) if dead else batch)
        except BaseException:  # wall: whatever kept them from being written, outcomes are kept
            self.queue.extendleft(reversed(batch))
            raise
        finally:
            with self._written:
                self._writing = False
                self._written.notify_all()
        if self._over:
            self._let_go()
        return 0.0 if self.queue else None

    def _let_go(self) -> None:
        """Never before what settled them is written; but a busy worker's queue may never be empty."""
        tokens = [token for token in tuple(self._over) if self._runs.get(token) is None]
        if not tokens:
            return
        self._store.let_go(tokens)
        for token in tokens:
            self._over.remove(token)
        with self._written:
            self._written.notify_all()
        self.triggers.permit()
        self.triggers.notify()

    def _write(self, batch: Sequence[Settlement]) -> None:
        if not batch:
            return
        traced = tracing.moment() if tracing.on() else None
        began = monotonic()
        try:
            lost = self._store.settle(batch)
        except StoreError:
            raise
        except Exception:  # wall: one outcome that the store chokes on must not hold up the others
            if len(batch) > 1:
                for settlement in batch:
                    self._write([settlement])
                return
            log.exception("settle.failed", extra=batch[0].lease.fields)
            self._runs.pop(batch[0].lease.token, None)
            return
        self._ledger.measure(names.SETTLE, monotonic() - began)
        for each in batch:
            run = self._runs.pop(each.lease.token, None)
            if traced is not None and run is not None and run.trace is not None:
                run.trace.settled(traced, each.outcome)
        if lost:
            gone = {lease.token for lease in lost}
            for lease in lost:
                self.note_lost(lease)
            batch = [each for each in batch if each.lease.token not in gone]
        self._note_written(batch)

    def _note_written(self, batch: Sequence[Settlement]) -> None:
        debug, again, enqueued = log.isEnabledFor(logging.DEBUG), False, False
        counted = self.admission.counted
        limited: list[str] = []
        left: list[tuple[str, str]] = []
        for each in batch:
            outcome = each.outcome
            if each.lease.job.type in counted:
                limited.append(each.lease.job.type)
            enqueued = enqueued or bool(each.enqueues)
            # Nearly all are completions.
            if isinstance(outcome, Done):
                self.done += 1
                if debug:
                    seconds = {} if each.ran is None else {"seconds": each.ran.total_seconds()}
                    log.debug("job.completed", extra=each.lease.fields | seconds)
                continue
            self.failed += isinstance(outcome, (Again, Dead))
            again = again or isinstance(outcome, (Again, Released, Snoozed, Left))
            if isinstance(outcome, Left):
                left.append((each.lease.job.type, outcome.problem))
            else:
                _log(each)
        if left:
            self.releases.note(left)
        self.breaker_counts.note(batch)
        self._ledger.settled(batch)
        if limited:
            self.triggers.permit(limited)
        if again or enqueued or not self.admission.shared.isdisjoint(limited):
            self.triggers.notify()

    def note_completed(self, settled: Settlement, result: Result) -> None:
        """A handler's own transaction completed its job; what came of the handler after it, if anything."""
        self.done += 1
        self.breaker_counts.note([settled])
        self._ledger.settled([settled])
        self.triggers.notify()
        if not isinstance(result, Returned):
            self.failed_late += 1
            why = result.failed.error if isinstance(result, Raised) and result.failed else None
            log.warning(
                "job.failed_after_completion",
                extra=settled.lease.fields
                | {
                    "result": type(result).__name__.lower(),
                    "error": None if why is None else f"{why.kind}: {why.message}",
                    "note": "the job is completed all the same: its transaction had committed",
                },
            )

    def note_lost(self, lease: Lease) -> None:
        """A lease turned out to belong to another worker by now."""
        self.late += 1
        self._ledger.late([lease])
        note = "lease already reclaimed; discarding this result"
        with contextlib.suppress(StoreError):
            if self.env.membership.left_behind(lease.worker, self._store.generation):
                note = "the store's file was replaced: this attempt is not in the new file"
        log.warning("lease.lost", extra=lease.fields | {"note": note})


def _log(settlement: Settlement) -> None:
    outcome, ran = settlement.outcome, settlement.ran
    error = getattr(outcome, "error", None)
    log.log(
        logging.WARNING if isinstance(outcome, Dead) else logging.INFO,
        "job.settled",
        extra=settlement.lease.fields
        | {
            "outcome": type(outcome).__name__.lower(),
            "seconds": None if ran is None else ran.total_seconds(),
            "reason": error.reason.value if error else None,
            "error": error.message if error else None,
        },
    )
