"""Does exactly one win when several want the same thing at the same instant?"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from tests.conformance.conftest import Place
from tests.conformance.contenders import (
    at_once,
    enqueue_one_key,
    in_processes,
    open_again_and_again,
    open_and_enqueue,
    prune_everything,
    won,
    work_until_empty,
)
from tests.conformance.scene import (
    DONE,
    LEASE,
    MAIL,
    REAPED,
    REPORT,
    a_job,
    a_payload,
    a_worker,
    ids,
    in_state,
    look_up,
    put,
    put_one,
    settle,
    take,
    take_new,
    take_one,
)
from tests.waiting import PATIENCE
from windlass import connect
from windlass.clock import ManualClock
from windlass.errors import WrongState
from windlass.job import JobState
from windlass.policy import Limit
from windlass.store.engine import Acted, Want
from windlass.store.fleet import Vitals
from windlass.store.flow import Restriction
from windlass.store.jobs import Edit, Filter
from windlass.store.store import Store
from windlass.store.upkeep import Retention

ROUNDS = 60


# --- claims -------------------------------------------------------------------------------------


def test_two_claimers_get_different_jobs_and_together_all(store: Store, other: Store) -> None:
    for _ in range(20):
        made = put(store, *(a_job() for _ in range(20)))
        claimers = itertools.product((store, other), ("a", "b"))
        taken = won(at_once(*(partial(take, opening, 5, worker=worker) for opening, worker in claimers)))
        assert sorted(ids(itertools.chain(*taken))) == sorted(ids(made))
        assert all(settle(store, lease, DONE) for lease in itertools.chain(*taken))


def test_ten_claimers_want_one_job_and_one_gets_it(store: Store, other: Store) -> None:
    for _ in range(20):
        job = put_one(store)
        taken = won(at_once(*(partial(take, opening) for opening in (store, other) * 5)))
        [lease] = itertools.chain(*taken)
        assert lease.id == job.id
        assert look_up(store, job.id).claims == 1
        assert settle(store, lease, DONE)


def under_no_limit() -> dict[str, Restriction]:
    return {}


def under_a_limit() -> dict[str, Restriction]:
    return {MAIL: Restriction(limits={MAIL: Limit(concurrency=4)})}


@pytest.mark.parametrize("limits", [under_no_limit, under_a_limit])
def test_one_claim_that_comes_to_several_servers_at_one_instant_is_served_once(
    store: Store, other: Store, limits: Callable[[], dict[str, Restriction]]
) -> None:
    """The jobs of one type are limited, or not; those of the other are not."""
    for number in range(10):
        put(store, *(a_job(type=each) for each in (MAIL, REPORT) * 4))
        want = Want(
            worker="worker-1",
            types={MAIL: 1, REPORT: 1},
            limit=3,
            slots=3,
            lease=LEASE,
            restricted=limits(),
            mark=f"{number:016x}",
        )
        answers = won(at_once(*(partial(opening.claim, want) for opening in (store, other) * 2)))
        assert [each.repeated for each in answers].count(False) == 1
        [told] = {frozenset(lease.token for lease in each.leases) for each in answers}
        assert told == {lease.token for lease in store.held_by("worker-1")}
        assert len(told) == 3
        for lease in [*answers[0].leases, *take(store, 8, types={MAIL: 1, REPORT: 1})]:
            assert settle(store, lease, DONE)


# --- the same running job -----------------------------------------------------------------------


def test_complete_cancel_and_reap_of_one_job_at_one_instant(store: Store, other: Store, place: Place) -> None:
    third = place.open()
    seen: Counter[tuple[JobState, str]] = Counter()
    for number in range(200):
        lease = take_new(store)
        finished, cancelled, reaped = at_once(
            partial(settle, store, lease, DONE),
            partial(other.cancel, lease.id),
            partial(settle, third, lease, REAPED),
        )
        assert isinstance(finished, bool), finished
        assert isinstance(reaped, bool), reaped
        job = look_up(store, lease.id)
        [entry] = job.history
        seen[job.state, _told(cancelled)] += 1
        if job.state is JobState.COMPLETED:
            assert finished, "the worker was told that it lost, yet its result stands"
            assert entry.error is None
        else:
            assert job.state is JobState.CANCELLED, f"round {number}: a cancelled job is {job.state}"
            assert not finished, "the worker was told that it won, yet the job was reaped"
            assert entry.error == REAPED.error
        if isinstance(cancelled, Acted):
            assert not cancelled.done or job.state is JobState.CANCELLED
        else:
            assert isinstance(cancelled, WrongState), cancelled
            assert job.state is JobState.COMPLETED
        assert take(store) == []
    assert sum(seen.values()) == 200


def _told(cancelled: object) -> str:
    if isinstance(cancelled, Acted):
        return "done" if cancelled.done else "asked"
    return type(cancelled).__name__


def test_two_settles_of_one_lease_are_written_once(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        lease = take_new(store)
        assert at_once(*(partial(settle, opening, lease, DONE) for opening in (store, other))) == [True, True]
        assert len(look_up(store, lease.id).history) == 1


def test_an_extension_and_a_reap_agree_on_who_was_first(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        lease = take_new(store)
        extended, reaped = at_once(
            partial(store.extend, [lease], timedelta(seconds=90)), partial(settle, other, lease, REAPED)
        )
        assert reaped is True
        assert isinstance(extended, tuple)
        assert look_up(store, lease.id).state is JobState.PENDING
        assert store.extend([lease], timedelta(seconds=90)) == ([], [lease])
        assert settle(store, take_one(store), DONE)


def test_a_beat_and_a_death_sentence_agree(store: Store, other: Store) -> None:
    for number in range(ROUNDS):
        name = f"worker-{number}"
        store.join(a_worker(name))
        beaten, dead = at_once(partial(store.beat, name, Vitals()), partial(other.declare_dead, name, 0))
        assert {beaten, dead} == {True, False}


# --- the same pending or dead job ---------------------------------------------------------------


def test_a_claim_and_a_cancel_of_one_job(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        job = put_one(store)
        taken, cancelled = at_once(partial(take, store), partial(other.cancel, job.id))
        assert isinstance(taken, list)
        assert isinstance(cancelled, Acted)
        assert cancelled.done == (taken == [])
        for lease in taken:
            assert settle(store, lease, REAPED)
        assert look_up(store, job.id).state is JobState.CANCELLED


def test_a_replay_and_a_discard_of_one_dead_job(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        job = in_state(store, JobState.DEAD)
        answers = at_once(partial(store.replay, job.id), partial(other.discard, job.id))
        [acted] = [answer for answer in answers if isinstance(answer, Acted)]
        assert len([answer for answer in answers if isinstance(answer, WrongState)]) == 1
        after = look_up(store, job.id)
        assert after.state is acted.state
        if after.state is JobState.PENDING:
            store.cancel(job.id)


def test_two_replays_of_one_dead_job_replay_it_once(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        job = in_state(store, JobState.DEAD)
        answers = at_once(*(partial(opening.replay, job.id) for opening in (store, other)))
        assert sorted(type(each).__name__ for each in answers) == ["Acted", "WrongState"]
        after = look_up(store, job.id)
        assert (after.state, after.replay_count) == (JobState.PENDING, 1)
        store.cancel(job.id)


def test_edits_at_one_instant_lose_none_of_their_records(store: Store, other: Store) -> None:
    job = put_one(store)
    won(at_once(*(partial(opening.edit, job.id, Edit(priority=7)) for opening in (store, other) * 5)))
    assert [change.verb for change in look_up(store, job.id).changes] == ["edit"] * 10


# --- keys and ids -------------------------------------------------------------------------------


def test_fifty_threads_with_one_key_make_one_job(store: Store, other: Store) -> None:
    jobs = [a_job(key="k", payload=a_payload(to="a")) for _ in range(50)]
    openings = itertools.cycle((store, other))
    answers = won(at_once(*(partial(next(openings).enqueue, [job]) for job in jobs)))
    enqueued = list(itertools.chain(*answers))
    assert [answer.created for answer in enqueued].count(True) == 1
    assert len({answer.id for answer in enqueued}) == 1
    assert store.count(Filter(), limit=10) == 1


def test_threads_with_one_id_make_one_job(store: Store, other: Store) -> None:
    job = a_job(own_id=True)
    answers = won(at_once(*(partial(opening.enqueue, [job]) for opening in (store, other) * 10)))
    assert [answer.created for answer in itertools.chain(*answers)].count(True) == 1
    assert store.count(Filter(), limit=10) == 1


def test_batches_with_crossed_keys_neither_block_nor_mix(store: Store, other: Store) -> None:
    for number in range(20):
        one, two = (a_payload(to=name, number=number) for name in "ab")
        there = [a_job(key=f"a{number}", payload=one), a_job(key=f"b{number}", payload=two)]
        back = [a_job(key=f"b{number}", payload=two), a_job(key=f"a{number}", payload=one)]
        answers = won(at_once(partial(store.enqueue, there), partial(other.enqueue, back)))
        assert [answer.created for answer in itertools.chain(*answers)].count(True) == 2


# --- upkeep -------------------------------------------------------------------------------------


def test_two_pruners_prune_each_record_once(store: Store, other: Store, clock: ManualClock) -> None:
    put(store, *(a_job(key=f"k{number}") for number in range(200)))
    for lease in take(store, limit=200):
        assert settle(store, lease, DONE)
    keeper = put_one(store)
    clock.advance(timedelta(days=8))

    def prune(opening: Store) -> int:
        total = 0
        while pruned := opening.prune(Retention(), limit=7):
            total += pruned
        return total

    assert sum(won(at_once(partial(prune, store), partial(prune, other)))) == 200
    assert ids(store.find(Filter()).jobs) == [keeper.id]


def test_two_promoters_promote_each_job_once(store: Store, other: Store, clock: ManualClock) -> None:
    put(store, *(a_job(delay=timedelta(seconds=5)) for _ in range(200)))
    clock.advance(5)

    def promote(opening: Store) -> int:
        total = 0
        while promoted := opening.promote(limit=7):
            total += promoted
        return total

    assert sum(won(at_once(partial(promote, store), partial(promote, other)))) == 200
    assert len(take(store, limit=300)) == 200


def test_whoever_looks_while_jobs_end_sees_each_job_once(store: Store, other: Store) -> None:
    made = sorted(ids(put(store, *(a_job() for _ in range(300)))))
    stop = threading.Event()
    seen: list[list[str]] = []
    counted: list[int] = []

    def look() -> None:
        while not stop.is_set():
            seen.append(sorted(ids(other.find(Filter(), limit=1000).jobs)))
            counted.append(sum(count.count for count in other.counts().counts))

    onlooker = threading.Thread(target=look)
    onlooker.start()
    try:
        for lease in take(store, limit=300):
            assert settle(store, lease, DONE)
    finally:
        stop.set()
        onlooker.join(PATIENCE)
    assert seen
    assert all(look == made for look in seen)
    assert set(counted) == {300}


# --- processes ----------------------------------------------------------------------------------


def test_processes_that_open_a_new_store_at_one_instant_all_succeed(url: str) -> None:
    answers = in_processes(url, open_and_enqueue, [5] * 6)
    assert all(isinstance(answer, list) for answer in answers), answers
    assert len({job_id for answer in answers for job_id in answer}) == 30


def test_processes_with_one_key_make_one_job(url: str) -> None:
    answers = in_processes(url, enqueue_one_key, ["k"] * 6)
    assert all(isinstance(answer, tuple) for answer in answers), answers
    assert sum(created for _, created in answers) == 1
    assert len({job_id for job_id, _ in answers}) == 1


def test_ten_workers_and_twenty_jobs_and_no_job_runs_twice(url: str) -> None:
    [made] = in_processes(url, open_and_enqueue, [20])
    answers = in_processes(url, work_until_empty, [f"worker-{number}" for number in range(10)])
    assert all(isinstance(answer, list) for answer in answers), answers
    assert sorted(job_id for answer in answers for job_id in answer) == sorted(made)


def test_processes_that_prune_at_one_instant_prune_each_record_once(url: str) -> None:
    [made] = in_processes(url, open_and_enqueue, [120])
    [ran] = in_processes(url, work_until_empty, ["worker"])
    assert sorted(ran) == sorted(made)
    assert sum(in_processes(url, prune_everything, [None] * 3)) == 120


def test_short_commands_that_come_and_go_never_see_a_locked_store(url: str) -> None:
    """The last one out closes the database; whoever comes in at that moment must not notice."""
    answers = in_processes(url, open_again_and_again, [(url, 25)] * 4)
    assert answers == [25] * 4
    opened = connect.open(url)
    try:
        assert opened.store.count(Filter(), limit=1000) == 100
        assert opened.store.check() == []
    finally:
        opened.close()
