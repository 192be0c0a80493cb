"""Does an action on many jobs go on, once for each job, whichever process carries it?"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from tests.conformance.contenders import at_once
from tests.conformance.scene import a_job, ids, put
from windlass.clock import ManualClock, uuid7
from windlass.errors import Conflict, JobNotFound
from windlass.job import JobState
from windlass.store.jobs import Filter
from windlass.store.operations import WINDOW, Carried, NewOperation, Operation, Reached, State
from windlass.store.store import Store
from windlass.store.upkeep import Retention

LEASE = timedelta(seconds=10)
PENDING = Filter(states=(JobState.PENDING,))


def begin(store: Store, **changes: object) -> Operation:
    new = NewOperation(id=uuid7(), action="cancel", where=PENDING)
    return store.start_operation(msgspec.structs.replace(new, **changes), by="ann")


def take(store: Store, owner: str = "one", only: str = "") -> Carried:
    carried = store.take_operation(owner, LEASE, only)
    assert carried is not None
    return carried


def with_next(store: Store, carried: Carried, limit: int) -> Carried:
    chunk, place = store.next_jobs(carried, limit)
    return msgspec.structs.replace(carried, chunk=chunk, place=place)


def test_an_operation_is_found_as_it_was_asked_for(store: Store) -> None:
    where = Filter(
        types=("mail.send",),
        states=(JobState.PENDING, JobState.PROCESSING),
        tenant="",
        caller="shop",
        error="=ValueError",
        older_than=timedelta(hours=2),
        payload={("user", "id"): 42, ("a.b",): None},
    )
    begun = begin(
        store, where=where, arguments={"confirm": True}, rate=0.5, limit=7, expected=9, why="wrong text"
    )
    assert store.operation(begun.id) == begun
    assert (take(store).where, begun.filter["payload"]) == (where, {"user.id": 42, "a.b": None})
    assert (begun.arguments, begun.rate, begun.limit) == ({"confirm": True}, 0.5, 7)
    assert (begun.by, begun.why, begun.state, begun.expected) == ("ann", "wrong text", State.RUNNING, 9)
    with pytest.raises(JobNotFound, match="no operation has the id 'nix'"):
        store.operation("nix")


def test_the_same_request_again_is_the_same_operation(store: Store, other: Store) -> None:
    begun = begin(store)
    again = other.start_operation(NewOperation(id=begun.id, action="bury", where=PENDING), by="bob")
    assert again == begun
    assert [entry.verb for entry in store.audit(target=begun.id).entries] == ["start"]


def test_two_who_start_the_same_at_once_get_one(store: Store, other: Store) -> None:
    new = NewOperation(id=uuid7(), action="cancel", where=PENDING)
    one, two = at_once(*(lambda each=each: each.start_operation(new, by="ann") for each in (store, other)))
    assert one == two
    assert len(store.audit(target=new.id).entries) == 1


def test_the_newest_operations_come_first(store: Store, clock: ManualClock) -> None:
    begun = []
    for _ in range(3):
        begun.append(begin(store).id)
        clock.advance(1.0)
    assert [each.id for each in store.operations()] == begun[::-1]
    assert [each.id for each in store.operations(limit=1)] == begun[-1:]


def test_jobs_come_oldest_first_and_those_that_come_later_do_not(store: Store) -> None:
    jobs = put(store, *(a_job() for _ in range(5)))
    begin(store)
    put(store, a_job())
    carried = with_next(store, take(store), 2)
    assert list(carried.chunk) == ids(jobs[:2])
    carried = with_next(store, carried, 10)
    assert list(carried.chunk) == ids(jobs[2:])
    assert carried.place == carried.last
    assert with_next(store, carried, 10).chunk == ()


def test_a_job_is_as_old_as_it_was_when_the_operation_began(store: Store, clock: ManualClock) -> None:
    [old] = put(store, a_job())
    clock.advance(timedelta(hours=3))
    put(store, a_job())
    begin(store, where=msgspec.structs.replace(PENDING, older_than=timedelta(hours=2)))
    clock.advance(timedelta(hours=3))
    assert with_next(store, take(store), 10).chunk == (old.id,)


def test_one_look_goes_through_a_bounded_part_of_the_jobs(store: Store) -> None:
    put(store, a_job())
    begin(store)
    far = msgspec.structs.replace(take(store), last=10 * WINDOW)
    assert store.next_jobs(far, 10)[1] == far.place + WINDOW


def test_exactly_one_process_carries_an_operation(store: Store, other: Store, clock: ManualClock) -> None:
    begun = begin(store)
    first = take(store)
    assert (first.operation.owner, other.take_operation("two", LEASE)) == ("one", None)
    clock.advance(LEASE)
    second = take(other, "two")
    assert second.operation.id == begun.id
    # The old one comes back, and moves nothing.
    assert store.advance_operation(first, Reached(done=99), LEASE) is None
    assert store.operation(begun.id).reached == Reached()
    assert other.advance_operation(second, Reached(done=1), LEASE) is not None
    assert store.operation(begun.id).reached.done == 1


def test_of_two_who_take_at_once_one_gets_it(store: Store, other: Store) -> None:
    begin(store)
    taken = at_once(*(lambda each=each: each.take_operation("x", LEASE) for each in (store, other)))
    assert len([each for each in taken if each is not None]) == 1


def test_each_advance_keeps_the_lease(store: Store, other: Store, clock: ManualClock) -> None:
    begin(store)
    carried = take(store)
    for _ in range(3):
        clock.advance(LEASE / 2)
        assert store.advance_operation(carried, Reached(), LEASE) is not None
        assert other.take_operation("two", LEASE) is None
    # One that is let go is free at once.
    assert store.advance_operation(carried, Reached(), timedelta(0)) is not None
    assert other.take_operation("two", LEASE) is not None


def test_a_chunk_is_there_for_the_next_process(store: Store, other: Store, clock: ManualClock) -> None:
    jobs = put(store, *(a_job() for _ in range(3)))
    begin(store)
    before = with_next(store, take(store), 2)
    assert store.advance_operation(before, Reached(), LEASE) is not None
    store.cancel(jobs[0].id, by="ann", request_id=before.operation.id)
    # Killed here. What it has done answers as done, and is not done twice.
    clock.advance(LEASE)
    after = take(other, "two")
    assert (list(after.chunk), after.place) == (ids(jobs[:2]), before.place)
    for job_id in after.chunk:
        assert other.cancel(job_id, by="ann", request_id=after.operation.id).done
    assert len(store.audit(target=jobs[0].id).entries) == 1
    assert list(with_next(other, after, 10).chunk) == ids(jobs[2:])


def test_an_operation_ends_once_and_the_log_has_its_counts(store: Store) -> None:
    begun = begin(store)
    carried, reached = take(store), Reached(matched=4, done=3, refused=1, refusals=("no",))
    for _ in range(2):
        ended = store.advance_operation(carried, reached, LEASE, ends=State.DONE)
        assert ended is not None
        assert (ended.operation.state, ended.operation.reached) == (State.DONE, reached)
    end, start = store.audit(target=begun.id).entries
    assert (start.verb, start.kind, start.who) == ("start", "operation", "ann")
    assert (end.verb, end.who) == ("end", "ann")
    assert end.after is not None
    assert (end.after["state"], end.after["matched"], end.after["done"]) == ("done", 4, 3)
    assert store.take_operation("two", LEASE) is None
    with pytest.raises(Conflict, match=r"cannot pause operation .*: it is done"):
        store.steer_operation(begun.id, State.PAUSED, by="bob")


def test_a_paused_operation_keeps_its_place_and_goes_on_from_there(store: Store) -> None:
    jobs = put(store, *(a_job() for _ in range(3)))
    begun = begin(store)
    carried = with_next(store, take(store), 1)
    running = store.advance_operation(carried, Reached(), LEASE)
    assert running is not None
    for _ in range(2):
        assert store.steer_operation(begun.id, State.PAUSED, by="bob", why="look").state is State.PAUSED
    # Its carrier has acted on the first job, and comes with the second.
    paused = store.advance_operation(with_next(store, carried, 1), Reached(done=1), LEASE)
    assert paused is not None
    assert (paused.operation.state, paused.operation.reached.done, paused.chunk) == (State.PAUSED, 1, ())
    assert store.take_operation("two", LEASE) is None
    store.steer_operation(begun.id, State.RUNNING, by="bob")
    assert list(with_next(store, take(store, "two"), 10).chunk) == ids(jobs[1:])
    assert [entry.verb for entry in store.audit(target=begun.id).entries] == ["resume", "pause", "start"]


def test_a_stopped_operation_never_goes_on(store: Store) -> None:
    begun = begin(store)
    carried = take(store)
    assert store.steer_operation(begun.id, State.STOPPED, by="bob").ended_at is not None
    # What was done meanwhile is counted; it stays stopped.
    late = store.advance_operation(carried, Reached(done=2), LEASE, ends=State.DONE)
    assert late is not None
    assert (late.operation.state, late.operation.reached.done) == (State.STOPPED, 2)
    # So what was counted when it was stopped is a lower bound, and is recorded as one.
    [stop, _] = store.audit(target=begun.id).entries
    assert stop.after is not None
    assert (stop.after["state"], stop.after["at_least"]["done"], "done" in stop.after) == (
        "stopped",
        0,
        False,
    )
    with pytest.raises(Conflict, match="cannot resume operation"):
        store.steer_operation(begun.id, State.RUNNING, by="bob")


def test_only_one_operation_may_be_asked_for(store: Store) -> None:
    begin(store)
    wanted = begin(store)
    assert take(store, only=wanted.id).operation.id == wanted.id
    assert store.take_operation("one", LEASE, wanted.id) is None


def test_ended_operations_go_with_the_records_of_jobs(store: Store, clock: ManualClock) -> None:
    ended, running = begin(store), begin(store)
    store.steer_operation(ended.id, State.STOPPED, by="ann")
    clock.advance(timedelta(days=8))
    store.prune(Retention())
    assert [each.id for each in store.operations()] == [running.id]
