"""Is the table of transitions exact: each allowed pair works, and every other one changes nothing?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import msgspec
import pytest

from tests.conformance.contenders import at_once, won
from tests.conformance.scene import (
    AGAIN,
    BOOM,
    CANCELLED,
    DEAD,
    DONE,
    GIVEN_BACK,
    INTERRUPTED,
    LATER,
    REAPED,
    SNOOZED,
    a_job,
    a_payload,
    ids,
    in_state,
    look_up,
    put_one,
    settle,
    take,
    take_new,
    take_one,
)
from windlass.clock import ManualClock, uuid7
from windlass.errors import JobNotFound, WrongState
from windlass.job import JobState, Reason, Request
from windlass.outcome import Outcome
from windlass.store.engine import Acted, Settlement
from windlass.store.jobs import Edit, Filter
from windlass.store.store import Store

Verb = Callable[[Store, str], Acted]

VERBS: dict[str, Verb] = {
    "cancel": lambda store, job_id: store.cancel(job_id, by="ann", why="because"),
    "bury": lambda store, job_id: store.bury(job_id, by="ann", why="because"),
    "replay": lambda store, job_id: store.replay(job_id, by="ann", why="because"),
    "discard": lambda store, job_id: store.discard(job_id, by="ann", why="because"),
    "edit": lambda store, job_id: store.edit(job_id, Edit(priority=8), by="ann", why="because"),
}

# What a verb makes of a job in a state; a running job is only asked for.
ALLOWED = {
    ("cancel", JobState.PENDING): Acted("", JobState.CANCELLED, done=True),
    ("bury", JobState.PENDING): Acted("", JobState.DEAD, done=True),
    ("edit", JobState.PENDING): Acted("", JobState.PENDING, done=True),
    ("cancel", JobState.PROCESSING): Acted("", JobState.PROCESSING, done=False),
    ("bury", JobState.PROCESSING): Acted("", JobState.PROCESSING, done=False),
    ("replay", JobState.DEAD): Acted("", JobState.PENDING, done=True),
    ("discard", JobState.DEAD): Acted("", JobState.DISCARDED, done=True),
}
PAIRS = [(verb, state) for verb in VERBS for state in JobState]


@pytest.mark.parametrize(("verb", "state"), [pair for pair in PAIRS if pair in ALLOWED])
def test_a_verb_on_a_state_that_allows_it(store: Store, other: Store, verb: str, state: JobState) -> None:
    job = in_state(store, state)
    acted = VERBS[verb](store, job.id)
    expected = ALLOWED[verb, state]
    assert (acted.id, acted.state, acted.done) == (job.id, expected.state, expected.done)
    after = look_up(other, job.id)
    assert after.state is expected.state
    assert (after.changes[-1].verb, after.changes[-1].by, after.changes[-1].why) == (verb, "ann", "because")


@pytest.mark.parametrize(("verb", "state"), [pair for pair in PAIRS if pair not in ALLOWED])
def test_a_verb_on_any_other_state_is_refused_and_changes_nothing(
    store: Store, clock: ManualClock, verb: str, state: JobState
) -> None:
    job = in_state(store, state)
    clock.advance(5)
    with pytest.raises(WrongState) as refused:
        VERBS[verb](store, job.id)
    assert refused.value.job_id == job.id
    assert refused.value.state == state
    assert look_up(store, job.id) == job
    assert ids(store.find(Filter()).jobs) == [job.id]


# What is asked by a request that has a name, of a job in a state; and how the job stands then.
NAMED: dict[str, tuple[JobState, Verb]] = {
    "cancel": (JobState.PENDING, lambda store, job_id: store.cancel(job_id, by="ann", request_id="r1")),
    "cancel it in its run": (
        JobState.PROCESSING,
        lambda store, job_id: store.cancel(job_id, by="ann", request_id="r1"),
    ),
    "bury": (JobState.PENDING, lambda store, job_id: store.bury(job_id, by="ann", request_id="r1")),
    "bury it in its run": (
        JobState.PROCESSING,
        lambda store, job_id: store.bury(job_id, by="ann", request_id="r1"),
    ),
    "replay": (JobState.DEAD, lambda store, job_id: store.replay(job_id, by="ann", request_id="r1")),
    "discard": (JobState.DEAD, lambda store, job_id: store.discard(job_id, by="ann", request_id="r1")),
    "edit": (
        JobState.PENDING,
        lambda store, job_id: store.edit(job_id, Edit(priority=8), by="ann", request_id="r1"),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_same_request_once_more_changes_nothing_and_is_given_the_same_answer(
    store: Store, other: Store, clock: ManualClock, name: str
) -> None:
    state, ask = NAMED[name]
    job = in_state(store, state)
    first = ask(store, job.id)
    after = look_up(store, job.id)
    clock.advance(5)
    assert ask(other, job.id) == first
    assert look_up(store, job.id) == after
    assert len(store.audit(target=job.id).entries) == 1


def test_a_request_whose_answer_was_lost_is_told_how_the_job_stands_by_now(store: Store) -> None:
    job = in_state(store, JobState.DEAD)
    waiting = put_one(store, depends_on=(job.id,), on_dead="wait")
    store.replay(job.id, request_id="r1")
    settle(store, take_one(store), DEAD)
    # Dead again: the same request is not meant for that, another one is.
    assert store.replay(job.id, request_id="r1") == Acted(job.id, JobState.DEAD)
    store.bury(waiting.id, request_id="r2")
    store.replay(waiting.id, request_id="r3")
    # What it did is over; nothing that depends on the job hears of it twice.
    assert store.bury(waiting.id, request_id="r2").state is JobState.PENDING
    assert store.replay(job.id, request_id="r4") == Acted(job.id, JobState.PENDING)
    settle(store, take_one(store), DONE)
    assert store.replay(job.id, request_id="r4") == Acted(job.id, JobState.COMPLETED)


def test_two_servers_are_sent_one_request_and_one_carries_it_out(store: Store, other: Store) -> None:
    for number in range(10):
        job = in_state(store, JobState.DEAD)
        calls = [partial(opening.replay, job.id, request_id=f"r{number}") for opening in (store, other)]
        assert won(at_once(*calls)) == [Acted(job.id, JobState.PENDING)] * 2
        assert look_up(store, job.id).replay_count == 1
        assert [each.verb for each in look_up(store, job.id).changes].count("replay") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_an_unknown_job_is_refused(store: Store, verb: str) -> None:
    with pytest.raises(JobNotFound):
        VERBS[verb](store, uuid7())
    assert store.find(Filter()).jobs == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_refused_verb_does_not_pull_down_the_next(store: Store, verb: str) -> None:
    job = in_state(store, JobState.COMPLETED)
    with pytest.raises(WrongState):
        VERBS[verb](store, job.id)
    assert put_one(store).state is JobState.PENDING


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.PENDING])
def test_a_claim_takes_no_job_out_of_another_state(store: Store, state: JobState) -> None:
    job = in_state(store, state)
    assert take(store, limit=10, worker="thief") == []
    assert look_up(store, job.id) == job


# --- requests to a running job ------------------------------------------------------------------

PUT_BACK: dict[str, Outcome] = {
    "again": AGAIN,
    "later": LATER,
    "reaped": REAPED,
    "snoozed": SNOOZED,
    "given back": GIVEN_BACK,
    "interrupted": INTERRUPTED,
}
ASKED = [("cancel", JobState.CANCELLED), ("bury", JobState.DEAD)]


@pytest.mark.parametrize(("verb", "state"), ASKED)
@pytest.mark.parametrize("name", PUT_BACK)
def test_a_job_put_back_under_a_request_is_stopped_instead(
    store: Store, other: Store, verb: str, state: JobState, name: str
) -> None:
    lease = take_new(store)
    VERBS[verb](other, lease.id)
    assert look_up(store, lease.id).request == Request(verb)
    assert settle(store, lease, PUT_BACK[name])
    job = look_up(store, lease.id)
    assert (job.state, job.request) == (state, None)
    assert job.finished_at == store.now()
    assert take(store, limit=5) == []


@pytest.mark.parametrize("verb", ["cancel", "bury"])
@pytest.mark.parametrize(("outcome", "state"), [(DONE, JobState.COMPLETED), (DEAD, JobState.DEAD)])
def test_an_end_wins_over_a_request(store: Store, verb: str, outcome: Outcome, state: JobState) -> None:
    lease = take_new(store)
    VERBS[verb](store, lease.id)
    assert settle(store, lease, outcome)
    job = look_up(store, lease.id)
    assert (job.state, job.request) == (state, None)


@pytest.mark.parametrize(("verb", "state"), ASKED)
def test_a_reaper_carries_out_a_request_that_its_worker_never_saw(
    store: Store, verb: str, state: JobState
) -> None:
    lease = take_new(store, worker="gone")
    VERBS[verb](store, lease.id)
    [orphan] = store.orphans(limit=5)
    assert store.settle([Settlement(orphan, REAPED, None)]) == []
    job = look_up(store, lease.id)
    assert job.state is state
    assert [entry.error and entry.error.reason for entry in job.history] == [Reason.WORKER_LOST]


def test_a_stopped_handler_ends_its_job_as_cancelled(store: Store) -> None:
    lease = take_new(store)
    store.cancel(lease.id)
    assert settle(store, lease, CANCELLED)
    job = look_up(store, lease.id)
    assert (job.state, job.request) == (JobState.CANCELLED, None)
    assert job.error is not None


def test_a_request_does_not_outlive_the_attempt_it_was_made_for(store: Store) -> None:
    lease = take_new(store)
    store.bury(lease.id)
    assert settle(store, lease, AGAIN)
    store.replay(lease.id)
    again = take_one(store)
    assert again.job.request is None
    assert settle(store, again, AGAIN)
    assert look_up(store, lease.id).state is JobState.PENDING


def test_a_request_leaves_the_lease_alone(store: Store) -> None:
    lease = take_new(store)
    store.cancel(lease.id)
    kept, lost = store.extend([lease], timedelta(seconds=90))
    assert (ids(kept), lost) == ([lease.id], [])


# --- dead letters -------------------------------------------------------------------------------


def test_a_replay_keeps_row_and_history_and_counts_anew(store: Store, clock: ManualClock) -> None:
    lease = take_new(store, key="k", max_attempts=2, priority=7)
    assert settle(store, lease, AGAIN)
    assert settle(store, take_one(store), DEAD)
    dead = look_up(store, lease.id)
    clock.advance(500)
    store.replay(lease.id, by="ann", why="fixed")
    job = look_up(store, lease.id)
    assert (job.id, job.seq, job.key, job.priority, job.payload) == (
        *(dead.id, dead.seq, "k", 7, dead.payload),
    )
    assert job.created_at == dead.created_at
    assert (job.attempts, job.snoozes, job.interruptions, job.losses) == (0, 0, 0, 0)
    assert (job.claims, job.replay_count, job.max_attempts) == (2, 1, 2)
    assert job.history == dead.history
    assert (job.run_at, job.enqueued_at, job.updated_at) == (store.now(),) * 3
    assert job.finished_at is None
    [change] = job.changes
    assert (change.at, change.verb, change.by, change.why, change.before) == (
        *(store.now(), "replay", "ann", "fixed", None),
    )


def test_a_replayed_job_has_all_its_attempts_again_and_its_history_goes_on(store: Store) -> None:
    lease = take_new(store, max_attempts=2)
    for outcome in (AGAIN, DEAD):
        if outcome is DEAD:
            lease = take_one(store)
        assert settle(store, lease, outcome)
    store.replay(lease.id)
    again = take_one(store)
    assert (again.job.attempts, again.job.claims) == (1, 3)
    assert settle(store, again, DEAD)
    job = look_up(store, lease.id)
    assert [(entry.number, entry.claim) for entry in job.history] == [(1, 1), (2, 2), (1, 3)]
    store.replay(lease.id)
    assert look_up(store, lease.id).replay_count == 2


def test_a_replay_with_an_edit_keeps_the_payload_before(store: Store) -> None:
    job = in_state(store, JobState.DEAD, payload=a_payload(to="wrong"))
    later = store.now() + timedelta(minutes=5)
    edit = Edit(priority=9, payload=a_payload(to="right"), schema_version=2, run_at=later)
    store.replay(job.id, edit=edit, by="ann", why="data fix")
    after = look_up(store, job.id)
    assert (after.priority, bytes(after.payload), after.schema_version, after.run_at) == (
        *(9, a_payload(to="right"), 2, later),
    )
    assert after.changes[-1].before == {"to": "wrong"}
    assert take(store, types={"mail.send": 2}) == []


def test_a_replay_of_a_waiting_job_names_the_verb_that_makes_it_due(store: Store) -> None:
    lease = take_new(store)
    assert settle(store, lease, LATER)
    with pytest.raises(WrongState, match="replay is for dead jobs; to run it now, use reschedule --now"):
        store.replay(lease.id)
    assert take(store) == []
    store.edit(lease.id, Edit(run_at=store.now()))
    job = look_up(store, lease.id)
    assert (job.attempts, job.replay_count) == (1, 0)
    assert ids(take(store)) == [lease.id]


def test_a_buried_job_tells_why_and_can_be_replayed(store: Store) -> None:
    job = in_state(store, JobState.DEAD)
    assert job.error is not None
    assert job.finished_at == store.now()
    store.replay(job.id)
    assert ids(take(store)) == [job.id]


def test_a_discarded_job_keeps_its_whole_record(store: Store) -> None:
    lease = take_new(store, key="k")
    assert settle(store, lease, DEAD)
    store.discard(lease.id, by="ann", why="hopeless")
    job = look_up(store, "k")
    assert (job.state, job.history[0].error) == (JobState.DISCARDED, BOOM)
    assert job.error is not None
    assert job.error.message == BOOM.message
    assert [(change.verb, change.by) for change in job.changes] == [("discard", "ann")]
    assert job.finished_at == store.now()


def test_verbs_leave_their_changes_in_order(store: Store, clock: ManualClock) -> None:
    job = put_one(store)
    for verb in ("edit", "bury", "replay", "bury", "discard"):
        clock.advance(1)
        VERBS[verb](store, job.id)
    after = look_up(store, job.id)
    assert [change.verb for change in after.changes] == ["edit", "bury", "replay", "bury", "discard"]
    times = [change.at for change in after.changes]
    assert times == sorted(set(times))


# --- edits --------------------------------------------------------------------------------------


def test_an_edit_changes_only_what_it_names(store: Store, clock: ManualClock) -> None:
    job = put_one(store, priority=2, payload=a_payload(to="a"))
    clock.advance(3)
    store.edit(job.id, Edit(priority=9), by="ann")
    after = look_up(store, job.id)
    assert (after.priority, after.payload, after.run_at, after.schema_version) == (
        9,
        job.payload,
        job.run_at,
        1,
    )
    assert after.updated_at == store.now()
    assert after.changes[-1].before is None


def test_an_edited_priority_moves_the_job_to_its_new_place(store: Store) -> None:
    first, second = put_one(store), put_one(store)
    store.edit(second.id, Edit(priority=6))
    assert ids(take(store, limit=2)) == [second.id, first.id]


def test_an_edited_time_moves_the_job_out_of_and_into_the_due_ones(store: Store, clock: ManualClock) -> None:
    job = put_one(store)
    store.edit(job.id, Edit(run_at=store.now() + timedelta(minutes=1)))
    assert take(store) == []
    store.edit(job.id, Edit(run_at=store.now() - timedelta(minutes=1)))
    assert ids(take(store)) == [job.id]


def test_an_edited_payload_is_the_one_that_runs_and_the_old_one_is_kept(store: Store) -> None:
    job = put_one(store, payload=a_payload(to="a"))
    store.edit(job.id, Edit(payload=a_payload(to="b"), schema_version=1), by="ann")
    lease = take_one(store)
    assert bytes(lease.job.payload) == a_payload(to="b")
    assert lease.job.changes[-1].before == {"to": "a"}


def test_a_thousand_edits_do_not_swell_a_job_without_bound(store: Store) -> None:
    job = put_one(store, payload=a_payload(text="x" * 60_000))
    for number in range(300):
        store.edit(job.id, Edit(payload=a_payload(text=f"{number}" * 10_000)))
    after = look_up(store, job.id)
    assert len(after.changes) <= 100
    assert len(msgspec.json.encode(after)) < 2_000_000


# --- again, as a new job ------------------------------------------------------------------------


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED, JobState.DISCARDED])
def test_an_ended_job_is_run_again_as_a_new_one_that_names_it(store: Store, state: JobState) -> None:
    old = put_one(store, key="once")
    if state is JobState.CANCELLED:
        store.cancel(old.id)
    else:
        [lease] = take(store)
        assert settle(store, lease, DONE if state is JobState.COMPLETED else DEAD)
    if state is JobState.DISCARDED:
        store.discard(old.id)
    before = look_up(store, old.id)
    new = a_job(type=old.type)
    acted = store.rerun(old.id, new, by="ann", why="deleted by mistake")
    made = look_up(store, acted.id)
    assert (acted.id, made.state, made.key, made.rerun_of) == (new.id, JobState.PENDING, None, old.id)
    assert [(change.verb, change.by, change.why) for change in made.changes] == [
        ("rerun", "ann", "deleted by mistake")
    ]
    assert look_up(store, old.id) == before, "the old one stays as it is"
    [entry] = store.audit(verb="rerun").entries
    assert (entry.target, entry.after) == (old.id, {"job": new.id})
    [again] = take(store)
    assert again.id == new.id
    assert settle(store, again, DONE)
    assert look_up(store, new.id).rerun_of == old.id, "also when it has ended"


def test_a_repeated_rerun_makes_one_job(store: Store) -> None:
    old = put_one(store)
    store.cancel(old.id)
    new = a_job(own_id=True)
    for _ in range(2):
        assert store.rerun(old.id, new, by="ann", request_id="r1").id == new.id
    assert len(store.audit(verb="rerun").entries) == 1
    assert len(look_up(store, new.id).changes) == 1


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.PROCESSING, JobState.DEAD])
def test_what_has_not_ended_or_can_be_replayed_is_not_run_as_a_new_job(store: Store, state: JobState) -> None:
    old = put_one(store)
    if state is not JobState.PENDING:
        [lease] = take(store)
        assert state is JobState.PROCESSING or settle(store, lease, DEAD)
    with pytest.raises(WrongState, match="rerun is for completed, cancelled and discarded jobs"):
        store.rerun(old.id, a_job())
    assert store.count(Filter(), limit=9) == 1
