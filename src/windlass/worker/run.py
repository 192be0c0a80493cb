"""A run: one lease in this worker's hands, from claim to settle, and what its handler returns or asks for."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from windlass.context import Backend, Notice, OnceStep
from windlass.errors import FatalError, Refused
from windlass.job import MAX_PROGRESS_MESSAGE, MAX_RESULT, SUSPECT_AFTER, Keep, Lease, NewJob, Output
from windlass.observe import tracing
from windlass.outcome import (
    Done,
    Interrupted,
    Outcome,
    Raised,
    Result,
    Returned,
    Stopped,
    TimedOut,
    clean,
    describe,
)
from windlass.payload.schema import dumped
from windlass.policy import is_sampled
from windlass.store.engine import Settlement
from windlass.store.running import Said, Transacting
from windlass.worker.children.messages import Completion

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.config import WorkerConfig
    from windlass.observe.ledger import Ledger
    from windlass.observe.tracing import Trace
    from windlass.registry import Handler
    from windlass.store.flow import Restriction
    from windlass.store.store import Store
    from windlass.upkeep.membership import Membership
    from windlass.wakeup import Wakeup
    from windlass.worker.pool import Pool
    from windlass.worker.timeouts import Deadlines

# What a run that was asked to stop may end as.
End = TimedOut | Interrupted | Stopped


class Env(NamedTuple):
    """What most parts of a worker use."""

    store: Store
    wakeup: Wakeup
    clock: Clock
    config: WorkerConfig
    ledger: Ledger
    membership: Membership
    # By type, those that are served here.
    handlers: Mapping[str, Handler]
    # By token, every lease that this worker holds: waiting, running, or with a result not yet written.
    runs: dict[str, Run]
    # The release of the application that runs here, if it says.
    app: str = ""
    # Numbers in [0, 1) for jitter.
    chance: Callable[[], float] = random.random


class Carrier(Protocol):
    """What carries a run out: a thread, the loop, a command."""

    def halt(self, run: Run) -> bool:
        """Make the work end, if it has not; from any thread. False if that must be asked again soon."""


class Run:
    """One lease and the work under it. Settled exactly once, whoever comes first."""

    # As the handler takes it, once the run is prepared.
    payload: bytes | msgspec.Raw = b""
    carrier: Carrier | None = None
    started: float | None = None
    timeout = timedelta(0)
    # When its time is over; and, once asked to stop, when the work is broken off, and when the run is settled
    # even though the work goes on.
    ends = halt_at = cut_at = math.inf
    # What the handler says through its context: how far it is, what is kept and enqueued when it is done.
    progress: Said | None = None
    result = Done()
    enqueues: tuple[NewJob, ...] = ()
    # Its spans, where the application traces.
    trace: Trace | None = None
    # Jobs of its type keep workers from answering.
    isolated = False
    # Its own transaction is being committed, and finds out for itself whether the lease is gone.
    completing = False
    # That transaction is committed: the job is completed, and what the handler does now changes nothing.
    completed = False
    _end: End | None = None
    # Settled; settled while the work goes on; and that has ended.
    _closed = _held = _ended = False

    def __init__(
        self,
        lease: Lease,
        handler: Handler,
        pool: Pool,
        received: float,
        restriction: Restriction | None = None,
    ) -> None:
        self.lease = lease
        # The fence.
        self.token = lease.token
        self.handler = handler
        self.pool = pool
        self.received = received
        # What its claim took of rates, and comes back if it does not start.
        self.tokens = () if restriction is None else restriction.tokens
        # It takes something from its claim on that others wait for: a permit or, as its pool knows, memory.
        self.scarce = restriction is not None
        # It runs in a process of its own.
        self.in_child = handler.kind == "process" or (lease.job.losses >= SUSPECT_AFTER and self.suspect)
        self.notice = Notice()
        self._lock = threading.Lock()

    @property
    def suspect(self) -> bool:
        """Whether its job, or others of its type, may end or hang a worker: then it runs in a child."""
        handler = self.handler
        apart = handler.kind == "process" or (handler.kind != "shell" and handler.origin is not None)
        return apart and (self.isolated or self.lease.job.losses >= SUSPECT_AFTER)

    def isolate(self) -> None:
        self.isolated = True
        self.in_child = self.handler.kind == "process" or self.suspect

    @property
    def open(self) -> bool:
        return not self._closed

    @property
    def asked_to_stop(self) -> bool:
        """Whether how it ends is known, whatever the work does."""
        return self._closed or self._end is not None

    def extend(self, ends: float) -> bool:
        """Give the work until then; False if it was asked to stop before."""
        with self._lock:
            if self.asked_to_stop:
                return False
            self.ends = ends
            return True

    def begin(self, now: float, timeout: timedelta) -> bool:
        """The work starts now; False if it must not, because it was settled or asked to stop before."""
        with self._lock:
            if self._closed or self._end is not None:
                return False
            self.started = now
            self.timeout = timeout
            self.ends = now + timeout.total_seconds()
            return True

    def stop(self, end: End, *, halt_at: float, cut_at: float) -> bool:
        """Ask the work to stop; it will have ended as `end` whatever it returns. False if asked before.

        A handler that was asked may return early: taking that for a success would lose what it left undone.
        """
        with self._lock:
            if self.asked_to_stop:
                return False
            self._end = end
            self.ends = math.inf
            self.halt_at = halt_at
            self.cut_at = cut_at
        self.notice.give()
        return True

    def halt(self) -> bool:
        self.halt_at = math.inf
        carrier = self.carrier
        return carrier is None or carrier.halt(self)

    def close(self, result: Result) -> Result | None:
        """The result to settle, for the first who asks; None for everybody after."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            end = self._end
        if end is None:
            return result
        output: Output | None = getattr(result, "output", None)
        return end if output is None else msgspec.structs.replace(end, output=output)

    def lose(self) -> bool:
        """The lease is gone: write nothing. False if a result is on its way already."""
        self.notice.lose()
        with self._lock:
            if self._closed:
                return False
            self._closed = True
        return True

    def hold(self) -> bool:
        """Settled while the work goes on, which keeps its permits; True if it has ended meanwhile."""
        with self._lock:
            self._held = True
            return self._ended

    def end(self) -> bool:
        """The work has ended; True if it was settled before and had kept its permits."""
        with self._lock:
            self._ended = True
            return self._held

    def store_time(self, now: float) -> datetime:
        """The store's time at `now`, counted on from the claim: our own wall clock may be wrong."""
        claimed = self.lease.job.started_at or self.lease.job.updated_at
        return claimed + timedelta(seconds=now - self.received)


def settlement(run: Run, outcome: Outcome, now: float, app: str, *, held: bool = False) -> Settlement:
    """An outcome with what is written beside it: a completion brings jobs along, and may be checked later."""
    ran = None if run.started is None else timedelta(seconds=now - run.started)
    if not isinstance(outcome, Done):
        tokens = run.tokens if ran is None else ()
        return Settlement(run.lease, outcome, ran, app=app, held=held, tokens=tokens)
    verify = run.handler.verify
    check_in = verify.after if verify is not None and is_sampled(run.lease.id, verify.share) else None
    return Settlement(run.lease, outcome, ran, run.enqueues, check_in, app, held)


_LONGEST_REASON = 500


class ResultNotKept(FatalError):
    """The work ran, but what it returned cannot be kept; running it again would only do the work twice."""

    def __init__(self, why: str) -> None:
        self.why = clean(why, _LONGEST_REASON)
        super().__init__(f"the work ran, but its result cannot be kept: {self.why}")


def returned(value: Any, keep: Keep) -> Returned | Raised:
    """What a handler's return value amounts to.

    The work is done: a value that cannot be kept does not undo that, unless the type asks for its result.
    """
    if value is None or keep is False:
        return _NOTHING
    try:
        data = _encode(value)
        # The encoder writes NaN as null, and a NUL as an escape that no database takes.
        if b"null" in data or b"\\u0000" in data:
            _check_storable(msgspec.to_builtins(value, enc_hook=dumped), "result")
    except ResultNotKept as error:
        return _not_kept(error, keep)
    except BaseException as error:  # noqa: BLE001 # wall: encoding runs the returned object's own code
        described = describe(error)
        return _not_kept(ResultNotKept(f"{described.kind}: {described.message}"), keep)
    if len(data) > MAX_RESULT:
        size = f"it has {len(data)} bytes as JSON, {MAX_RESULT} are allowed"
        return _not_kept(ResultNotKept(f"{size}; keep large data elsewhere and return its name"), keep)
    return Returned(data)


def kept(value: Any, keep: Keep) -> Returned:
    """The same; raises what a return of it would have failed with."""
    result = returned(value, keep)
    if isinstance(result, Raised):
        raise result.exception
    return result


def _not_kept(error: ResultNotKept, keep: Keep) -> Returned | Raised:
    return Raised(error) if keep == "required" else Returned(missing=error.why)


_NOTHING = Returned(None)
_encode = msgspec.json.Encoder(enc_hook=dumped).encode


def _check_storable(value: object, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ResultNotKept(f"{path} is {value}, which JSON does not have")
    if isinstance(value, str) and "\0" in value:
        raise ResultNotKept(f"{path} has a NUL character")
    if isinstance(value, Mapping):
        for name, item in value.items():
            _check_storable(name, f"a key of {path}")
            _check_storable(item, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_storable(item, f"{path}[{index}]")


@dataclass(eq=False)
class ContextBackend(Backend):
    """Between one run's context and the store."""

    run: Run
    env: Env
    deadlines: Deadlines
    _said = Said(0)

    def lend(self) -> tuple[Transacting, timedelta]:
        left = max(0.001, self.run.ends - self.env.clock.monotonic())
        return self.env.store.handlers(), timedelta(seconds=left)

    def completion(self) -> Settlement:
        self.run.completing = True
        return settlement(self.run, self.run.result, self.env.clock.monotonic(), self.env.app)

    def committed(self) -> None:
        self.run.completed = True

    def undone(self) -> None:
        self.run.completing = False

    def keep_result(self, value: Any) -> None:
        self.keep(kept(value, self.run.handler.result))

    def keep(self, result: Returned) -> None:
        """The same for what is JSON already, or cannot be."""
        self._check_open("set_result")
        self.run.result = Done(result.value, missing=result.missing)

    def enqueue(self, drafts: tuple[NewJob, ...]) -> None:
        self._check_open("enqueue")
        self.run.enqueues += tracing.carrying(drafts)

    def progress(self, done: int | None, total: int | None, message: str | None) -> None:
        # Written with the worker's next look, once a second.
        before = self._said
        if done is None:
            done, total = before.done, before.total
        message = before.message if message is None else clean(message, MAX_PROGRESS_MESSAGE)
        self.run.progress = self._said = Said(done, total, message or None)

    def extend(self, seconds: float) -> tuple[float, datetime] | None:
        ends = self.env.clock.monotonic() + seconds
        if not self.run.extend(ends):
            return None
        self.deadlines.watch(ends)
        return ends, self.run.store_time(ends)

    def once(self, key: str, step: OnceStep) -> str:
        lease, store = self.run.lease, self.env.store
        if step == "begin":
            return store.begin_once(lease, key).value
        write = store.end_once if step == "end" else store.undo_once
        write(lease, key)
        return step

    # --- for a child, which has connections of its own ---

    def lend_address(self) -> tuple[str, timedelta]:
        """Where the store is, which is told to nobody else, and how long the transaction may take."""
        return self.env.store.shared_address(), self.lend()[1]

    def tell_completion(self) -> Completion:
        found = self.completion()
        done = found.outcome if isinstance(found.outcome, Done) else Done()
        lease = msgspec.json.encode(found.lease)
        return Completion(lease, done, found.ran, found.enqueues, found.check_in, found.app)

    def _check_open(self, verb: str) -> None:
        if self.run.completed:
            # It would be lost without a word.
            raise Refused(f"the job is completed; ctx.{verb}() belongs into the block of ctx.transaction()")
