"""Jobs that wait for others, and batches that are complete when their last job has ended."""

from __future__ import annotations

import sys
import threading
from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest

from tests.conformance.conftest import Place
from tests.conformance.contenders import at_once, won
from tests.conformance.scene import (
    AGAIN,
    CANCELLED,
    DEAD,
    DONE,
    MAIL,
    REAPED,
    a_job,
    in_state,
    look_up,
    put,
    put_one,
    settle,
    state_of,
    take,
    take_new,
    take_one,
)
from tests.waiting import PATIENCE
from windlass import connect
from windlass.clock import ManualClock, uuid7
from windlass.errors import JobNotFound
from windlass.job import Job, JobState, Lease, View
from windlass.outcome import Outcome
from windlass.store.chains import NewBatch
from windlass.store.engine import Settlement
from windlass.store.jobs import Edit, Filter
from windlass.store.store import Store
from windlass.store.upkeep import Retention

NEVER = Retention(ended=timedelta(days=9999), dead=timedelta(days=9999))


def child_of(store: Store, *parents: Job | Lease, **changes: object) -> Job:
    return put_one(store, depends_on=tuple(parent.id for parent in parents), **changes)


def view_of(store: Store, job: Job) -> View | None:
    return look_up(store, job.id).view(store.now())


# --- waiting --------------------------------------------------------------------------------------


def test_a_job_runs_after_all_that_it_depends_on_have_completed(store: Store) -> None:
    first, second = take_new(store), take_new(store)
    child = child_of(store, first, second)
    assert view_of(store, child) is View.WAITING
    assert store.waits_for(child.id) == sorted([first.id, second.id])
    assert settle(store, first, DONE)
    assert take(store) == []
    assert settle(store, second, AGAIN)
    [again] = take(store)
    assert again.id == second.id
    assert settle(store, again, DONE)
    assert (view_of(store, child), store.waits_for(child.id)) == (View.DUE, [])
    assert take_one(store).id == child.id


def test_whoever_waits_is_seen_as_waiting(store: Store) -> None:
    child = child_of(store, take_new(store))
    found = store.find(Filter(view="waiting")).jobs
    assert [job.id for job in found] == [child.id]
    assert store.count(Filter(view="scheduled"), limit=9) == 0
    assert [each.count for each in store.counts().counts if each.view == View.WAITING] == [1]


def test_a_key_names_a_parent_as_well(store: Store) -> None:
    parent = take_new(store, key="first")
    child = put_one(store, depends_on=("first",))
    assert store.waits_for(child.id) == [parent.id]


def test_a_parent_that_has_completed_is_not_waited_for(store: Store) -> None:
    done = in_state(store, JobState.COMPLETED)
    child = child_of(store, done)
    assert take_one(store).id == child.id


def test_a_parent_that_nobody_knows_is_refused_and_nothing_is_stored(store: Store) -> None:
    with pytest.raises(JobNotFound):
        put_one(store, depends_on=(uuid7(),))
    assert store.count(Filter(), limit=9) == 0


def test_its_own_time_still_counts(store: Store, clock: ManualClock) -> None:
    parent = take_new(store)
    child = child_of(store, parent, delay=timedelta(seconds=60))
    clock.advance(10)
    assert settle(store, parent, DONE)
    assert view_of(store, child) is View.SCHEDULED
    assert take(store) == []
    clock.advance(51)
    assert take_one(store).id == child.id


def test_time_alone_lets_nobody_run(store: Store, clock: ManualClock) -> None:
    child_of(store, take_new(store))
    clock.advance(timedelta(days=365).total_seconds())
    store.promote()
    assert take(store) == []


# --- when a parent never completes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "outcome", "expected"),
    [
        ("wait", DEAD, View.WAITING),
        ("cancel", DEAD, JobState.CANCELLED),
        ("run", DEAD, View.DUE),
        ("wait", CANCELLED, JobState.CANCELLED),
        ("cancel", CANCELLED, JobState.CANCELLED),
        ("run", CANCELLED, View.DUE),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_the_policy_says_what_becomes_of_a_child(
    store: Store, policy: str, outcome: Outcome, expected: str, *, late: bool
) -> None:
    parent = take_new(store)
    if late:
        assert settle(store, parent, outcome)
        child = child_of(store, parent, on_dead=policy)
    else:
        child = child_of(store, parent, on_dead=policy)
        assert settle(store, parent, outcome)
    job = look_up(store, child.id)
    assert (job.view(store.now()) or job.state) == expected
    if expected is JobState.CANCELLED:
        [change] = job.changes
        assert parent.id in change.why


def test_a_person_who_ends_a_parent_ends_the_wait(store: Store) -> None:
    parents = [put_one(store) for _ in range(3)]
    children = [child_of(store, parent, on_dead="run") for parent in parents]
    store.cancel(parents[0].id)
    store.bury(parents[1].id)
    store.bury(parents[2].id)
    store.discard(parents[2].id)
    assert [view_of(store, child) for child in children] == [View.DUE] * 3


def test_cancellation_goes_down_the_line(store: Store) -> None:
    parent = take_new(store)
    child = child_of(store, parent, on_dead="cancel")
    grandchild = child_of(store, child)
    brave = child_of(store, child, on_dead="run")
    assert settle(store, parent, DEAD)
    assert [state_of(store, job.id) for job in (child, grandchild)] == [JobState.CANCELLED] * 2
    assert view_of(store, brave) is View.DUE


def test_a_line_of_dependents_may_be_longer_than_python_can_call_deep(store: Store) -> None:
    ids = [uuid7() for _ in range(sys.getrecursionlimit() // 3 + 20)]
    parents = [(), *((each,) for each in ids)]
    store.enqueue([a_job(id=each, depends_on=before) for each, before in zip(ids, parents, strict=False)])
    store.cancel(ids[0])
    assert store.count(Filter(states=(JobState.CANCELLED,)), limit=len(ids) + 1) == len(ids)


def test_a_replayed_parent_releases_those_that_waited(store: Store) -> None:
    parent = take_new(store)
    child = child_of(store, parent)
    assert settle(store, parent, DEAD)
    store.replay(parent.id)
    assert settle(store, take_one(store), DONE)
    assert take_one(store).id == child.id


def test_a_person_may_send_a_waiting_job_on_its_way(store: Store) -> None:
    parent = take_new(store)
    child = child_of(store, parent)
    store.edit(child.id, Edit(run_at=store.now()))
    lease = take_one(store)
    assert lease.id == child.id
    assert store.waits_for(child.id) == []
    assert settle(store, parent, DONE)
    assert settle(store, lease, DONE)
    other = child_of(store, put_one(store, priority=0))
    store.edit(other.id, Edit(run_at=store.now()))
    assert take_one(store).id == other.id


def test_a_cancelled_child_is_left_alone(store: Store) -> None:
    parent = take_new(store)
    child = child_of(store, parent)
    store.cancel(child.id)
    assert settle(store, parent, DONE)
    assert state_of(store, child.id) is JobState.CANCELLED


def test_whoever_lost_the_lease_releases_nobody(store: Store) -> None:
    parent = take_new(store)
    child = child_of(store, parent)
    assert settle(store, parent, REAPED)
    assert not settle(store, parent, DONE)
    assert view_of(store, child) is View.WAITING


def test_enqueue_and_settle_at_once_never_leave_a_child_behind(store: Store, other: Store) -> None:
    for _ in range(40):
        parent = take_new(store)
        new = a_job(depends_on=(parent.id,))
        won(at_once(partial(settle, store, parent, DONE), partial(other.enqueue, [new])))
        [lease] = take(store)
        assert lease.id == new.id
        assert settle(store, lease, DONE)


def test_two_parents_that_end_at_once_release_their_child_once(store: Store, other: Store) -> None:
    for _ in range(40):
        put(store, a_job(), a_job())
        one, two = take(store, 2)
        child = child_of(store, one, two)
        assert (
            won(at_once(partial(settle, store, one, DONE), partial(settle, other, two, DONE))) == [True] * 2
        )
        [lease] = take(store, 5)
        assert lease.id == child.id
        assert settle(store, lease, DONE)


# --- batches --------------------------------------------------------------------------------------


def a_batch(store: Store, size: int, **changes: object) -> tuple[NewBatch, list[Job]]:
    then = a_job(type="report.build") if changes.pop("then", False) else None
    batch = NewBatch(id=uuid7(), name="import", then=then)
    done = store.enqueue_batch(batch, [a_job(**changes) for _ in range(size)])
    return batch, [look_up(store, each.id) for each in done]


def counts_of(store: Store, batch: NewBatch) -> dict[str, int]:
    found = store.batch(batch.id)
    assert found is not None
    return {state.value: count for state, count in found.counts.items()}


def test_a_batch_says_how_far_it_is(store: Store) -> None:
    batch, jobs = a_batch(store, 4)
    leases = take(store, 3)
    assert settle(store, leases[0], DONE)
    assert settle(store, leases[1], DEAD)
    assert counts_of(store, batch) == {"pending": 1, "processing": 1, "completed": 1, "dead": 1}
    found = store.batch(batch.id)
    assert found is not None
    assert (found.total, found.ended, found.finished_at) == (4, 2, None)
    assert store.batch_of(jobs[0].id) == batch.id
    assert store.batch_of(leases[0].id) == batch.id
    assert store.batch("nonsense") is None


def test_when_all_have_ended_the_last_job_follows_once(store: Store) -> None:
    batch, _ = a_batch(store, 3, then=True)
    assert batch.then is not None
    one, two = take(store, 2)
    assert settle(store, one, DONE)
    assert settle(store, two, DEAD)
    assert store.get(batch.then.id) is None
    [three] = store.find(Filter(types=(MAIL,), states=(JobState.PENDING,))).jobs
    store.cancel(three.id)
    assert look_up(store, batch.then.id).state is JobState.PENDING
    found = store.batch(batch.id)
    assert found is not None
    assert found.finished_at is not None
    # A second end, after a replay, makes no second job.
    store.replay(two.id)
    assert settle(store, take_one(store), DONE)
    assert store.count(Filter(types=("report.build",)), limit=9) == 1
    assert counts_of(store, batch) == {"completed": 2, "cancelled": 1}


def test_an_empty_batch_is_complete_at_once(store: Store) -> None:
    known = put_one(store, key="k", payload=b"{}")
    batch = NewBatch(id=uuid7(), then=a_job())
    [answer] = store.enqueue_batch(batch, [a_job(key="k", payload=b"{}")])
    assert (answer.created, answer.id) == (False, known.id)
    assert counts_of(store, batch) == {}
    assert batch.then is not None
    assert store.get(batch.then.id) is not None


def test_the_last_two_of_a_batch_at_once_close_it_once(store: Store, other: Store) -> None:
    for _ in range(40):
        batch, _ = a_batch(store, 2, then=True)
        one, two = take(store, 2)
        won(at_once(partial(settle, store, one, DONE), partial(settle, other, two, DEAD)))
        found = store.batch(batch.id)
        assert found is not None
        assert found.finished_at is not None
        assert settle(store, take_one(store), DONE)


def test_marked_and_plain_jobs_settle_in_one_call(store: Store) -> None:
    batch, _ = a_batch(store, 5, then=True)
    put(store, *(a_job() for _ in range(5)))
    leases = take(store, 10)
    child = child_of(store, leases[0], leases[9])
    assert store.settle([Settlement(lease, DONE, timedelta(0)) for lease in leases]) == []
    assert store.settle([Settlement(lease, DONE, timedelta(0)) for lease in leases]) == []
    assert counts_of(store, batch) == {"completed": 5}
    assert view_of(store, child) is View.DUE
    assert len(take(store, 10)) == 2


def test_many_members_of_two_batches_end_at_once(store: Store, other: Store) -> None:
    for _ in range(10):
        batches = [a_batch(store, 10, then=True)[0] for _ in range(2)]
        leases = take(store, 20)
        child = child_of(store, *leases[::5])
        ends = [Settlement(lease, DEAD if lease is leases[7] else DONE, timedelta(0)) for lease in leases]
        assert won(at_once(partial(store.settle, ends[::2]), partial(other.settle, ends[1::2]))) == [[], []]
        assert view_of(store, child) is View.DUE
        assert sorted(sum(counts_of(store, batch).values()) for batch in batches) == [10, 10]
        followers = take(store, 9)
        assert len(followers) == 3
        assert store.settle([Settlement(lease, DONE, timedelta(0)) for lease in followers]) == []


# --- the sweep ------------------------------------------------------------------------------------


def test_the_sweep_finds_nothing_to_mend(store: Store) -> None:
    batch, _ = a_batch(store, 2, then=True)
    child = child_of(store, take_one(store))
    store.prune(NEVER)
    assert view_of(store, child) is View.WAITING
    found = store.batch(batch.id)
    assert found is not None
    assert found.finished_at is None


def test_when_a_dead_parents_record_goes_its_children_are_cancelled(store: Store, clock: ManualClock) -> None:
    parent = take_new(store)
    child = child_of(store, parent)
    assert settle(store, parent, DEAD)
    clock.advance(10)
    store.prune(Retention(ended=timedelta(days=9), dead=timedelta(seconds=1)))
    store.prune(NEVER)
    assert state_of(store, child.id) is JobState.CANCELLED


# --- wake-ups -------------------------------------------------------------------------------------


@pytest.mark.parametrize("follower", ["child", "then"])
def test_other_processes_are_told_of_jobs_that_an_end_has_released(
    place: Place, clock: ManualClock, follower: str
) -> None:
    with (
        closing(connect.open(place.url, clock=clock)) as here,
        closing(connect.open(place.url, clock=clock)) as there,
    ):
        then = a_job() if follower == "then" else None
        here.store.enqueue_batch(NewBatch(id=uuid7(), then=then), [a_job()])
        parent = take_one(here.store)
        if follower == "child":
            child_of(here.store, parent)
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        while not told.wait(0.05):
            # Once it listens, it hears of a commit to a file; by a server only of what it is told.
            put_one(here.store)
        told.clear()
        assert settle(here.store, parent, DONE)
        assert told.wait(PATIENCE)
