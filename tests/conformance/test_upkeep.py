"""Are records kept as long as promised, keys freed with them, and settings remembered?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.scene import (
    DEAD,
    DONE,
    OUTCOMES,
    a_job,
    a_payload,
    a_seasoned_lease,
    ids,
    in_every_state,
    in_state,
    look_up,
    put,
    put_one,
    settle,
    take,
    take_new,
)
from windlass.clock import ManualClock
from windlass.job import JobState
from windlass.store.jobs import Filter
from windlass.store.store import Store
from windlass.store.upkeep import Retention

WEEK, MONTH = timedelta(days=7), timedelta(days=30)
MOMENT = timedelta(seconds=1)


def prune_all(store: Store, keep: Retention | None = None) -> int:
    total = 0
    while pruned := store.prune(keep or Retention()):
        total += pruned
    return total


# --- retention ----------------------------------------------------------------------------------


def test_there_is_nothing_to_prune_in_an_empty_store(store: Store) -> None:
    assert store.prune(Retention()) == 0


ENDED = [JobState.COMPLETED, JobState.CANCELLED, JobState.DISCARDED]


@pytest.mark.parametrize(("state", "kept"), [*((state, WEEK) for state in ENDED), (JobState.DEAD, MONTH)])
def test_a_record_is_kept_for_its_time_and_no_longer(
    store: Store, clock: ManualClock, state: JobState, kept: timedelta
) -> None:
    job = in_state(store, state)
    clock.advance(kept - MOMENT)
    assert store.prune(Retention()) == 0
    assert look_up(store, job.id) == job
    clock.advance(2 * MOMENT)
    assert store.prune(Retention()) == 1
    assert store.get(job.id) is None
    assert store.prune(Retention()) == 0


@pytest.mark.parametrize(("name", "kept"), [("done", WEEK), ("cancelled", WEEK), ("dead", MONTH)])
def test_retention_counts_from_the_end_and_not_from_any_other_time(
    store: Store, clock: ManualClock, name: str, kept: timedelta
) -> None:
    lease = a_seasoned_lease(store, clock)
    clock.advance(timedelta(days=90))
    assert settle(store, lease, OUTCOMES[name])
    clock.advance(kept - MOMENT)
    assert prune_all(store) == 0
    clock.advance(2 * MOMENT)
    assert prune_all(store) == 1


def test_discarding_starts_the_time_anew(store: Store, clock: ManualClock) -> None:
    job = in_state(store, JobState.DEAD)
    clock.advance(MONTH - MOMENT)
    store.discard(job.id)
    clock.advance(WEEK - MOMENT)
    assert prune_all(store) == 0
    clock.advance(2 * MOMENT)
    assert prune_all(store) == 1


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.PROCESSING])
def test_what_has_not_ended_is_never_pruned(store: Store, clock: ManualClock, state: JobState) -> None:
    job = in_state(store, state)
    clock.advance(timedelta(days=4000))
    assert prune_all(store, Retention(ended=timedelta(0), dead=timedelta(0))) == 0
    assert look_up(store, job.id) == job


def test_scheduled_and_retried_jobs_are_never_pruned(store: Store, clock: ManualClock) -> None:
    put_one(store, delay=timedelta(days=60))
    lease = take_new(store)
    assert settle(store, lease, OUTCOMES["later"])
    clock.advance(timedelta(days=50))
    assert prune_all(store) == 0


def test_a_replayed_job_is_no_longer_one_that_ended(store: Store, clock: ManualClock) -> None:
    job = in_state(store, JobState.DEAD)
    clock.advance(MONTH - MOMENT)
    store.replay(job.id)
    clock.advance(MONTH)
    assert prune_all(store) == 0


def test_retention_can_be_chosen(store: Store, clock: ManualClock) -> None:
    completed, dead = in_state(store, JobState.COMPLETED), in_state(store, JobState.DEAD)
    clock.advance(timedelta(days=3, seconds=1))
    assert prune_all(store, Retention(ended=timedelta(days=3))) == 1
    assert store.get(completed.id) is None
    assert look_up(store, dead.id).state is JobState.DEAD
    assert prune_all(store, Retention(dead=timedelta(days=2))) == 1


def test_pruning_goes_in_bounded_batches_over_live_and_archive(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(25)))
    for number, lease in enumerate(take(store, limit=25)):
        assert settle(store, lease, DEAD if number % 5 == 0 else DONE)
    keeper = put_one(store)
    clock.advance(timedelta(days=31))
    batches = []
    while pruned := store.prune(Retention(), limit=10):
        batches.append(pruned)
    assert sum(batches) == 25
    assert max(batches) <= 10
    assert ids(store.find(Filter()).jobs) == [keeper.id]


@pytest.mark.parametrize("state", [*ENDED, JobState.DEAD])
def test_a_key_is_free_when_its_record_is_gone(store: Store, clock: ManualClock, state: JobState) -> None:
    old = in_state(store, state, key="k", payload=a_payload(to="a"))
    clock.advance(timedelta(days=31))
    assert prune_all(store) == 1
    assert store.get("k") is None
    assert store.check() == [], "a key was left behind"
    new = put_one(store, key="k", payload=a_payload(to="b"))
    assert new.id != old.id
    assert look_up(store, "k").id == new.id


def test_pruning_frees_only_the_keys_of_what_is_pruned(store: Store, clock: ManualClock) -> None:
    in_state(store, JobState.COMPLETED, key="k", caller="a")
    keeper = put_one(store, key="k", caller="b")
    clock.advance(timedelta(days=8))
    assert prune_all(store) == 1
    kept = store.get("k", caller="b")
    assert kept is not None
    assert kept.id == keeper.id
    assert store.get("k", caller="a") is None


def test_an_id_is_free_when_its_record_is_gone(store: Store, clock: ManualClock) -> None:
    job = in_state(store, JobState.COMPLETED, own_id=True)
    clock.advance(timedelta(days=8))
    assert prune_all(store) == 1
    [answer] = store.enqueue([a_job(id=job.id, own_id=True)])
    assert answer.created
    assert look_up(store, answer.id).seq > job.seq


def test_each_dead_letter_that_is_pruned_is_audited_and_no_other_record(
    store: Store, clock: ManualClock
) -> None:
    in_state(store, JobState.COMPLETED)
    gone = [in_state(store, JobState.DEAD) for _ in range(3)]
    clock.advance(timedelta(days=31))
    while store.prune(Retention(), limit=2, by="ann"):
        pass
    lines = store.audit(verb="prune").entries
    assert sorted(line.target for line in lines) == sorted(job.id for job in gone)
    assert {(line.who, line.kind) for line in lines} == {("ann", "job")}
    assert [line.before for line in lines] == [{"type": gone[0].type, "state": "dead"}] * 3


def test_what_was_done_outside_of_the_store_can_be_audited(store: Store) -> None:
    store.note_action("stop", "worker", "w1", by="ann", why="maintenance", after={"left": 0})
    [line] = store.audit(target="w1").entries
    assert (line.who, line.verb, line.why, line.after) == ("ann", "stop", "maintenance", {"left": 0})


# --- the clock ----------------------------------------------------------------------------------


def test_a_clock_is_steady_since_it_was_first_seen(store: Store, other: Store, clock: ManualClock) -> None:
    assert store.watch_clock("boot", 5.0).steady_for == timedelta(0)
    clock.advance(timedelta(days=9))
    watch = other.watch_clock("boot", 5.0 + 9 * 86_400)
    assert (watch.steady_for, watch.jump) == (timedelta(days=9), None)


def test_a_jump_is_seen_by_another_process_of_the_same_machine(store: Store, clock: ManualClock) -> None:
    store.watch_clock("boot", 5.0)
    clock.advance(timedelta(days=400))
    watch = store.watch_clock("boot", 65.0)
    assert (watch.steady_for, watch.jump) == (timedelta(0), timedelta(days=400, seconds=-60))


@pytest.mark.parametrize(
    ("gap", "steady"), [(timedelta(hours=25), True), (timedelta(days=2), False), (-timedelta(hours=2), False)]
)
def test_from_another_machine_a_gap_of_more_than_a_day_may_be_a_jump(
    store: Store, clock: ManualClock, gap: timedelta, *, steady: bool
) -> None:
    clock.advance(timedelta(hours=3))
    store.watch_clock("one", 5.0)
    clock.advance(gap)
    assert (store.watch_clock("two", 900.0).jump is None) is steady


# --- settings -----------------------------------------------------------------------------------


def test_settings_are_remembered_until_they_are_reset(store: Store, other: Store) -> None:
    assert store.settings() == {}
    store.set_setting("retention.ended", "3d")
    store.set_setting("mail.send.paused", "")
    store.set_setting("retention.ended", "4d")
    assert other.settings() == {"mail.send.paused": "", "retention.ended": "4d"}
    other.set_setting("retention.ended", None)
    other.set_setting("never.set", None)
    assert store.settings() == {"mail.send.paused": ""}


# --- health -------------------------------------------------------------------------------------


def test_the_status_tells_sizes_and_versions(store: Store) -> None:
    in_state(store, JobState.COMPLETED)
    in_state(store, JobState.DEAD)
    put_one(store)
    status = store.status()
    assert (status.live, status.archived) == (2, 1)
    assert status.schema == status.newest_schema >= 1
    assert status.size_bytes > 0
    assert status.version


def test_a_healthy_store_has_nothing_to_complain_of(store: Store) -> None:
    in_every_state(store, keyed=True)
    assert store.check() == []


def test_the_stores_time_is_the_given_clocks(store: Store, clock: ManualClock) -> None:
    before = store.now()
    clock.advance(5)
    assert store.now() - before == timedelta(seconds=5)
