"""The settler: writes outcomes in batches, and leaves jobs to other releases that alone can read them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

import msgspec

from windlass.config import ring
from windlass.errors import InvalidPayload, KeyMissing, StoreError
from windlass.job import Job, Lease, Reason, Shape
from windlass.loop import Loop
from windlass.observe import names, tracing
from windlass.outcome import Again, Dead, Done, Left, Raised, Released, Result, Returned, Snoozed, clean
from windlass.payload import problem_of, seal
from windlass.store.engine import Settlement
from windlass.worker.admission import Admission, BreakerCounts
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


# --- jobs whose payload only another release of the application can read ----------------------------

_LONGEST = 200
# One log line per type and minute, however many jobs are left.
_LOGGED_EVERY = 60.0


class OtherReleases:
    """Jobs that another release made, and that only its workers can read, are left to them."""

    def __init__(self, env: Env) -> None:
        self._store = env.store
        self._handlers = env.handlers
        self._clock = env.clock
        # What tells apart workers that can read different payloads.
        read = [(name, each.version, each.signature.schema) for name, each in sorted(env.handlers.items())]
        self.reader = hashlib.blake2b(msgspec.json.encode(read), digest_size=8).hexdigest()
        # By type: when the log last named it, and the jobs since then with the last one's problem.
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()

    def reconsider(self, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        """The same, but what was refused for its payload and fits another release goes back unharmed."""
        # Read now, not remembered: a job must not die because its release is news to this worker.
        types = {each.lease.job.type for each in settlements if _refused(each)}
        shapes = {name: self._store.shapes(name) for name in types}
        return [
            self._reconsidered(each, shapes[each.lease.job.type]) if _refused(each) else each
            for each in settlements
        ]

    def _reconsidered(self, settlement: Settlement, shapes: Sequence[Shape]) -> Settlement:
        job = settlement.lease.job
        handler = self._handlers[job.type]
        if job.schema_version != handler.version:
            # It was upgraded here: what came out of that is this release's own doing.
            return settlement
        try:
            # In the clear: the problem may be in an encrypted field.
            payload = bytes(handler.current(job, ring))
        except (InvalidPayload, KeyMissing):
            return settlement
        problem = problem_of(handler.signature.schema, payload, job.type)
        if problem is None:
            return settlement
        fits = (
            shape.schema_version == job.schema_version and problem_of(shape.schema, payload, job.type) is None
            for shape in shapes
        )
        if not any(fits):
            return settlement
        # Another release may have encrypted what is no secret here.
        secret = {*handler.signature.secret, *_sealed(job)}
        shown = clean(problem.hiding(secret), _LONGEST)
        field = clean(_field(problem.path, secret), _LONGEST)
        outcome = Left(self._ends_in(job), reader=self.reader, field=field, problem=shown)
        return msgspec.structs.replace(settlement, outcome=outcome)

    def note(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Jobs were left, each by its type and problem: count them for the log."""
        with self._lock:
            for job_type, problem in jobs:
                number, _ = self._unlogged.get(job_type, (0, ""))
                self._unlogged[job_type] = (number + 1, problem)
        self.report()

    def report(self, *, last: bool = False) -> None:
        """Log how many jobs were left, at most once a minute for each type; `last`: the worker stops."""
        now = self._clock.monotonic()
        with self._lock:
            due = {
                name: self._unlogged.pop(name)
                for name in sorted(self._unlogged)
                if last or now - self._logged_at.get(name, -_LOGGED_EVERY) >= _LOGGED_EVERY
            }
            self._logged_at |= dict.fromkeys(due, now)
        for name, (number, problem) in due.items():
            extra = {"type": name, "jobs": number, "problem": problem, "reader": self.reader}
            log.info("job.left", extra=extra)

    def _ends_in(self, job: Job) -> timedelta | None:
        """When its age ends it: it is then offered to everybody, and the first who takes it says so."""
        max_age = self._handlers[job.type].policy.max_age
        if max_age is None:
            return None
        now = job.started_at or job.updated_at
        # A little later, so that the worker that takes it then finds that its time is over.
        return max(job.enqueued_at + max_age - now, timedelta(0)) + timedelta(seconds=1)


def _sealed(job: Job) -> set[str]:
    if not seal.has_seal(job.payload):
        return set()
    stored: dict[str, object] = msgspec.json.decode(job.payload)
    return {name for name, value in stored.items() if seal.is_sealed(value)}


def _field(path: str, secret: Collection[str]) -> str:
    """The field that a problem is about. All items of a list are one field, and a secret one has no parts."""
    name = re.split(r"[.\[]", path.removeprefix("payload."), maxsplit=1)[0]
    return f"payload.{name}" if name in secret else re.sub(r"\[\d+\]", "[]", path)


def _refused(settlement: Settlement) -> bool:
    outcome = settlement.outcome
    return isinstance(outcome, Dead) and outcome.error.reason is Reason.INVALID_PAYLOAD
