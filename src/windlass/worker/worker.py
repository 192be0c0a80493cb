"""A worker's life: start, run, drain, and stop within its time, losing nothing."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Literal, Self

import msgspec

from windlass.clock import Clock, SystemClock
from windlass.config import WorkerConfig, ring
from windlass.errors import StoreError, WindlassError, must_be
from windlass.job import JobState, TypeInfo, View
from windlass.outcome import Interrupted
from windlass.payload import Ring
from windlass.registry import Handler, Registry
from windlass.store.jobs import Count
from windlass.store.store import Store
from windlass.wakeup import Wakeup
from windlass.worker.coroutines import Coroutines
from windlass.worker.health import Health, examine
from windlass.worker.parts import Parts
from windlass.worker.watchdog import EMBEDDED, Watched

log = logging.getLogger("windlass.worker")

_LOOK_SECONDS = 0.1
# The system may give a signal to any thread, and only the main one runs its handler: it must wake up to see.
_DEAF_SECONDS = 0.5
# The time after the grace is shared out: first for jobs that were told to stop, then for writing what came
# of them; the rest is for leaving.
_SHARE_TO_END = 0.6
_SHARE_TO_WRITE = 0.8
_SHARE_TO_LEAVE = 0.9
_LEAST_MARGIN = 1.0
_LEAST_WAIT = 0.1
_IDLE_LOOK_SECONDS = 0.05
_CLAIM_SECONDS = 1.0
# So long is waited for each that only tells what was seen: jobs and their results do not depend on it.
_TELLING_SECONDS = 1.0


class Worker:
    """Claims jobs and runs them, in this process, until stopped."""

    # Whether `start` has come to its end.
    begun = False
    # A signal asked it to stop; an operator asked it to drain; or only a new process helps.
    _asked = _drained = _retired = False
    _leave_at = math.inf

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        registry: Registry,
        config: WorkerConfig | None = None,
        *,
        clock: Clock | None = None,
        watched: Watched = EMBEDDED,
    ) -> None:
        self._wakeup = wakeup
        self._registry = registry
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._phase: Literal["new", "working", "stopped"] = "new"
        # A SimpleQueue may be put to within a signal's handler. An Event may not: its lock could be held by
        # the very code that the signal interrupts.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._process = os.getpid()
        # Whether the stop has begun.
        self.stopping = threading.Event()
        self.parts = Parts(
            store,
            wakeup,
            registry,
            config or WorkerConfig(),
            clock=self._clock,
            asked_to_drain=self._leave_by_request,
            watched=watched,
        )
        self._shutdown = Shutdown(self.parts)

    @property
    def id(self) -> str:
        """The worker's name in the fleet; a new one if the fleet took it for dead."""
        return self.parts.membership.id

    @property
    def types(self) -> tuple[str, ...]:
        """The types that it serves."""
        return tuple(self.parts.types)

    @property
    def restart_reason(self) -> str:
        """Why only a new process helps; empty if this one is well, or is leaving anyway."""
        return "" if self.leaving else self.parts.leaks.reason

    @property
    def leaving(self) -> bool:
        """Whether it claims nothing more, for whatever reason."""
        return self._asked or self._drained or self._retired

    @property
    def retired(self) -> bool:
        """Whether it leaves because only a new process helps, and no signal has asked for the end."""
        return self._retired and not self._asked

    def health(self) -> Health:
        """Whether it is well; asks nobody."""
        return examine(self.parts, begun=self.begun)

    def start(self) -> None:
        """Enter the fleet and begin to claim."""
        parts, registry = self.parts, self._registry
        with self._lock:
            if self._phase != "new":
                raise RuntimeError("a Worker cannot be restarted; create a new one")
            self._phase = "working"
        check_ready(parts.handlers.values(), parts.env.store.types(), ring)
        parts.publish()
        if parts.needs_loop or hooks_need_loop((*registry.on_start, *registry.on_stop)):
            parts.runner.coroutines.open()
        try:
            call_hooks(registry.on_start, parts.runner.coroutines)
            parts.live.refresh()
            parts.heartbeat.join()
        except BaseException:  # wall: no loop stays behind a worker that did not begin
            parts.runner.coroutines.close(_LOOK_SECONDS)
            raise
        # Before anything is claimed: the very first job may hang.
        parts.liveness.begin()
        self._wakeup.subscribe(parts.triggers.hint)
        for loop in (*parts.loops, *parts.reporting, parts.claimer.loop):
            loop.start(parts.ledger.store_error)
        self.begun = True
        log.info("worker.started", extra={"worker": self.id, "types": list(self.types)})

    def run(
        self, beside: Callable[[], None] = lambda: None, may_go: Callable[[], bool] = lambda: True
    ) -> int:
        """Work until asked to stop; the exit code. `may_go`: may one that has retired leave yet?"""
        self.start()
        while not (self._asked or (self._over() and may_go())):
            beside()
            self._pause(_DEAF_SECONDS)
        self.stop(timedelta(0) if self.retired else None)
        return 0

    def run_until_empty(self) -> Remaining:
        """Start, and work until no job of the served types runs anywhere or could be claimed here.

        What is scheduled or waits for a retry is counted, not waited for.
        """
        self.start()
        leftovers = Leftovers(self.parts)
        while not (over := self._over()) and not leftovers.done():
            self._pause(_LOOK_SECONDS)
        ended: Ended = "empty" if not over else "signal" if self._asked else "drained"
        try:
            # Where workers only run until nothing is left, nobody else would ever prune.
            self.parts.pruner.catch_up(lambda: self._asked)
        except WindlassError as error:
            log.warning("worker.unpruned", extra={"error": str(error)})
        self.stop()
        return leftovers.remaining(ended)

    def request_stop(self) -> None:
        """Ask `run` to come to its end; may be called within a signal's handler."""
        self._asked = True
        self._bell.put(None)

    def retire(self, within: timedelta = timedelta.max) -> None:
        """Only a new process helps: claim nothing more, let what runs finish, then let `run` return."""
        self._retired = True
        self._leave_at = self._clock.monotonic() + within.total_seconds()
        self._shutdown.drain()

    def abandon(self) -> None:
        """End every command and child at once, before a forced exit; safe within a signal's handler."""
        if self._process == os.getpid():
            self.parts.shell.kill_all()
            self.parts.children.kill_all()

    def drain(self) -> None:
        """Claim nothing more and give back what has not started; what runs goes on."""
        self._shutdown.drain()

    def stop(self, grace: timedelta | None = None) -> None:
        """Drain, let running jobs finish for `grace`, then stop the rest and give it back."""
        if self._process != os.getpid():
            # A child made by fork has no part of this worker but its memory.
            return
        with self._lock:
            phase, self._phase = self._phase, "stopped"
        if phase != "working":
            return
        self.stopping.set()
        self._wakeup.unsubscribe(self.parts.triggers.hint)
        self._shutdown.end(grace)
        self.parts.liveness.end()
        call_hooks_safely(self._registry.on_stop, self.parts.runner.coroutines, self._shutdown.left)
        self._shutdown.close()
        log.info("worker.stopped", extra={"worker": self.id})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _pause(self, seconds: float) -> None:
        with contextlib.suppress(Empty):
            self._bell.get(timeout=seconds)

    def _over(self) -> bool:
        """Whether `run` comes to its end: asked to, or drained and idle. Held slots do not count."""
        if self._asked:
            return True
        if not (self._drained or self._retired):
            return False
        if self.parts.leaks.loop_stuck:
            self._shutdown.give_up_loop()
        return self.parts.idle() or self._clock.monotonic() >= self._leave_at

    def _leave_by_request(self) -> None:
        """An operator asked this worker to drain: finish what runs, however long that takes, then exit."""
        self._drained = True
        self._shutdown.drain()


class Shutdown:
    """Drain, wait, interrupt, write, leave: each in its share of the time, also with the store away."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock = parts.env.clock
        config = parts.env.config
        self._margin = max((config.exit_after - config.grace).total_seconds(), _LEAST_MARGIN)
        self._longest_grace = max(0.0, config.exit_after.total_seconds() - self._margin)
        self._over = 0.0

    def drain(self) -> None:
        if not self._parts.draining:
            self._parts.draining = True
            log.info("worker.draining", extra={"worker": self._parts.membership.id})
        self._parts.claimer.close(_CLAIM_SECONDS)

    def give_up_loop(self) -> None:
        """Give back the jobs on an event loop that is blocked for good: they cannot go on."""
        for run in self._parts.runner.coroutines.carried():
            if run.open:
                self._parts.runner.deadlines.stop(run, Interrupted(), patience=0.0)

    def end(self, grace: timedelta | None) -> None:
        """Let what runs finish for `grace` (None: as configured), stop the rest, and write every outcome."""
        seconds = self._longest_grace if grace is None else grace.total_seconds()
        margin_begins = self._clock.monotonic() + seconds
        self._over = margin_begins + _SHARE_TO_LEAVE * self._margin
        self.drain()
        if not self._wait_idle(margin_begins):
            patience = _SHARE_TO_END * self._margin
            self._interrupt(patience)
            self._wait_idle(margin_begins + patience + _IDLE_LOOK_SECONDS)
        # Jobs that finished in time leave the rest of theirs to the writing.
        write_until = margin_begins + _SHARE_TO_WRITE * self._margin
        if not self._parts.settler.flush(max(0.0, write_until - self._clock.monotonic())):
            log.warning("worker.unsettled", extra={"outcomes": len(self._parts.settler.queue)})

    def close(self) -> None:
        """Stop every part and leave the fleet, as far as the time allows."""
        parts = self._parts
        for loop in parts.loops:
            loop.stop(self.left())
        for loop in parts.reporting:
            loop.stop(min(self.left(), _TELLING_SECONDS))
        parts.runner.threads.close()
        parts.runner.coroutines.close(self.left())
        within(self.left(), parts.children.close, "children")
        parts.guard.close()
        parts.releases.report(last=True)
        within(min(self.left(), _TELLING_SECONDS), self._report, "ledger")
        within(self.left(), self._leave, "leave")

    def _report(self) -> None:
        try:
            self._parts.ledger.tick()
        except WindlassError as error:
            log.warning("worker.uncounted", extra={"error": str(error)})

    def _leave(self) -> None:
        store, name = self._parts.env.store, self._parts.membership.id
        try:
            # A last beat: jobs may have ended since the one before, and `worker health` shows their count.
            store.beat(name, self._parts.heartbeat.vitals())
            store.leave(name)
        except WindlassError as error:
            log.warning("worker.left_silently", extra={"error": str(error)})

    def _interrupt(self, patience: float) -> None:
        left = [run for run in list(self._parts.runs.values()) if run.open]
        running = [run.lease.id for run in left if run.started is not None]
        log.warning("worker.interrupting", extra={"jobs": running})
        for run in left:
            if run.started is None:
                # Still waiting for its child: it has not begun, and will not.
                self._parts.runner.give_back(run)
            else:
                self._parts.runner.deadlines.stop(run, Interrupted(), patience=patience)

    def _wait_idle(self, until: float) -> bool:
        pause = threading.Event()
        while not self._parts.idle():
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            pause.wait(min(left, _IDLE_LOOK_SECONDS))
        return True

    def left(self) -> float:
        """Seconds that the rest of the ending may take; always a moment."""
        return max(_LEAST_WAIT, self._over - self._clock.monotonic())


Ended = Literal["empty", "signal", "drained"]


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the served types that are left, by why they do not run now; and what ended the run."""

    ended: Ended = "empty"
    # Could run now, and runs now.
    due: int = 0
    processing: int = 0
    scheduled: int
    retrying: int
    # For other jobs to end.
    waiting: int = 0
    # No live worker can read their payload.
    unreadable: int = 0
    # Due, but of a type that is held back.
    paused: int = 0


class Leftovers:
    """Looks for the end of a run that lasts until nothing is left."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.env.store
        self._parts = parts

    def done(self) -> bool:
        """Whether results are written, nothing of these types runs anywhere, and nothing is claimable."""
        parts = self._parts
        if not parts.idle() or not parts.settler.empty:
            return False
        try:
            # In this order: what is claimed between the two looks is seen as running by the second.
            open_types = parts.admission.open(parts.types)
            look = self._store.look(parts.membership.id, open_types, parts.releases.reader)
            running = (each.state is JobState.PROCESSING for each in self._counts())
            return not (look.claimable or look.unread) and not any(running)
        except StoreError:
            # Not knowing is not the end; the worker's own loops tell what is wrong with the store.
            return False

    def remaining(self, ended: Ended) -> Remaining:
        types = self._parts.types
        open_types = self._parts.admission.open(types)
        pending = dict.fromkeys(View, 0)
        processing = paused = 0
        for each in self._counts():
            if each.state is JobState.PROCESSING:
                processing += each.count
            elif each.state is JobState.PENDING and each.view is not None:
                due = each.view == View.DUE
                beyond = due and each.schema_version > types[each.type]
                pending[View.UNREADABLE if beyond else View(each.view)] += each.count
                paused += each.count if due and not beyond and each.type not in open_types else 0
        pending[View.DUE] -= paused
        views = {view.value: pending[view] for view in View if view.value in Remaining.__struct_fields__}
        return Remaining(ended=ended, processing=processing, paused=paused, **views)

    def _counts(self) -> list[Count]:
        return [each for each in self._store.counts().counts if each.type in self._parts.types and each.count]


def within(seconds: float, do: Callable[[], object], name: str) -> bool:
    """Do it on a daemon thread; False if it has not ended within these seconds, and goes on."""
    thread = threading.Thread(target=do, name=f"windlass-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


Hooks = Iterable[Callable[[], object]]


def call_hooks(hooks: Hooks, coroutines: Coroutines, timeout: float | None = None) -> None:
    """Call each, one after the other; `async def` hooks on the loop that the jobs will share."""
    for hook in hooks:
        answer = hook()
        if inspect.iscoroutine(answer):
            coroutines.wait(answer, timeout)


def call_hooks_safely(hooks: Hooks, coroutines: Coroutines, left: Callable[[], float]) -> None:
    """Call each, although others fail, for so many seconds: a job may block the loop for ever."""
    for hook in hooks:
        try:
            call_hooks([hook], coroutines, left())
        except Exception:  # wall: the worker stops in any case
            log.exception("worker.stop_hook_failed", extra={"hook": repr(hook)})


def hooks_need_loop(hooks: Hooks) -> bool:
    """Whether any of them is `async def`."""
    return any(inspect.iscoroutinefunction(hook) for hook in hooks)


def check_ready(handlers: Iterable[Handler], known: Mapping[str, TypeInfo], ring: Callable[[], Ring]) -> None:
    """Refuse to start without a key or a step of an upgrade; warn of payloads that nobody upgrades."""
    for handler in handlers:
        if missing := handler.upgrades.missing():
            steps = ", ".join(f"upgrade(from_version={version})" for version in missing)
            allowed = f"without a gap up to version {handler.version}: {steps} is missing"
            raise must_be(f"the upgrades of {handler.name}", "a gap", allowed)
        if handler.encrypt and not ring():
            allowed = f"given: the type {handler.name} encrypts {', '.join(handler.encrypt)}"
            raise must_be("encryption_keys (WINDLASS_ENCRYPTION_KEYS)", "none", allowed)
        before = known.get(handler.name)
        if before is not None and not handler.upgrades.covers(before.schema_version):
            # The store has seen an older version, of which jobs may wait or lie among the dead letters.
            fields = {"from_version": before.schema_version, "version": handler.version}
            note = "older payloads run only if they fit as they are"
            log.warning("type.upgrade_missing", extra={"type": handler.name, **fields, "note": note})
