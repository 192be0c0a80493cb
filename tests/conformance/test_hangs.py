"""What becomes of a job that keeps its worker from answering, on every store?"""

from __future__ import annotations

from datetime import timedelta

from tests.conformance.scene import REAPED, a_worker, look_up, put_one, settle, take_new, take_one
from windlass.clock import ManualClock
from windlass.job import HUNG, SUSPECT_AFTER, JobState, Lease, Reason
from windlass.observe.ledger import Ledger
from windlass.outcome import Policy, hung
from windlass.store.flow import ISOLATED
from windlass.store.store import Store
from windlass.upkeep.membership import Watchman
from windlass.upkeep.reaper import Reaper
from windlass.wakeup import Wakeup

STACKS = 'Current thread 0x1 (most recent call first):\n  File "app.py", line 9 in parse'
HANG = hung(5.0, STACKS)


def note(store: Store, lease: Lease) -> None:
    store.note_hang(lease.job.seq, lease.token, HANG)


def reap(store: Store, worker: str, clock: ManualClock) -> None:
    watchman = Watchman(gone=lambda _: False)
    reaper = Reaper(store, Wakeup(), watchman, policy=lambda _: Policy(), clock=clock, ledger=Ledger(store))
    reaper.take_over([each for each in store.workers() if each.id == worker])


def test_whoever_reaps_it_records_the_stacks_and_it_is_suspect_at_once(
    store: Store, other: Store, clock: ManualClock
) -> None:
    store.join(a_worker("worker-1"))
    lease = take_new(store, worker="worker-1")
    note(store, lease)
    reap(other, "worker-1", clock)
    job = look_up(store, lease.id)
    assert (job.state, job.losses) == (JobState.PENDING, SUSPECT_AFTER)
    assert job.history[-1].error == HANG
    assert job.error is not None
    assert (job.error.reason, job.error.kind, job.error.traceback) == (Reason.WORKER_LOST, HUNG, None)


def test_the_other_jobs_of_its_worker_are_plain_losses(store: Store, clock: ManualClock) -> None:
    store.join(a_worker("worker-1"))
    lease, neighbour = take_new(store, worker="worker-1"), take_new(store, worker="worker-1")
    note(store, lease)
    reap(store, "worker-1", clock)
    job = look_up(store, neighbour.id)
    assert job.losses == 1
    assert job.error is not None
    assert (job.error.reason, job.error.kind) == (Reason.WORKER_LOST, None)


def test_the_token_is_the_fence(store: Store) -> None:
    before = take_new(store)
    assert settle(store, before, REAPED)
    lease = take_one(store)
    note(store, before)
    job = look_up(store, lease.id)
    assert job.hang is None
    assert job.error is not None
    assert job.error.kind is None


def test_a_worker_that_answers_again_leaves_its_job_as_it_was(store: Store) -> None:
    first = take_new(store)
    assert settle(store, first, REAPED)
    lease = take_one(store)
    before = look_up(store, lease.id)
    note(store, lease)
    assert look_up(store, lease.id).hang == HANG
    store.note_hang(lease.job.seq, lease.token, None)
    assert look_up(store, lease.id) == before


def test_a_later_loss_is_not_taken_for_the_hang_of_an_earlier_attempt(
    store: Store, clock: ManualClock
) -> None:
    for name in ("worker-1", "worker-2"):
        store.join(a_worker(name))
    lease = take_new(store, worker="worker-1")
    note(store, lease)
    reap(store, "worker-1", clock)
    clock.advance(timedelta(seconds=1))
    assert look_up(store, take_one(store, worker="worker-2").id).hang is None
    reap(store, "worker-2", clock)
    job = look_up(store, lease.id)
    assert job.losses == SUSPECT_AFTER + 1
    assert [each.error and each.error.kind for each in job.history] == [HUNG, None]


def test_a_job_that_has_ended_is_left_alone(store: Store) -> None:
    put_one(store)
    lease = take_one(store)
    assert settle(store, lease, REAPED)
    before = look_up(store, lease.id)
    store.note_hang(lease.job.seq, lease.token, None)
    note(store, lease)
    assert look_up(store, lease.id) == before


def test_for_a_while_other_jobs_of_its_type_run_in_children(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    before = store.look("worker-1", {}).revision
    note(store, lease)
    assert store.switches().hanging == {lease.job.type}
    assert store.switches().failing == frozenset()
    assert store.look("worker-1", {}).revision > before
    clock.advance(ISOLATED.total_seconds())
    assert store.switches().hanging == frozenset()


def test_a_worker_that_answers_again_takes_that_back(store: Store) -> None:
    lease = take_new(store)
    note(store, lease)
    store.note_hang(lease.job.seq, lease.token, None)
    assert store.switches().hanging == frozenset()
