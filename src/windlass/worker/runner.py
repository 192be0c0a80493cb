"""The way of one job through a worker, in order: claimed, prepared, called, decided, settled.

    claimed   take     leases become runs and wait for a slot of their pool; `start` hands them to a thread,
                       to the event loop, or to a thread that waits for a child process
    prepare   prepare  may it start, does the payload fit, until when may it run
    call      call     the handler is called; whatever it does becomes a `Result`
    decide    finish   the result and the type's policy make an `Outcome` (outcome.py); the first caller wins
    settle    done     the settler writes it in a batch, fenced by the lease's token; the slot comes free

Below that: the other ways in which a run ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import Any

from windlass.config import ring
from windlass.context import Context
from windlass.errors import InvalidPayload
from windlass.job import Lease, Reason, named
from windlass.observe import tracing
from windlass.outcome import (
    Crashed,
    Done,
    Overdue,
    Raised,
    Rejected,
    Result,
    Unstarted,
    decide,
    failure,
    is_overdue,
)
from windlass.store.flow import Restriction
from windlass.worker.admission import LiveSettings
from windlass.worker.children.child import ChildFailed, ChildRun
from windlass.worker.children.children import Children
from windlass.worker.coroutines import Coroutines
from windlass.worker.pool import PollTriggers, Pool
from windlass.worker.run import ContextBackend, Env, Run, returned, settlement
from windlass.worker.settler import Settler
from windlass.worker.shell import Shell
from windlass.worker.threads import Threads
from windlass.worker.timeouts import Deadlines
from windlass.worker.watchdog import Liveness, watched_job

log = logging.getLogger("windlass.runner")

# A handler's call, made ready; or, if it must not run, the result that it has without running.
Prepared = partial[Any] | Result


@dataclass(eq=False)
class Runner:
    """Takes each lease from its claim to its outcome."""

    env: Env
    live: LiveSettings
    settler: Settler
    triggers: PollTriggers
    shell: Shell
    children: Children
    liveness: Liveness
    # Once set nothing starts any more; what was about to is given back.
    closed: bool = False

    def __post_init__(self) -> None:
        self._clock, self._membership, self._runs = self.env.clock, self.env.membership, self.env.runs
        self.deadlines = Deadlines(self._clock)
        # Read when the first encrypted payload comes.
        self._ring = cache(ring)
        self.threads = Threads(self.call, self.done, caller=Runner.call.__code__)
        self.coroutines = Coroutines(self.call_async, self.done, self.triggers, clock=self._clock)

    # --- claimed ---

    def take(
        self, pool: Pool, leases: Sequence[Lease], received: float, restricted: Mapping[str, Restriction]
    ) -> None:
        """Leases were claimed: they wait for a slot, or start now. Those of restricted types have permits."""
        runs = []
        for lease in leases:
            job_type = lease.job.type
            handler = self.live.handlers[job_type]
            runs.append(Run(lease, handler, pool, received, restricted.get(job_type)))
        if tracing.on():
            waited = self._clock.monotonic() - received
            for run in runs:
                run.trace = tracing.Trace(run.lease, waited, self.env.app)
        # All or none: a lease that is not here is given back, since nobody would run it.
        for run in runs:
            self._runs[run.token] = run
        self.start(pool.offer(runs))

    def start(self, runs: Sequence[Run]) -> None:
        hanging = self.live.admission.switches.hanging
        on_loop = []
        for run in runs:
            if run.handler.name in hanging:
                run.isolate()
            if run.handler.kind == "loop" and not run.in_child:
                on_loop.append(run)
            else:
                self.threads.start(run)
        if on_loop:
            self.coroutines.start(on_loop)

    # --- prepare ---

    def prepare(self, run: Run) -> Prepared:
        """What to call; a job that may not start, or whose payload does not fit, ends without."""
        lease, handler = run.lease, run.handler
        # A new id means that the fleet gave this lease to another worker.
        if self.closed or not self._membership.sure() or lease.worker != self._membership.id:
            return Unstarted()
        now = self._clock.monotonic()
        policy, timeout = self.live.in_force[lease.job.type]
        if policy.max_age is not None and is_overdue(lease.job, policy, run.store_time(now)):
            return Overdue()
        try:
            run.payload = lease.job.payload
            if lease.job.schema_version < handler.version or b'"$' in bytes(run.payload):
                run.payload = handler.current(lease.job, self._ring)
            payload = handler.signature.decode(run.payload)
        except InvalidPayload as error:
            return Rejected(str(error))
        if handler.kind == "shell" and payload.get("timeout") is not None:
            # A command's own timeout holds instead of its type's: who sends a command knows it best.
            timeout = timedelta(seconds=payload["timeout"])
        if not run.begin(now, timeout):
            return Unstarted()
        if log.isEnabledFor(logging.INFO):
            _log_start(run)
        if run.ends < self.deadlines.next_look:
            self.deadlines.woken.set()
        if handler.kind == "shell" or handler.signature.context is not None:
            return self._prepare_special(run, payload)
        return partial(handler.function, **payload)

    def _prepare_special(self, run: Run, payload: dict[str, Any]) -> Prepared:
        """A command, or a handler that asks for a Context."""
        name = run.handler.signature.context
        if name is None:
            return partial(self.shell.run, run, payload)
        payload[name] = Context(
            run.lease.job,
            run.notice,
            deadline=run.store_time(run.ends),
            ends=run.ends,
            clock=self._clock,
            worker=ContextBackend(run, self.env, self.deadlines),
            check_draft=run.handler.check_draft,
        )
        return partial(run.handler.function, **payload)

    # --- call ---

    def call(self, run: Run) -> Result:
        """Run a `def` handler or a command on this thread. A handler's frame is right below this one's."""
        if run.in_child:
            return self._call_in_child(run)
        forks, box, slot = _forks.count, self.liveness.box, -1
        try:
            prepared = self.prepare(run)
            if not isinstance(prepared, partial):
                return prepared
            if box is not None:
                slot = box.enter(watched_job(run))
            try:
                if run.trace is None:
                    value = prepared()
                else:
                    with run.trace.running():
                        value = prepared()
            finally:
                if _forks.count != forks:
                    # A child that a handler forked off would be a copy of the worker that nobody ends.
                    os._exit(0)
                if box is not None:
                    box.leave(slot)
            result: Result = value if run.handler.kind == "shell" else returned(value, run.handler.result)
            return self._read(run, result) if isinstance(result, Raised) else result
        except BaseException as error:  # noqa: BLE001 # wall: nothing that a handler raises may end its thread
            return self._read(run, Raised(error))

    async def call_async(self, run: Run) -> Result:
        forks, box, slot = _forks.count, self.liveness.box, -1
        try:
            prepared = self.prepare(run)
            if not isinstance(prepared, partial):
                return prepared
            if box is not None:
                slot = box.enter(watched_job(run))
            try:
                with contextlib.nullcontext() if run.trace is None else run.trace.running():
                    value = await prepared()
            finally:
                if _forks.count != forks:
                    os._exit(0)
                if box is not None:
                    box.leave(slot)
            result = returned(value, run.handler.result)
            return self._read(run, result) if isinstance(result, Raised) else result
        except BaseException as error:  # noqa: BLE001 # wall: nothing that a handler raises may end the loop
            return self._read(run, Raised(error))

    def _read(self, run: Run, raised: Raised) -> Raised:
        """What an exception says, read while the attempt's time runs: that may run the application's code.

        If that never returns, the run ends by its timeout as if the handler had not returned. Of a run that
        was asked to stop nothing is read: why it ends is known.
        """
        if run.asked_to_stop:
            return raised
        rules = self.live.in_force[run.lease.job.type].policy.rules
        read = failure(raised.exception, rules, named(run.lease.job), raised.output)
        return Raised(raised.exception, raised.output, read)

    def _call_in_child(self, run: Run) -> Result:
        try:
            with self.children.one_for(run) as child:
                # The child is there before the job's time begins to run.
                backend = ContextBackend(run, self.env, self.deadlines)
                run.carrier = child_run = ChildRun(child, backend, self._clock, self.children.oom)
                prepared = self.prepare(run)
                if not isinstance(prepared, partial):
                    return prepared
                with contextlib.nullcontext() if run.trace is None else run.trace.running():
                    result = child_run.carry(self.children.work(run))
                if not child_run.clean:
                    child.end()
                return result
        except ChildFailed as error:
            return Crashed(Reason.CHILD_CRASHED, f"no child process could be started for it: {error}")
        except BaseException as error:  # noqa: BLE001 # wall: nothing may end the thread
            return Raised(error)

    # --- decide and settle ---

    def finish(self, run: Run, result: Result, *, held: bool = False) -> bool:
        """Decide what a result amounts to and have it written; False if done before. `held`: work goes on."""
        ended = run.close(result)
        if ended is None:
            return False
        now, job, trace = self._clock.monotonic(), run.lease.job, run.trace
        if run.completed:
            if trace is not None:
                trace.ended(Done())
            self._runs.pop(run.token, None)
            self.settler.note_completed(settlement(run, Done(), now, self.env.app), ended)
            return True
        policy, at = self.live.in_force[job.type].policy, run.store_time(now)
        try:
            outcome = decide(job, ended, policy, now=at, chance=self.env.chance)
        except BaseException as error:  # noqa: BLE001 # wall: a delay out of all bounds is the handler's failure
            outcome = decide(job, Raised(error), policy, now=at, chance=self.env.chance)
        if isinstance(outcome, Done) and outcome.missing is not None:
            log.warning("job.result_not_kept", extra=run.lease.fields | {"why": outcome.missing})
        if trace is not None:
            trace.ended(outcome)
        self.settler.submit(settlement(run, outcome, now, self.env.app, held=held))
        return True

    def done(self, run: Run, result: Result) -> None:
        """The work of a run has really ended: settle it, and let what waited for its slot start."""
        # An child_run knows its run: the two would keep each other, and with them a dead child's buffers.
        run.carrier = None
        was_held = not self.finish(run, result) and run.started is not None
        if was_held and run.end():
            self.settler.let_go(run.token)
        following = run.pool.free(run, self._clock.monotonic(), was_held=was_held)
        if following:
            self.start(following)
        self.triggers.freed(run.pool)

    # --- how else a run ends ---

    def give_back(self, run: Run) -> None:
        """A run that never started: let others have it, with its attempt."""
        self.finish(run, Unstarted())

    def cut(self, run: Run) -> None:
        """Settle a run that was asked to stop, although its work goes on; slot and permits stay taken."""
        held = run.started is not None and self.live.admission.limited(run.lease.job.type)
        if self.finish(run, Unstarted(), held=held) and run.started is not None:
            run.pool.hold()
            if held and run.hold():
                self.settler.let_go(run.token)

    def lose(self, run: Run) -> None:
        """The store says that this lease is gone: stop the work, record nothing."""
        if not (run.completing or run.completed) and run.lose():
            self._runs.pop(run.token, None)
            if run.trace is not None:
                run.trace.ended(None)
            self.settler.note_lost(run.lease)
            if run.started is not None:
                run.pool.hold()
            self.deadlines.break_off(run)

    def carried(self) -> list[Run]:
        return [*self.threads.carried(), *self.coroutines.carried()]


def _log_start(run: Run) -> None:
    """Name the job before its work begins: if it takes the machine's memory, the log's last line shows which.

    Short ones would drown the log, and are logged only where everything is.
    """
    light = run.pool.prefetch.is_light(run.handler.name) and not run.suspect
    level = logging.DEBUG if light and run.handler.kind not in ("process", "shell") else logging.INFO
    if log.isEnabledFor(level):
        log.log(level, "job.started", extra=run.lease.fields)


class _Forks:
    """How many forks have led to this process; to ask the system who we are would cost each job two calls."""

    count = 0

    def note(self) -> None:
        self.count += 1


_forks = _Forks()
os.register_at_fork(after_in_child=_forks.note)
