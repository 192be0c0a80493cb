"""What happens to one lease: may it start, what came of it, and what does that amount to?"""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any

from windlass.clock import Clock
from windlass.config import ring
from windlass.context import Context
from windlass.errors import InvalidPayload
from windlass.job import Reason
from windlass.observe.tracing import Trace
from windlass.outcome import (
    Crashed,
    Done,
    Outcome,
    Overdue,
    Raised,
    Rejected,
    Result,
    Unstarted,
    decide,
    is_overdue,
)
from windlass.worker.attendant import Attendant
from windlass.worker.children.child import ChildFailed
from windlass.worker.children.children import Children
from windlass.worker.children.errand import Errand
from windlass.worker.presence import Presence
from windlass.worker.returned import returned
from windlass.worker.run import Run, Runs, settlement
from windlass.worker.settler import Settler
from windlass.worker.shell import Shell
from windlass.worker.standing import Standing
from windlass.worker.terms import Terms

log = logging.getLogger("windlass.runner")

# A handler's call, made ready; or, if it must not run, the result that it has without running.
Prepared = partial[Any] | Result


class Runner:
    """The middle of a job's way: lease, handler, result, outcome."""

    def __init__(  # noqa: PLR0913 - wired once, in parts.py
        self,
        settler: Settler,
        runs: Runs,
        standing: Standing,
        terms: Terms,
        shell: Shell,
        children: Children,
        presence: Presence,
        *,
        clock: Clock,
        chance: Callable[[], float] = random.random,
        app: str = "",
    ) -> None:
        self.app = app
        self._settler = settler
        self._runs = runs
        self._standing = standing
        self._terms = terms
        self._shell = shell
        self._children = children
        self._presence = presence
        self._clock = clock
        self._chance = chance
        # Read when the first encrypted payload comes.
        self._ring = cache(ring)
        # Told of each start: when that run's time is over. The warden puts itself here.
        self.on_begin: Callable[[float], None] = _ignore
        # Breaks a run's work off, again and again if need be; the warden as well.
        self.break_off: Callable[[Run], object] = Run.halt
        # Once set nothing starts any more; what was about to is given back.
        self.closed = False

    def call(self, run: Run) -> Result:
        """Run a `def` handler or a command on this thread."""
        forks = _forks.count
        if run.in_child:
            return self._call_in_child(run)
        try:
            prepared = self.prepare(run)
            if not isinstance(prepared, partial):
                return prepared
            slot = self._presence.enter(run)
            try:
                value = prepared() if run.trace is None else _traced(run.trace, prepared)
            finally:
                _forks.end_if_since(forks)
                self._presence.leave(slot)
            return value if run.handler.kind == "shell" else returned(value, run.handler.result)
        except BaseException as error:  # noqa: BLE001 # wall: nothing that a handler raises may end its thread
            return Raised(error)

    async def call_async(self, run: Run) -> Result:
        """Run an `async def` handler on this loop."""
        forks = _forks.count
        try:
            prepared = self.prepare(run)
            if not isinstance(prepared, partial):
                return prepared
            slot = self._presence.enter(run)
            try:
                value = await (prepared() if run.trace is None else _traced_async(run.trace, prepared))
            finally:
                _forks.end_if_since(forks)
                self._presence.leave(slot)
            return returned(value, run.handler.result)
        except BaseException as error:  # noqa: BLE001 # wall: nothing that a handler raises may end the loop
            return Raised(error)

    def _call_in_child(self, run: Run) -> Result:
        """Have a child run the handler, and wait for it on this thread."""
        try:
            with self._children.one_for(run) as child:
                # The child is there before the job's time begins to run.
                run.carrier = errand = Errand(child, self._attendant(run), self._clock, self._children.oom)
                prepared = self.prepare(run)
                if not isinstance(prepared, partial):
                    return prepared
                with contextlib.nullcontext() if run.trace is None else run.trace.running():
                    result = errand.carry(self._children.work(run))
                if not errand.clean:
                    child.end()
                return result
        except ChildFailed as error:
            return Crashed(Reason.CHILD_CRASHED, f"no child process could be started for it: {error}")
        except BaseException as error:  # noqa: BLE001 # wall: nothing may end the thread
            return Raised(error)

    def prepare(self, run: Run) -> Prepared:
        """What to call; a job that may not start, or whose payload does not fit, ends without."""
        lease = run.lease
        # A new name means that the fleet gave this lease to somebody else.
        if self.closed or not self._standing.sure() or lease.worker != self._standing.id:
            return Unstarted()
        now = self._clock.monotonic()
        policy = self._terms.policy(lease.job.type)
        if policy.max_age is not None and is_overdue(lease.job, policy, run.store_time(now)):
            return Overdue()
        try:
            run.payload = run.handler.current(lease.job, self._ring)
            payload = run.handler.decode(run.payload)
        except InvalidPayload as error:
            return Rejected(str(error))
        timeout = self._timeout(run, payload)
        if not run.begin(now, timeout):
            return Unstarted()
        if log.isEnabledFor(logging.INFO):
            _tell_start(run)
        self.on_begin(run.ends)
        return self._bound(run, payload, now + timeout.total_seconds())

    def finish(self, run: Run, result: Result, *, held: bool = False) -> bool:
        """The work has ended: settle it; False if that was done before. `held`: it goes on all the same."""
        ended = run.close(result)
        if ended is None:
            return False
        if run.completed:
            if run.trace is not None:
                run.trace.ended(Done())
            self._runs.drop([run.token])
            self._settler.note_completed(run.lease, ended, run.lasted(self._clock.monotonic()))
        else:
            self._settle(run, ended, held=held)
        return True

    def give_back(self, run: Run) -> None:
        """A run that never started: let others have it, with its attempt."""
        self.finish(run, Unstarted())

    def cut(self, run: Run) -> None:
        """Settle a run that was told to stop, although its work goes on; slot and permits stay taken."""
        held = run.started is not None and self._settler.limited(run.lease.job.type)
        if self.finish(run, Unstarted(), held=held) and run.started is not None:
            run.pool.hold()
            if held:
                self._let_go(run, free=run.hold())

    def end(self, run: Run) -> None:
        """The work of a run that was settled before has ended, too."""
        self._let_go(run, free=run.end())

    def _let_go(self, run: Run, *, free: bool) -> None:
        if free:
            self._settler.let_go(run.token)

    def lose(self, run: Run) -> None:
        """The store says that this lease is gone: stop the work, record nothing."""
        if not (run.completing or run.completed) and run.lose():
            self._runs.drop([run.token])
            if run.trace is not None:
                run.trace.ended(None)
            self._settler.note_lost(run.lease)
            if run.started is not None:
                run.pool.hold()
            self.break_off(run)

    def _timeout(self, run: Run, payload: dict[str, Any]) -> timedelta:
        """A command's own timeout stands instead of its type's: whoever sends a command knows it best."""
        own = payload.get("timeout") if run.handler.kind == "shell" else None
        return self._terms.timeout(run.handler.name) if own is None else timedelta(seconds=own)

    def _bound(self, run: Run, payload: dict[str, Any], ends: float) -> partial[Any]:
        if run.handler.kind == "shell":
            return partial(self._shell.run, run, payload)
        wanted = run.handler.wants_context
        if wanted is not None:
            deadline = run.store_time(ends)
            payload[wanted] = Context(
                run.lease.job,
                run.notice,
                deadline=deadline,
                ends=ends,
                clock=self._clock,
                worker=self._attendant(run),
                check_draft=run.handler.check_draft,
            )
        return partial(run.handler.function, **payload)

    def _attendant(self, run: Run) -> Attendant:
        store = self._settler.store
        return Attendant(run, store, on_extend=self.on_begin, clock=self._clock, app=self.app)

    def _settle(self, run: Run, result: Result, *, held: bool) -> None:
        now = self._clock.monotonic()
        outcome = self._decide(run, result, now)
        if isinstance(outcome, Done) and outcome.missing is not None:
            log.warning("job.result_not_kept", extra=run.lease.fields | {"why": outcome.missing})
        if run.trace is not None:
            run.trace.ended(outcome)
        self._settler.submit(settlement(run, outcome, now, self.app, held=held))

    def _decide(self, run: Run, result: Result, now: float) -> Outcome:
        job = run.lease.job
        policy = self._terms.policy(job.type)
        at = run.store_time(now)
        try:
            return decide(job, result, policy, now=at, chance=self._chance)
        except Exception as error:  # noqa: BLE001 # wall: a delay out of all bounds is the handler's failure
            return decide(job, Raised(error), policy, now=at, chance=self._chance)


def _tell_start(run: Run) -> None:
    """Name the job before its work begins: if it takes the machine's memory, the log's last line tells which.

    Short ones would drown the log, and are told of only where everything is.
    """
    level = logging.INFO if run.heavy else logging.DEBUG
    if log.isEnabledFor(level):
        log.log(level, "job.started", extra=run.lease.fields)


def _traced(trace: Trace, call: partial[Any]) -> Any:
    with trace.running():
        return call()


async def _traced_async(trace: Trace, call: partial[Any]) -> Any:
    with trace.running():
        return await call()


class _Forks:
    """How many forks have led to this process; to ask the system who we are would cost each job two calls."""

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_child=self._note)

    def _note(self) -> None:
        self.count += 1

    def end_if_since(self, count: int) -> None:
        """A child that a handler forked off and let return would be a copy of the worker that nobody ends."""
        if self.count != count:
            os._exit(0)


_forks = _Forks()


def _ignore(_: float) -> None:
    """Nobody watches yet."""
