"""What becomes of a job that a worker cannot read, because another release of the application made it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.conformance.scene import (
    GIVEN_BACK,
    LATER,
    LEASE,
    MAIL,
    REAPED,
    TYPES,
    look_up,
    put_one,
    settle,
    state_of,
    take,
    take_one,
)
from windlass.clock import ManualClock
from windlass.job import JobState, Lease, View
from windlass.outcome import Left
from windlass.store.engine import Want
from windlass.store.jobs import Edit, Filter
from windlass.store.store import Store


def left(reader: str, ends_in: timedelta | None = None) -> Left:
    return Left(ends_in, reader=reader, field="payload.copy", problem="payload.copy is unknown")


def take_as(store: Store, reader: str, *, limit: int = 10) -> list[Lease]:
    """What a worker claims that was told of jobs it has not tried."""
    return store.claim(Want(worker=reader, types=TYPES, limit=limit, lease=LEASE, reader=reader)).leases


def is_for(store: Store, reader: str) -> bool:
    return store.look("worker-1", TYPES, reader).unread


def test_a_job_that_is_left_keeps_its_attempts_and_waits(store: Store) -> None:
    job = put_one(store)
    assert settle(store, take_one(store), left("old"))
    found = look_up(store, job.id)
    assert (found.state, found.attempts, found.history, found.error) == (JobState.PENDING, 0, (), None)
    assert found.view(store.now()) is View.UNREADABLE


def test_nobody_is_offered_it_but_another_release(store: Store, other: Store, clock: ManualClock) -> None:
    job = put_one(store)
    settle(store, take_one(store), left("old"))
    clock.advance(timedelta(days=30).total_seconds())
    assert take(store) == take_as(store, "old") == []
    assert (is_for(store, "old"), is_for(other, "new")) == (False, True)
    [lease] = take_as(other, "new")
    assert (lease.id, lease.job.attempts) == (job.id, 1)
    assert not is_for(store, "new")


def test_jobs_behind_it_are_claimed(store: Store) -> None:
    put_one(store)
    settle(store, take_one(store), left("old"))
    behind = put_one(store)
    assert take_one(store).id == behind.id


def test_each_release_tries_once(store: Store) -> None:
    put_one(store)
    settle(store, take_one(store), left("old"))
    for reader in ("second", "third"):
        [lease] = take_as(store, reader)
        assert settle(store, lease, left(reader))
    assert [is_for(store, reader) for reader in ("old", "second", "third", "fourth")] == [
        *(False, False, False),
        True,
    ]
    assert [take_as(store, reader) for reader in ("old", "second", "third")] == [[], [], []]


def test_what_was_offered_and_given_back_is_due_for_everybody(store: Store) -> None:
    job = put_one(store)
    settle(store, take_one(store), left("old"))
    [lease] = take_as(store, "new")
    settle(store, lease, GIVEN_BACK)
    assert take_one(store).id == job.id


def test_a_lost_lease_leaves_nothing(store: Store) -> None:
    put_one(store)
    lease = take_one(store)
    settle(store, lease, REAPED)
    again = take_one(store)
    assert not settle(store, lease, left("old"))
    assert not is_for(store, "new")
    assert state_of(store, again.id) is JobState.PROCESSING


def test_leaving_twice_counts_once(store: Store) -> None:
    put_one(store)
    lease = take_one(store)
    assert settle(store, lease, left("old"))
    assert settle(store, lease, left("old"))
    assert look_up(store, lease.id).attempts == 0


def test_a_request_to_stop_is_carried_out(store: Store) -> None:
    put_one(store)
    lease = take_one(store)
    store.cancel(lease.id)
    assert settle(store, lease, left("old"))
    assert state_of(store, lease.id) is JobState.CANCELLED
    assert not is_for(store, "new")


def test_its_age_ends_it(store: Store, clock: ManualClock) -> None:
    job = put_one(store)
    settle(store, take_one(store), left("old", timedelta(minutes=5)))
    clock.advance(299)
    assert take(store) == []
    clock.advance(2)
    assert take_one(store).id == job.id


def test_another_payload_can_be_read_by_everybody(store: Store) -> None:
    job = put_one(store)
    settle(store, take_one(store), left("old"))
    store.edit(job.id, Edit(payload=b'{"to":"ann"}'))
    assert not is_for(store, "new")
    assert take_one(store).id == job.id


def test_what_is_left_is_counted_by_type_and_field(store: Store) -> None:
    for _ in range(3):
        put_one(store)
    for lease in take(store, 3):
        settle(store, lease, left("old"))
    [found] = store.sight(timedelta(minutes=1)).unread
    assert (found.type, found.field, found.count, found.readers) == (
        MAIL,
        "payload.copy",
        3,
        frozenset({"old"}),
    )
    [one] = take_as(store, "new", limit=1)
    settle(store, one, left("new"))
    counts = {tuple(sorted(each.readers)): each.count for each in store.sight(timedelta(minutes=1)).unread}
    assert counts == {("old",): 2, ("new", "old"): 1}


def test_what_was_buried_or_cancelled_is_not_counted(store: Store) -> None:
    for verb in (store.cancel, store.bury):
        put_one(store)
        lease = take_one(store)
        settle(store, lease, left("old"))
        verb(lease.id)
    assert store.sight(timedelta(minutes=1)).unread == ()
    assert take_as(store, "new") == []


# --- how it is shown ---


def views(store: Store) -> dict[str, tuple[list[str], int, int]]:
    """By view: the jobs that the filter finds, how many it counts, and how many all counts together say."""
    counts = store.counts().counts
    return {
        view: (
            sorted(job.id for job in store.find(Filter(view=view)).jobs),
            store.count(Filter(view=view), limit=100),
            sum(each.count for each in counts if each.view == view),
        )
        for view in View
    }


def test_every_view_finds_and_counts_the_jobs_that_show_it(store: Store, clock: ManualClock) -> None:
    parent = put_one(store, delay=timedelta(hours=1))
    for ends_in in (None, timedelta(minutes=5), timedelta(seconds=5)):
        put_one(store)
        settle(store, take_one(store), left("old", ends_in))
    put_one(store)
    settle(store, take_one(store), LATER)
    put_one(store, depends_on=(parent.id,))
    put_one(store)
    # The third one's age has ended by then.
    clock.advance(10)
    shown: dict[str, list[str]] = {view: [] for view in View}
    for job in store.find(Filter()).jobs:
        assert job == look_up(store, job.id)
        shown[job.view(store.now()) or ""].append(job.id)
    assert {view: len(found) for view, found in shown.items()} == {
        View.DUE: 2,
        View.SCHEDULED: 1,
        View.RETRYING: 1,
        View.STUCK: 0,
        View.WAITING: 1,
        View.UNREADABLE: 2,
    }
    assert views(store) == {view: (sorted(each), len(each), len(each)) for view, each in shown.items()}
    sampled = Counter({each.view: each.count for each in store.take_sample(timedelta(0)).standing})
    assert sampled == {view: len(found) for view, found in shown.items() if found}


ENDS: dict[str, Callable[[Store, str], object]] = {
    "offered": lambda store, _: take_as(store, "new"),
    "edited": lambda store, job: store.edit(job, Edit(payload=b"{}")),
    "rescheduled": lambda store, job: store.edit(job, Edit(run_at=store.now() + timedelta(hours=1))),
    "buried": lambda store, job: store.bury(job),
    "cancelled": lambda store, job: store.cancel(job),
}


@pytest.mark.parametrize("end", ENDS)
def test_it_is_unreadable_until_something_else_becomes_of_it(store: Store, end: str) -> None:
    job = put_one(store)
    settle(store, take_one(store), left("old"))
    assert look_up(store, job.id).unread
    ENDS[end](store, job.id)
    assert not look_up(store, job.id).unread
    assert store.find(Filter(view=View.UNREADABLE)).jobs == []
    assert [each for each in store.counts().counts if each.view == View.UNREADABLE] == []


def test_what_cannot_be_read_counts_against_the_depth(store: Store) -> None:
    put_one(store)
    settle(store, take_one(store), left("old"))
    store.take_sample(timedelta(0))
    assert store.depths().pending == {MAIL: 1}
