"""How are jobs run without a worker's threads? The worker's own parts, each step a call."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.config import WorkerConfig, ring
from windlass.job import Lease, Reason
from windlass.origin import classes_of, told_class
from windlass.outcome import Lost, Raised, Result, decide
from windlass.registry import SHELL
from windlass.store.engine import Settlement, Want
from windlass.worker.parts import Parts
from windlass.worker.run import Run
from windlass.worker.worker import call_hooks, call_hooks_safely, check_ready, hooks_need_loop

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.queue import Queue

_LEASE = timedelta(hours=1)
_LAST_WORDS_SECONDS = 1.0


class Engine:
    """One worker whose loops stand still: it claims, runs and settles when told, on the caller's thread."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._revision = -1
        self._begun = False
        # The tenant served last, by type.
        self._turns: dict[str, str] = {}
        self._parts: Parts

    @property
    def types(self) -> Mapping[str, int]:
        """What can be run here: every handler that is registered by now."""
        return self._parts.types

    def prepare(self) -> None:
        """Be a worker that the fleet knows, with today's handlers and settings."""
        if self._revision != self._queue.registry.revision:
            self._build()
        self._parts.live.refresh()
        self._parts.heartbeat.tick()

    def claim(self, types: Mapping[str, int], limit: int = 1) -> tuple[list[Run], timedelta | None]:
        """Take due jobs, and learn when the next one is due."""
        parts = self._parts
        # Limits are left out: one job runs at a time, and a test's time stands still.
        want = Want(
            worker=parts.membership.id,
            types=parts.admission.open(types),
            limit=limit,
            lease=_LEASE,
            turns=self._turns,
        )
        received = self._clock.monotonic()
        claimed = self._queue.store.claim(want)
        runs = [self._run(lease, received) for lease in claimed.leases]
        parts.runs.add(runs)
        return runs, claimed.again

    def fire(self) -> tuple[bool, timedelta | None]:
        """Make the jobs of schedules whose time has come: were there any, and when is the next?"""
        fired = self._queue.store.fire()
        later = fired.next_in is not None and fired.next_in > timedelta(0)
        return bool(fired.jobs), fired.next_in if later else None

    def work(self, run: Run) -> Result:
        """Call the handler: `def` on this thread, `async def` on a loop that all of them share."""
        runner = self._parts.runner
        if run.handler.kind != "loop":
            return contextvars.copy_context().run(runner.call, run)
        results: list[Result] = []

        async def call() -> None:
            results.append(await runner.call_async(run))

        runner.coroutines.wait(call())
        return results[0]

    def settle(self, run: Run, result: Result) -> None:
        """Decide and write what came of a run, as a worker does."""
        self._parts.runner.finish(run, result)
        self._write()
        if isinstance(result, Raised) and _belongs_to_the_test(result.exception):
            raise result.exception

    def give_back(self, run: Run) -> None:
        """Let a claimed job go unstarted."""
        self._parts.runner.give_back(run)
        self._write()

    def lose(self, run: Run) -> None:
        """What everybody else sees when a worker dies after its handler's last line: nothing was written."""
        job = run.lease.job
        policy = self._parts.live.policy(job.type)
        outcome = decide(job, Lost(Reason.WORKER_LOST), policy, now=self._queue.store.now(), chance=_none)
        self._queue.store.settle([Settlement(run.lease, outcome, None)])
        self._parts.runs.drop([run.token])

    def close(self) -> None:
        """Stop, as a worker does."""
        if self._begun:
            self._begun = False
            registry = self._queue.registry
            call_hooks_safely(registry.on_stop, self._parts.runner.coroutines, lambda: _LAST_WORDS_SECONDS)
            self._take_down()

    def _build(self) -> None:
        """Make the parts, anew if handlers came in since."""
        registry = self._queue.registry
        if self._begun:
            self._take_down()
        config = WorkerConfig(shell=registry.get(SHELL) is not None)
        store, wakeup = self._queue.store, self._queue.wakeup
        # Nobody asks a test to drain.
        self._parts = Parts(
            store, wakeup, registry, config, clock=self._clock, asked_to_drain=lambda: None, chance=_none
        )
        self._revision = registry.revision
        check_ready(self._parts.handlers.values(), store.types(), ring)
        self._parts.publisher.publish()
        if self._parts.needs_loop or hooks_need_loop((*registry.on_start, *registry.on_stop)):
            self._parts.runner.coroutines.open()
        self._parts.heartbeat.join()
        if not self._begun:
            self._begun = True
            call_hooks(registry.on_start, self._parts.runner.coroutines)

    def _take_down(self) -> None:
        self._parts.runner.coroutines.close(_LAST_WORDS_SECONDS)
        self._parts.children.close()
        self._parts.guard.close()
        self._queue.store.leave(self._parts.membership.id)

    def _run(self, lease: Lease, received: float) -> Run:
        self._turns[lease.job.type] = lease.job.tenant
        pool = next(pool for pool in self._parts.pools if lease.job.type in pool.types)
        return Run(lease, self._parts.handlers[lease.job.type], pool, received)

    def _write(self) -> None:
        while not self._parts.settler.empty:
            self._parts.settler.tick()


def _belongs_to_the_test(error: BaseException) -> bool:
    """Ctrl-C and a test runner's own exceptions; a worker takes them for a failure of the job."""
    kinds = (told_class(kind) for kind in classes_of(error))
    return isinstance(error, KeyboardInterrupt) or any(k.startswith(("_pytest.", "unittest.")) for k in kinds)


def _none() -> float:
    """No jitter: a test knows when a retry is due."""
    return 0.0
