"""Does the store follow the rules through any sequence of verbs? Compared with a small model step by step.

The environment's `MODEL_EXAMPLES` says how many sequences are tried.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from unittest import TestCase

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from tests.conformance import model as expected
from tests.conformance.conftest import ENGINES
from tests.conformance.scene import LEASE, MAIL, REPORT, a_job, a_payload, a_worker, look_up
from windlass import connect
from windlass.clock import ManualClock
from windlass.errors import Cancel, FatalError, KeyConflict, Snooze, WrongState
from windlass.job import Lease, NewJob, Reason, Request
from windlass.outcome import (
    Interrupted,
    Lost,
    Outcome,
    Policy,
    Raised,
    Result,
    Returned,
    Stopped,
    TimedOut,
    Unstarted,
    decide,
)
from windlass.policy import Retry
from windlass.store.engine import Settlement, Want
from windlass.store.fleet import Vitals
from windlass.store.jobs import Edit, Filter
from windlass.store.upkeep import Retention

POLICY = Policy(Retry(kind="fixed", base=30, jitter=0))
KEEP = Retention(ended=timedelta(minutes=10), dead=timedelta(minutes=30))
WORKERS = ["w1", "w2", "w3"]
TENANTS = ["", "a", "b", "c"]
RESULTS: list[Result] = [
    Returned(b'"done"'),
    Raised(ValueError("boom")),
    Raised(FatalError("no")),
    Raised(Snooze(20)),
    Raised(Cancel("no longer")),
    TimedOut(timedelta(seconds=5)),
    Interrupted(),
    Unstarted(),
    Stopped(Request.CANCEL),
    Stopped(Request.BURY),
]


class StoreMachine(RuleBasedStateMachine):
    """Verbs in any order, at any time, from two openings of one store."""

    engine: str

    jobs: Bundle[NewJob] = Bundle("jobs")
    leases: Bundle[Lease] = Bundle("leases")
    sent: Bundle[tuple[Lease, Outcome]] = Bundle("sent")

    @initialize()
    def open(self) -> None:
        self.place = ENGINES[self.engine]()
        self.clock = ManualClock()
        url = self.place.__enter__()
        self.openings = [connect.open(url, clock=self.clock) for _ in range(2)]
        self.store, self.other = (opening.store for opening in self.openings)
        self.model = expected.Model()
        self.turns: dict[str, dict[str, str]] = {name: {MAIL: "", REPORT: ""} for name in WORKERS}
        self.beats = dict.fromkeys(WORKERS, 0)
        for name in WORKERS:
            self.store.join(a_worker(name))

    def teardown(self) -> None:
        if hasattr(self, "openings"):
            assert self.store.check() == []
            for opening in self.openings:
                opening.close()
            self.place.__exit__(None, None, None)

    # --- producing ---

    @rule(
        target=jobs,
        priority=st.sampled_from([0, 5, 10]),
        tenant=st.sampled_from(TENANTS),
        job_type=st.sampled_from([MAIL, MAIL, REPORT]),
        version=st.sampled_from([1, 1, 2]),
        delay=st.sampled_from([0, 0, 0, 15, 90]),
        key=st.sampled_from([None, None, "k1", "k2"]),
        max_attempts=st.integers(1, 3),
    )
    def enqueue(
        self,
        priority: int,
        tenant: str,
        job_type: str,
        version: int,
        delay: int,
        key: str | None,
        max_attempts: int,
    ) -> NewJob:
        new = a_job(
            type=job_type,
            priority=priority,
            tenant=tenant,
            schema_version=version,
            delay=timedelta(seconds=delay),
            key=key,
            max_attempts=max_attempts,
            own_id=True,
            payload=a_payload(key=key),
        )
        self._enqueue(new)
        return new

    @rule(new=jobs)
    def enqueue_the_same_again(self, new: NewJob) -> None:
        self._enqueue(new)

    def _enqueue(self, new: NewJob) -> None:
        known = self.model.jobs.get(new.id) or next(
            (
                job
                for job in self.model.jobs.values()
                if new.key is not None and (job.key, job.tenant) == (new.key, new.tenant)
            ),
            None,
        )
        try:
            [answer] = self.other.enqueue([new])
        except KeyConflict:
            assert known is not None
            assert known.type != new.type
            return
        assert answer.created == (known is None)
        if known is not None:
            assert (answer.id, look_up(self.store, answer.id).type) == (known.id, new.type)
            return
        seq = look_up(self.store, new.id).seq
        self.model.jobs[new.id] = expected.Expected(
            *(
                new.id,
                seq,
                new.type,
                new.priority,
                new.tenant,
                new.schema_version,
                new.key,
            ),
            new.max_attempts,
            self.store.now() + (new.delay or timedelta(0)),
        )

    # --- running ---

    @rule(
        target=leases,
        worker=st.sampled_from(WORKERS),
        limit=st.integers(1, 5),
        types=st.sampled_from([{MAIL: 1}, {MAIL: 2}, {REPORT: 2}, {MAIL: 2, REPORT: 2}]),
    )
    def claim(self, worker: str, limit: int, types: dict[str, int]) -> MultipleResults[Lease]:
        turns = self.turns[worker]
        waiting = self.model.claimable(types, self.store.now())
        want = Want(worker=worker, types=types, limit=limit, lease=LEASE, turns=turns)
        taken = self.store.claim(want).leases
        if len(types) == 1:
            [job_type] = types
            order = expected.in_turn(waiting, turns[job_type])[:limit]
            assert [lease.id for lease in taken] == [job.id for job in order]
        priorities = sorted((job.priority for job in waiting), reverse=True)[:limit]
        assert [lease.job.priority for lease in taken] == priorities
        for lease in taken:
            job = self.model.jobs[lease.id]
            assert job in waiting
            self.model.take(job, token=lease.token, worker=worker, until=self.store.now() + LEASE)
            assert job.like(lease.job)
            turns[lease.job.type] = lease.job.tenant
        return multiple(*taken)

    @rule(lease=leases, seconds=st.sampled_from([60, 90]))
    def extend(self, lease: Lease, seconds: int) -> None:
        kept, lost = self.other.extend([lease], timedelta(seconds=seconds))
        job = self.model.jobs.get(lease.id)
        assert bool(kept) == (job is not None and job.token == lease.token)
        assert bool(lost) != bool(kept)
        if kept and job is not None:
            job.until = self.store.now() + timedelta(seconds=seconds)

    @rule(target=sent, lease=leases, result=st.sampled_from(RESULTS))
    def settle(self, lease: Lease, result: Result) -> tuple[Lease, Outcome]:
        outcome = decide(lease.job, result, POLICY, now=self.store.now(), chance=lambda: 0)
        self._settle(lease, outcome)
        return lease, outcome

    @rule(settled=sent)
    def settle_the_same_again(self, settled: tuple[Lease, Outcome]) -> None:
        self._settle(*settled)

    def _settle(self, lease: Lease, outcome: Outcome) -> None:
        lost = self.store.settle([Settlement(lease, outcome, timedelta(seconds=1))])
        job = self.model.jobs.get(lease.id)
        if job is not None and job.token == lease.token:
            assert lost == []
            self.model.settle(job, outcome, self.store.now())
        elif job is None or job.last is None or job.last[0] != lease.token:
            assert lost == [lease]
        elif job.last[1] == outcome:
            assert lost == []

    # --- operating ---

    @rule(
        new=jobs,
        verb=st.sampled_from(["cancel", "bury", "replay", "discard", "edit"]),
        priority=st.sampled_from([0, 5, 10]),
        delay=st.sampled_from([0, 45]),
    )
    def operate(self, new: NewJob, verb: str, priority: int, delay: int) -> None:
        job = self.model.jobs.get(new.id)
        if job is None:
            return
        now, later = self.store.now(), timedelta(seconds=delay)
        try:
            if verb == "edit":
                self.other.edit(job.id, Edit(priority=priority, run_at=now + later))
            else:
                getattr(self.other, verb)(job.id)
        except WrongState:
            assert not expected.allowed(verb, job.state)
        else:
            assert expected.allowed(verb, job.state)
            expected.act(self.model, verb, job, now, priority=priority, delay=later)

    # --- time and upkeep ---

    @rule(seconds=st.sampled_from([1, 20, 61, 700, 2000]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def promote(self) -> None:
        self.store.promote()

    @rule(name=st.sampled_from(WORKERS))
    def beat(self, name: str) -> None:
        alive = self.beats[name] >= 0
        assert self.other.beat(name, Vitals()) == alive
        self.beats[name] += alive

    @rule(name=st.sampled_from(WORKERS), seen=st.integers(0, 2))
    def declare_dead(self, name: str, seen: int) -> None:
        stands = self.beats[name] == seen
        assert self.store.declare_dead(name, seen) == stands
        if stands:
            self.beats[name] = -1

    @rule()
    def reap(self) -> None:
        now = self.store.now()
        running = self.model.running()
        orphans, expired_ones = self.other.orphans(limit=100), self.other.expired(limit=100)
        assert {lease.id for lease in orphans} == {
            job.id for job in running if self.beats[job.worker or ""] < 0
        }
        assert [lease.id for lease in expired_ones] == [
            job.id
            for job in sorted(running, key=lambda job: (job.until or now, job.seq))
            if job.until is not None and job.until < now
        ]
        lost = [(lease, Lost(Reason.WORKER_LOST)) for lease in orphans]
        lost += [(lease, Lost(Reason.LEASE_EXPIRED)) for lease in expired_ones]
        for lease, result in lost:
            if self.model.jobs[lease.id].token == lease.token:
                self._settle(lease, decide(lease.job, result, POLICY, now=now, chance=lambda: 0))

    @rule()
    def prune(self) -> None:
        before = len(self.model.jobs)
        self.model.prune(KEEP, self.store.now())
        assert self.other.prune(KEEP) == before - len(self.model.jobs)

    # --- always ---

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        found = self.other.find(Filter(), limit=1000).jobs
        assert [job.id for job in found] == [job.id for job in self.model.newest_first()]
        for job, should in zip(found, self.model.newest_first(), strict=True):
            assert should.like(job), (should.told(), job)
            assert 0 <= job.attempts <= job.max_attempts
        tokens = [job.token for job in self.model.running()]
        assert len(tokens) == len(set(tokens))
        held = [lease for name in WORKERS for lease in self.store.held_by(name)]
        assert sorted(lease.token for lease in held) == sorted(token for token in tokens if token)


def _machine(name: str, examples: int) -> type[TestCase]:
    """The machine on one engine, as a test."""

    class Machine(StoreMachine):
        engine = name

    case: Any = Machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    marked: type[TestCase] = pytest.mark.slow(pytest.mark.timeout(0)(case))
    return marked


EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "120"))
TestSqlite = _machine("sqlite", EXAMPLES)
TestPostgres15 = _machine("postgres-15", EXAMPLES // 3)
TestPostgres16 = _machine("postgres-16", EXAMPLES // 5)
TestPostgres18 = _machine("postgres-18", EXAMPLES // 5)
