"""How do outcomes reach the store?"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from time import monotonic

from windlass.errors import StoreError
from windlass.job import Lease
from windlass.loop import Loop
from windlass.observe import names, tracing
from windlass.observe.ledger import Ledger
from windlass.outcome import (
    Again,
    Dead,
    Done,
    Left,
    Outcome,
    Raised,
    Released,
    Result,
    Returned,
    Snoozed,
    describe,
)
from windlass.store.engine import Settlement
from windlass.store.store import Store
from windlass.wakeup import Wakeup
from windlass.worker.run import Runs

log = logging.getLogger("windlass.settler")

MOST_UNSETTLED = 10_000
_BATCH = 500
_GATHER_SECONDS = 0.003
_IDLE = timedelta(hours=1)


class Settler:
    """Writes outcomes in batches, and keeps them while the store is away."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        runs: Runs,
        *,
        working: Callable[[], bool],
        ledger: Ledger,
        limited: Callable[[str], bool] = lambda _: False,
        shared: Callable[[str], bool] = lambda _: False,
        settled: Callable[[Iterable[tuple[Lease, Outcome]]], None] = lambda _: None,
    ) -> None:
        """`limited`: the end of a job of that type lets another one start; `shared`: or one elsewhere."""
        self.store = store
        self._wakeup = wakeup
        self._runs = runs
        self._working = working
        self.limited = limited
        self._shared = shared
        self._settled = settled
        # May turn an outcome into another one; asked on the thread that writes, so it may look at the store.
        self.reconsider: Callable[[Sequence[Settlement]], Sequence[Settlement]] = lambda batch: batch
        # Told of jobs that wait for another release, by type and problem: too many for a log line each.
        self.on_left: Callable[[Sequence[tuple[str, str]]], None] = lambda _: None
        # Told of which types limited jobs have ended, which may let others start.
        self.on_permit: Callable[[Sequence[str]], None] = lambda _: None
        # Whether a worker's name, as a lease has it, belongs to a file that was replaced since.
        self.left_behind: Callable[[str], bool] = lambda _: False
        self._ledger = ledger
        # Appended to by every thread that finishes a job; a deque needs no lock for that.
        self._queue: deque[Settlement] = deque()
        # Runs that had been settled before their work ended, which it has by now.
        self._over: deque[str] = deque()
        self._writing = False
        self._hurry = threading.Event()
        self._written = threading.Condition()
        self.loop = Loop("settler", self.tick, every=_IDLE)
        self.done = 0
        self.failed = 0
        self.late = 0
        # Handlers that failed after their own transaction had completed the job.
        self.failed_late = 0

    @property
    def backlog(self) -> int:
        """How many outcomes wait to be written."""
        return len(self._queue)

    @property
    def empty(self) -> bool:
        """Whether everything handed in is written."""
        return not self._queue and not self._over and not self._writing

    @property
    def overloaded(self) -> bool:
        """Whether so much waits that nothing more should be claimed."""
        return len(self._queue) > MOST_UNSETTLED

    def submit(self, settlement: Settlement) -> None:
        """Hand in an outcome; from any thread, never waits."""
        self._queue.append(settlement)
        self.loop.wake()

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
        if self._queue:
            self._write_next()
        self._let_go()
        return 0.0 if self._queue else None

    def _write_next(self) -> None:
        self._gather()
        self._writing = True
        batch = self._take()
        try:
            self._write(self.reconsider(batch))
        except BaseException:  # wall: whatever kept them from being written, outcomes are kept
            self._queue.extendleft(reversed(batch))
            raise
        finally:
            with self._written:
                self._writing = False
                self._written.notify_all()

    def _let_go(self) -> None:
        """Never before what settled them is written; but a busy worker's queue may never be empty."""
        tokens = [token for token in tuple(self._over) if self._runs.get(token) is None]
        if not tokens:
            return
        self.store.let_go(tokens)
        for token in tokens:
            self._over.remove(token)
        with self._written:
            self._written.notify_all()
        self.on_permit(())
        self._wakeup.notify()

    def _gather(self) -> None:
        """A short wait fills the batch while jobs are finishing; alone, it would only cost latency."""
        if self._working() and len(self._queue) < _BATCH:
            self._hurry.wait(_GATHER_SECONDS)

    def _take(self) -> list[Settlement]:
        return [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]

    def _write(self, batch: Sequence[Settlement]) -> None:
        traced = tracing.moment() if tracing.on() else None
        began = monotonic()
        try:
            lost = self.store.settle(batch)
        except StoreError:
            raise
        except Exception:  # wall: one outcome that the store chokes on must not hold up the others
            if len(batch) > 1:
                for settlement in batch:
                    self._write([settlement])
                return
            log.exception("settle.failed", extra=batch[0].lease.fields)
            self._runs.drop([batch[0].lease.token])
            return
        if traced is not None:
            self._trace(batch, traced)
        self._ledger.measure(names.SETTLE, monotonic() - began)
        self._runs.drop(settlement.lease.token for settlement in batch)
        self._count(batch, lost)

    def _trace(self, batch: Sequence[Settlement], began: int) -> None:
        for settlement in batch:
            run = self._runs.get(settlement.lease.token)
            if run is not None and run.trace is not None:
                run.trace.settled(began, settlement.outcome)

    def _count(self, batch: Sequence[Settlement], lost: Sequence[Lease]) -> None:
        for lease in lost:
            self.note_lost(lease)
        gone = {lease.token for lease in lost}
        kept = [each for each in batch if each.lease.token not in gone] if gone else batch
        # Nearly all are completions; of those little is asked one by one.
        others = [each for each in kept if not isinstance(each.outcome, Done)]
        self.done += len(kept) - len(others)
        self.failed += sum(isinstance(each.outcome, (Again, Dead)) for each in others)
        left: list[tuple[str, str]] = []
        for each in others:
            if isinstance(each.outcome, Left):
                left.append((each.lease.job.type, each.outcome.problem))
            else:
                _tell(each)
        if left:
            self.on_left(left)
        if log.isEnabledFor(logging.DEBUG):
            for each in kept:
                if isinstance(each.outcome, Done):
                    _tell_done(each)
        self._settled((each.lease, each.outcome) for each in kept)
        self._ledger.settled(kept)
        again = any(isinstance(each.outcome, (Again, Released, Snoozed, Left)) for each in others)
        types = Counter(each.lease.job.type for each in kept)
        limited = {name: ended for name, ended in types.items() if self.limited(name)}
        if limited:
            self.on_permit([*Counter(limited).elements()])
        if again or any(map(self._shared, limited)) or any(each.enqueues for each in batch):
            self._wakeup.notify()

    def note_completed(self, lease: Lease, result: Result, ran: timedelta | None = None) -> None:
        """A handler's own transaction completed its job; what came of the handler after it, if anything."""
        self.done += 1
        self._settled([(lease, Done())])
        self._ledger.settled([Settlement(lease, Done(), ran)])
        self._wakeup.notify()
        if not isinstance(result, Returned):
            self.failed_late += 1
            why = describe(result.exception) if isinstance(result, Raised) else None
            log.warning(
                "job.failed_after_completion",
                extra=lease.fields
                | {
                    "result": type(result).__name__.lower(),
                    "error": None if why is None else f"{why.kind}: {why.message}",
                    "note": "the job is completed all the same: its transaction had committed",
                },
            )

    def note_lost(self, lease: Lease) -> None:
        """A lease turned out to belong to somebody else by now."""
        self.late += 1
        self._ledger.late([lease])
        note = (
            "the store's file was replaced: this attempt is not in the new file"
            if self.left_behind(lease.worker)
            else "lease already reclaimed; discarding this result"
        )
        log.warning("lease.lost", extra=lease.fields | {"note": note})


def _tell_done(settlement: Settlement) -> None:
    ran = settlement.ran
    fields = {} if ran is None else {"seconds": ran.total_seconds()}
    log.debug("job.completed", extra=settlement.lease.fields | fields)


def _tell(settlement: Settlement) -> None:
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
