"""What does a test hold? The application's own queue on a store of the test's own, and its time."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass import connect
from windlass.clock import ManualClock, SystemClock, from_micros
from windlass.config import WorkerConfig, ring
from windlass.duration import Duration, parse_duration
from windlass.errors import JobUnsuccessful, Snooze
from windlass.job import Job, JobState, Lease, NewJob, Reason
from windlass.origin import classes_of, told_class
from windlass.outcome import Lost, Raised, Result, Returned, decide
from windlass.payload.seal import has_seal
from windlass.queue import ContextJobType, JobType, Queue
from windlass.queue.jobs import result_of
from windlass.registry import SHELL
from windlass.store.engine import Settlement, Want
from windlass.store.jobs import Edit, Filter
from windlass.worker.parts import Parts
from windlass.worker.run import Run
from windlass.worker.worker import call_hooks, call_hooks_safely, check_ready, hooks_need_loop

MOST_RUNS = 10_000
_MOST_JOBS = 1_000
_LEASE = timedelta(hours=1)
_LAST_WORDS_SECONDS = 1.0
_MOST_SHOWN = 20
_LONGEST_SHOWN = 200
_MEMORY = "sqlite:///:memory:"

# A type by its name, or by the decorated function.
Type = str | JobType[..., Any] | ContextJobType[..., Any]


@contextlib.contextmanager
def override(queue: Queue, *, url: str = _MEMORY, start: datetime | None = None) -> Iterator[Kit]:
    """Put a queue on a store of the test's own for as long as the block lasts.

    The store is SQLite in memory unless `url` names another; time stands still from `start`, or from now.
    """
    clock = ManualClock(start or from_micros(SystemClock().micros()))
    with queue.instead(connect.open_alone(url, clock=clock), url, clock):
        kit = Kit(queue, clock)
        try:
            yield kit
        finally:
            kit.close()


class Kit:
    """Looks at what was enqueued, runs it with the worker's own parts, and lets time pass."""

    def __init__(self, queue: Queue, clock: ManualClock) -> None:
        self.queue = queue
        self._clock = clock
        self._worker = _Worker(queue, clock)
        self._draining = False

    @property
    def now(self) -> datetime:
        """The time that the queue believes it is."""
        return from_micros(self._clock.micros())

    def advance(self, by: Duration) -> None:
        """Let time pass: seconds, a timedelta, or a text such as "10m". Nothing runs until you drain."""
        self._clock.advance(parse_duration(by, "by"))

    def jobs(self, of: Type | None = None, *, state: JobState | str | None = None) -> list[Job]:
        """Every job in the store in the order of arrival, of one type or in one state if you say so."""
        types = () if of is None else (_name(of),)
        states = () if state is None else (JobState(state),)
        found: list[Job] = []
        cursor: str | None = None
        while True:
            page = self.queue.store.find(Filter(types=types, states=states), limit=_MOST_JOBS, cursor=cursor)
            found += page.jobs
            cursor = page.next
            if cursor is None:
                return found[::-1]

    def payload(self, job: Job) -> dict[str, Any]:
        """A job's payload as plain values; what is encrypted in the clear."""
        payload: dict[str, Any] = msgspec.json.decode(job.payload)
        return ring().open(payload, job.id) if has_seal(job.payload) else payload

    def assert_enqueued(
        self, of: Type, *, payload_contains: Mapping[str, Any] | None = None, count: int | None = None
    ) -> Job:
        """Fail unless such a job was enqueued, whatever became of it since; the newest one is the answer.

        `payload_contains` names fields that the payload must have, in depth; `count` says exactly how many.
        """
        found, every = self._enqueued(of, payload_contains)
        if not found or count not in (None, len(found)):
            wanted = f"{'a' if count is None else count} job of type {_name(of)}"
            fields = f" with {_plain(payload_contains)}" if payload_contains else ""
            raise AssertionError(f"expected {wanted}{fields}, found {len(found)}; {every}")
        return found[-1]

    def assert_not_enqueued(self, of: Type, *, payload_contains: Mapping[str, Any] | None = None) -> None:
        """Fail if such a job was enqueued."""
        found, every = self._enqueued(of, payload_contains)
        if found:
            raise AssertionError(f"expected no job of type {_name(of)}; {every}")

    def _enqueued(self, of: Type, fields: Mapping[str, Any] | None) -> tuple[list[Job], str]:
        """The jobs of a type whose payload has these fields, and what there is at all."""
        every, expected = [(job, self.payload(job)) for job in self.jobs()], _plain(fields or {})
        found = [job for job, payload in every if job.type == _name(of) and _contains(payload, expected)]
        return found, _told(every)

    def drain(self, within: Duration | None = None) -> list[Job]:
        """Run every job that is due, and those that they enqueue; the jobs that ran, as they stand now.

        With `within`, time passes as far as that, and what comes due meanwhile runs at its time: retries,
        snoozes, schedules. A job that failed and has not come right raises here what its handler raised;
        its record is written all the same, as in production.
        """
        ran, failed = self._drain(within)
        for job, error in failed:
            others = f", and {len(failed) - 1} more failed" if len(failed) > 1 else ""
            error.add_note(
                f"job {job.id} of type {job.type}, attempt {job.attempts}; now {job.state}{others}"
            )
            raise error
        return ran

    def try_drain(self, within: Duration | None = None) -> list[Job]:
        """The same for tests of failures: nothing is raised, the jobs' records tell."""
        return self._drain(within)[0]

    async def drain_async(self, within: Duration | None = None) -> list[Job]:
        """For async tests: drain on another thread, so that this loop goes on."""
        return await asyncio.to_thread(self.drain, within)

    def run(self, draft: NewJob) -> Any:
        """Enqueue one job, run it now and alone, and give its result; raises what its handler raised."""
        self._worker.prepare()
        run = self._claim(draft)
        result = self._worker.work(run)
        self._worker.settle(run, result)
        job = self.queue.get(run.lease.id)
        if job.state is not JobState.COMPLETED:
            raise _failure(job, result)
        return result_of(job)

    def run_twice(self, draft: NewJob, *, effects: Callable[[], object] | None = None) -> Job:
        """Run a job, lose its worker before anything is recorded, and run it again: is that safe?

        That is what happens when a machine dies after the handler's last line. `effects` tells what the
        handler has changed in the world: if the second run changes it again, the handler is not safe to
        repeat, and this fails.
        """
        self._worker.prepare()
        first = self._claim(msgspec.structs.replace(draft, max_attempts=max(2, draft.max_attempts)))
        before = self._must(first, self._worker.work(first), effects)
        self._worker.lose(first)
        second = self._claim_again(first.lease.id, first.lease.job.type)
        result = self._worker.work(second)
        self._worker.settle(second, result)
        after = self._must(second, result, effects)
        if before != after:
            raise AssertionError(
                f"{draft.type} is not safe to repeat: {before!r} after one run, {after!r} after two"
            )
        return self.queue.get(second.lease.id)

    @contextlib.contextmanager
    def inline(self) -> Iterator[None]:
        """Within the block every job that is enqueued runs at once, before `enqueue` returns."""
        self.queue.wakeup.subscribe(self._run_inline)
        try:
            yield
        finally:
            self.queue.wakeup.unsubscribe(self._run_inline)

    def close(self) -> None:
        """Call the application's hooks for a worker's stop, if anything was run."""
        self._worker.close()

    def _run_inline(self) -> None:
        if not self._draining:
            self.drain()

    def _drain(self, within: Duration | None) -> tuple[list[Job], list[tuple[Job, BaseException]]]:
        left = timedelta(0) if within is None else parse_duration(within, "within")
        ran: dict[str, Result] = {}
        self._draining = True
        try:
            for _ in range(MOST_RUNS):
                self._worker.prepare()
                fired, next_fire = self._worker.fire()
                runs, next_due = self._worker.claim(self._worker.types)
                for run in runs:
                    ran[run.lease.id] = self._worker.work(run)
                    self._worker.settle(run, ran[run.lease.id])
                if runs or fired:
                    continue
                coming = min((each for each in (next_due, next_fire) if each is not None), default=None)
                if coming is None or coming > left:
                    return self._after(ran)
                self._clock.advance(coming)
                left -= coming
        finally:
            self._draining = False
        raise AssertionError(f"still not empty after {MOST_RUNS} runs: does a job enqueue itself for ever?")

    def _after(self, ran: Mapping[str, Result]) -> tuple[list[Job], list[tuple[Job, BaseException]]]:
        jobs = [self.queue.get(job_id) for job_id in ran]
        failed = [(job, _failure(job, ran[job.id])) for job in jobs if _has_failed(job, ran[job.id])]
        return jobs, failed

    def _claim(self, draft: NewJob) -> Run:
        [job] = self.queue.enqueue_many([draft])
        if job.get().run_at > self.now:
            self.queue.store.edit(job.id, Edit(run_at=self.now))
        return self._claim_again(job.id, draft.type)

    def _claim_again(self, job_id: str, job_type: str) -> Run:
        """Claim this one job; whatever else came with it is given back."""
        known = {job_type: self._worker.types[job_type]} if job_type in self._worker.types else {}
        runs, _ = self._worker.claim(known, limit=_MOST_JOBS)
        for run in runs:
            if run.lease.id != job_id:
                self._worker.give_back(run)
        for run in runs:
            if run.lease.id == job_id:
                return run
        raise AssertionError(f"job {job_id} of type {job_type} cannot be claimed: is its handler registered?")

    def _must(self, run: Run, result: Result, effects: Callable[[], object] | None) -> object:
        if not isinstance(result, Returned):
            self._worker.settle(run, result)
            raise _failure(self.queue.get(run.lease.id), result)
        # A copy: a list that grows would be equal to itself.
        return None if effects is None else copy.deepcopy(effects())


class _Worker:
    """One worker whose loops stand still: it claims, runs and settles when told, on the caller's thread."""

    def __init__(self, queue: Queue, clock: ManualClock) -> None:
        self._queue = queue
        self._clock = clock
        self._revision = -1
        self._begun = False
        # The tenant served last, by type.
        self._turns: dict[str, str] = {}
        self._parts: Parts

    @property
    def types(self) -> Mapping[str, int]:
        return self._parts.types

    def prepare(self) -> None:
        """Be a worker that the fleet knows, with today's handlers and settings."""
        if self._revision != self._queue.registry.revision:
            self._build()
        self._parts.live.refresh()
        self._parts.heartbeat.tick()

    def claim(self, types: Mapping[str, int], limit: int = 1) -> tuple[list[Run], timedelta | None]:
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
        parts.runs.update({run.token: run for run in runs})
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
        return runner.coroutines.wait(runner.call_async(run))

    def settle(self, run: Run, result: Result) -> None:
        self._parts.runner.finish(run, result)
        self._write()
        if isinstance(result, Raised) and _belongs_to_the_test(result.exception):
            raise result.exception

    def give_back(self, run: Run) -> None:
        self._parts.runner.give_back(run)
        self._write()

    def lose(self, run: Run) -> None:
        """What everybody else sees when a worker dies after its handler's last line: nothing was written."""
        job = run.lease.job
        policy = self._parts.live.policy(job.type)
        outcome = decide(job, Lost(Reason.WORKER_LOST), policy, now=self._queue.store.now(), chance=_none)
        self._queue.store.settle([Settlement(run.lease, outcome, None)])
        del self._parts.runs[run.token]

    def close(self) -> None:
        if self._begun:
            self._begun = False
            registry = self._queue.registry
            call_hooks_safely(registry.on_stop, self._parts.runner.coroutines, lambda: _LAST_WORDS_SECONDS)
            self._take_down()

    def _build(self) -> None:
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
        self._parts.publish()
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
    return 0.0


def _name(of: Type) -> str:
    return of if isinstance(of, str) else of.handler.name


def _contains(payload: Any, expected: Any) -> bool:
    """Whether every field that is expected is there; objects are compared in depth, the rest as it is."""
    if isinstance(expected, Mapping) and isinstance(payload, Mapping):
        return all(name in payload and _contains(payload[name], value) for name, value in expected.items())
    return bool(payload == expected)


def _plain(value: Any) -> Any:
    """What a test expects, as JSON would carry it: a date as its text, a dataclass as an object."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _told(jobs: Sequence[tuple[Job, Mapping[str, Any]]]) -> str:
    if not jobs:
        return "nothing was enqueued"
    lines = ["these jobs were enqueued:"]
    for job, payload in jobs[:_MOST_SHOWN]:
        text = msgspec.json.encode(payload).decode()
        short = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
        lines.append(f"  {job.type} {short} ({job.state})")
    if len(jobs) > _MOST_SHOWN:
        lines.append(f"  ... and {len(jobs) - _MOST_SHOWN} more")
    return "\n".join(lines)


def _has_failed(job: Job, result: Result) -> bool:
    """Whether the last run went wrong; to ask for a later run, or for none, is not to fail."""
    snoozed = isinstance(result, Raised) and isinstance(result.exception, Snooze)
    return job.state is JobState.DEAD or (job.state is JobState.PENDING and not snoozed)


def _failure(job: Job, result: Result) -> BaseException:
    """What a test sees of a failed run: the handler's own exception, where there is one."""
    if isinstance(result, Raised):
        return result.exception
    why = job.error.message if job.error else ""
    return JobUnsuccessful(f"job {job.id} did not complete; it is {job.state}: {why}".rstrip(": "))
