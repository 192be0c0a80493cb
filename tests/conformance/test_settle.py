"""What does each outcome make of a job, and who may write it?"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from tests.conformance.scene import (
    AGAIN,
    BOOM,
    CANCELLED,
    DEAD,
    DONE,
    GIVEN_BACK,
    INTERRUPTED,
    LATER,
    OUTCOMES,
    REAPED,
    SNOOZED,
    a_job,
    a_seasoned_lease,
    ids,
    look_up,
    put,
    settle,
    state_of,
    take,
    take_new,
    take_one,
)
from windlass.clock import ManualClock
from windlass.job import Error, JobState, Lease, Output, Reason
from windlass.outcome import Again, Dead, Done, Outcome
from windlass.store.engine import Settlement
from windlass.store.jobs import Filter
from windlass.store.store import Store
from windlass.store.upkeep import Retention


def test_nothing_to_settle_is_no_error(store: Store) -> None:
    assert store.settle([]) == []


STATE_AFTER = {
    "done": JobState.COMPLETED,
    "again": JobState.PENDING,
    "later": JobState.PENDING,
    "reaped": JobState.PENDING,
    "snoozed": JobState.PENDING,
    "given back": JobState.PENDING,
    "interrupted": JobState.PENDING,
    "dead": JobState.DEAD,
    "cancelled": JobState.CANCELLED,
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_leads_to_its_state_and_frees_the_lease(store: Store, other: Store, name: str) -> None:
    lease = take_new(store)
    assert settle(store, lease, OUTCOMES[name])
    job = look_up(other, lease.id)
    assert job.state is STATE_AFTER[name]
    assert (job.lease_until, job.request) == (None, None)
    assert store.held_by("worker-1") == []


COUNTERS_AFTER = {
    # attempts, claims, snoozes, interruptions, losses
    "done": (1, 1, 0, 0, 0),
    "again": (1, 1, 0, 0, 0),
    "later": (1, 1, 0, 0, 0),
    "reaped": (1, 1, 0, 0, 1),
    "snoozed": (0, 1, 1, 0, 0),
    "given back": (0, 1, 0, 0, 0),
    "interrupted": (0, 1, 0, 1, 0),
    "dead": (1, 1, 0, 0, 0),
    "cancelled": (1, 1, 0, 0, 0),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_counts_what_it_must_and_nothing_else(store: Store, name: str) -> None:
    lease = take_new(store)
    assert settle(store, lease, OUTCOMES[name])
    job = look_up(store, lease.id)
    assert (job.attempts, job.claims, job.snoozes, job.interruptions, job.losses) == COUNTERS_AFTER[name]


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_settle_leaves_all_that_it_is_not_about(store: Store, clock: ManualClock, name: str) -> None:
    lease = a_seasoned_lease(store, clock, key="k", tenant="acme", caller="shop", traceparent="00-1-2-03")
    clock.advance(17)
    assert settle(store, lease, OUTCOMES[name])
    before, after = lease.job, look_up(store, lease.id)
    for field in (
        *(
            "id",
            "seq",
            "type",
            "priority",
            "payload",
            "schema_version",
            "key",
            "caller",
            "tenant",
            "traceparent",
        ),
        *("max_attempts", "claims", "replay_count", "created_at", "enqueued_at", "started_at", "changes"),
    ):
        assert getattr(after, field) == getattr(before, field), field
    assert after.updated_at == store.now()


@pytest.mark.parametrize("name", ["done", "dead", "cancelled"])
def test_an_ended_job_has_an_end(store: Store, clock: ManualClock, name: str) -> None:
    lease = take_new(store)
    clock.advance(17)
    assert settle(store, lease, OUTCOMES[name])
    assert look_up(store, lease.id).finished_at == store.now()


@pytest.mark.parametrize(
    ("outcome", "wait"),
    [(AGAIN, 0), (LATER, 30), (SNOOZED, 20), (GIVEN_BACK, 0), (INTERRUPTED, 0)],
    ids=["again", "later", "snoozed", "given back", "interrupted"],
)
def test_a_job_put_back_has_its_time_and_no_worker(
    store: Store, clock: ManualClock, outcome: Outcome, wait: int
) -> None:
    lease = take_new(store)
    clock.advance(17)
    assert settle(store, lease, outcome)
    job = look_up(store, lease.id)
    if wait:
        assert job.run_at == store.now() + timedelta(seconds=wait)
    else:
        assert job.run_at <= store.now()
    assert (job.worker, job.lease_until, job.finished_at) == (None, None, None)


def test_a_result_is_kept(store: Store) -> None:
    lease = take_new(store)
    assert settle(store, lease, Done(b'{"sent":[1,2.50,"\xc3\xa4"]}'))
    assert look_up(store, lease.id).result == msgspec.Raw(b'{"sent":[1,2.50,"\xc3\xa4"]}')


def test_a_job_without_a_result_has_none(store: Store) -> None:
    lease = take_new(store)
    assert settle(store, lease, Done())
    assert look_up(store, lease.id).result is None


def test_many_outcomes_are_settled_together(store: Store) -> None:
    put(store, *(a_job() for _ in OUTCOMES))
    leases = take(store, limit=len(OUTCOMES))
    pairs = zip(leases, OUTCOMES.values(), strict=True)
    assert store.settle([Settlement(lease, outcome, timedelta(1)) for lease, outcome in pairs]) == []
    assert [state_of(store, lease.id) for lease in leases] == list(STATE_AFTER.values())


# --- the fence ----------------------------------------------------------------------------------


def stolen(store: Store, by: Store) -> tuple[Lease, Lease]:
    """A lease that was reaped, and that of the worker who runs the job now."""
    old = take_new(store, worker="old")
    assert settle(by, old, REAPED)
    return old, take_one(by, worker="new")


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_worker_that_lost_its_lease_can_settle_nothing(store: Store, other: Store, name: str) -> None:
    old, new = stolen(store, other)
    before = look_up(store, old.id)
    assert not settle(store, old, OUTCOMES[name])
    assert look_up(store, old.id) == before
    assert settle(other, new, DONE)


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_late_result_changes_nothing_while_the_job_waits(store: Store, other: Store, name: str) -> None:
    lease = take_new(store)
    assert settle(other, lease, REAPED)
    before = look_up(store, lease.id)
    store.settle([Settlement(lease, OUTCOMES[name], timedelta(1))])
    assert look_up(store, lease.id) == before


def test_a_late_result_after_a_reap_is_told_as_lost(store: Store, other: Store) -> None:
    """Nobody else runs the job yet; still the worker must learn that its work was for nothing."""
    lease = take_new(store)
    assert settle(other, lease, REAPED)
    assert not settle(store, lease, DONE)


def test_a_late_result_is_told_as_lost_after_the_other_worker_has_ended_the_job(
    store: Store, other: Store
) -> None:
    old, new = stolen(store, other)
    assert settle(other, new, DONE)
    before = look_up(store, old.id)
    assert not settle(store, old, DEAD)
    assert look_up(store, old.id) == before


def test_a_made_up_token_settles_nothing(store: Store) -> None:
    lease = take_new(store)
    assert not settle(store, msgspec.structs.replace(lease, token="0" * 32), DONE)
    assert state_of(store, lease.id) is JobState.PROCESSING


def test_the_token_of_one_job_settles_no_other(store: Store) -> None:
    put(store, a_job(), a_job())
    one, two = take(store, limit=2)
    assert not settle(store, msgspec.structs.replace(one, token=two.token), DONE)
    assert [state_of(store, lease.id) for lease in (one, two)] == [JobState.PROCESSING] * 2


def test_the_lost_among_many_are_named_and_the_rest_is_settled(store: Store, other: Store) -> None:
    put(store, *(a_job() for _ in range(5)))
    leases = take(store, limit=5)
    for lost in (leases[1], leases[3]):
        assert settle(other, lost, REAPED)
    take(other, limit=2, worker="new")
    answer = store.settle([Settlement(lease, DONE, timedelta(1)) for lease in leases])
    assert ids(answer) == [leases[1].id, leases[3].id]
    assert [state_of(store, lease.id) for lease in leases] == [
        *(
            JobState.COMPLETED,
            JobState.PROCESSING,
            JobState.COMPLETED,
            JobState.PROCESSING,
            JobState.COMPLETED,
        )
    ]


def test_an_expired_lease_that_nobody_reaped_still_settles(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    clock.advance(timedelta(hours=5))
    assert settle(store, lease, DONE)
    assert state_of(store, lease.id) is JobState.COMPLETED


# --- repeats ------------------------------------------------------------------------------------


# A reap repeated is no worker's work: whether it finds itself done or lost tells nobody anything.
@pytest.mark.parametrize("name", [name for name in OUTCOMES if name != "reaped"])
def test_a_settle_repeated_after_a_lost_answer_finds_itself_done(
    store: Store, other: Store, name: str
) -> None:
    lease = take_new(store)
    assert settle(store, lease, OUTCOMES[name])
    before = look_up(store, lease.id)
    assert settle(other, lease, OUTCOMES[name])
    assert look_up(store, lease.id) == before


@pytest.mark.parametrize("name", ["again", "snoozed", "given back", "interrupted"])
def test_a_repeat_finds_itself_done_also_when_the_job_runs_again(
    store: Store, clock: ManualClock, name: str
) -> None:
    lease = take_new(store)
    assert settle(store, lease, OUTCOMES[name])
    clock.advance(60)
    store.promote()
    take_one(store, worker="new")
    before = look_up(store, lease.id)
    assert settle(store, lease, OUTCOMES[name])
    assert look_up(store, lease.id) == before


def test_the_same_lease_twice_in_one_batch_is_settled_once(store: Store) -> None:
    lease = take_new(store)
    assert store.settle([Settlement(lease, AGAIN, timedelta(1))] * 2) == []
    job = look_up(store, lease.id)
    assert (job.state, job.attempts, len(job.history)) == (JobState.PENDING, 1, 1)


def test_many_completed_together_keep_what_their_attempts_left_behind(store: Store) -> None:
    odd = 'quotes " and \\ strokes, a \n line, ünïcode, \U0001f680 and {"a": [null]}'
    failed = Again(timedelta(0), Error(Reason.EXCEPTION, "ValueError", odd, odd))
    done = Done(msgspec.json.encode({"said": odd}), Output(0, odd, odd))
    put(store, *(a_job() for _ in range(4)))
    assert store.settle([Settlement(lease, failed) for lease in take(store, 4)]) == []
    leases = take(store, 4)
    assert store.settle([Settlement(lease, done, timedelta(seconds=2), app="1.0") for lease in leases]) == []
    for lease in leases:
        job = look_up(store, lease.id)
        first, second = job.history
        assert (first.error, second.output) == (failed.error, done.output)
        assert (second.outcome, second.seconds, second.app) == ("completed", 2.0, "1.0")
        assert job.result is not None
        assert bytes(job.result) == done.value


def test_a_megabyte_of_results_is_completed_in_parts(store: Store) -> None:
    put(store, *(a_job() for _ in range(40)))
    leases = take(store, 40)
    results = [msgspec.json.encode(f"{number:06}" * 10_000) for number in range(40)]
    done = [Settlement(lease, Done(result)) for lease, result in zip(leases, results, strict=True)]
    assert store.settle(done) == []
    assert [look_up(store, lease.id).result for lease in leases] == [msgspec.Raw(each) for each in results]


def test_a_completion_twice_among_many_is_written_once(store: Store) -> None:
    put(store, *(a_job() for _ in range(4)))
    leases = take(store, limit=4)
    assert store.settle([Settlement(lease, DONE, timedelta(1)) for lease in (*leases, leases[0])]) == []
    jobs = [look_up(store, lease.id) for lease in leases]
    assert [(job.state, len(job.history)) for job in jobs] == [(JobState.COMPLETED, 1)] * 4


def test_completions_repeated_with_new_ones_find_themselves_done(store: Store, other: Store) -> None:
    put(store, *(a_job() for _ in range(6)))
    leases = take(store, limit=6)
    first = [Settlement(lease, DONE, timedelta(1)) for lease in leases[:3]]
    assert store.settle(first) == []
    before = [look_up(store, lease.id) for lease in leases[:3]]
    assert other.settle([*first, *(Settlement(lease, DONE, timedelta(1)) for lease in leases[3:])]) == []
    assert [look_up(store, lease.id) for lease in leases[:3]] == before
    assert {state_of(store, lease.id) for lease in leases} == {JobState.COMPLETED}


def test_an_old_lease_among_many_completions_is_lost_though_its_job_is_completed(
    store: Store, clock: ManualClock
) -> None:
    put(store, *(a_job() for _ in range(3)))
    old = take_one(store, worker="old")
    assert settle(store, old, REAPED)
    clock.advance(1)
    leases = take(store, limit=3, worker="new")
    assert old.id in ids(leases)
    lost = store.settle([Settlement(lease, DONE, timedelta(1)) for lease in (old, *leases)])
    assert [lease.token for lease in lost] == [old.token]
    assert {lease.worker for lease in leases} == {look_up(store, lease.id).worker for lease in leases}


def test_a_settle_of_a_job_whose_record_is_gone_is_lost(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    assert settle(store, lease, CANCELLED)
    clock.advance(timedelta(days=40))
    assert store.prune(Retention()) == 1
    assert not settle(store, lease, DONE)
    assert store.get(lease.id) is None


# --- the record of each attempt -----------------------------------------------------------------


def test_each_attempt_leaves_its_record(store: Store, clock: ManualClock) -> None:
    put(store, a_job(max_attempts=3))
    for number in (1, 2, 3):
        lease = take_one(store, worker=f"worker-{number}")
        clock.advance(10 * number)
        error = Error(Reason.EXCEPTION, "ValueError", f"boom {number}", f"line {number}")
        output = Output(exit_code=number, stdout=f"out {number}", stderr=f"err {number}")
        outcome = Dead(error, output=output) if number == 3 else Again(timedelta(0), error, output)
        assert store.settle([Settlement(lease, outcome, timedelta(seconds=number))]) == []
    [job] = store.find(Filter()).jobs
    assert [(entry.number, entry.claim, entry.worker) for entry in job.history] == [
        *((1, 1, "worker-1"), (2, 2, "worker-2"), (3, 3, "worker-3"))
    ]
    assert [entry.error and (entry.error.message, entry.error.traceback) for entry in job.history] == [
        *(("boom 1", "line 1"), ("boom 2", "line 2"), ("boom 3", "line 3"))
    ]
    assert [entry.output and entry.output.exit_code for entry in job.history] == [1, 2, 3]
    assert job.error is not None
    assert (job.error.reason, job.error.message) == (Reason.EXCEPTION, "boom 3")


def test_a_record_tells_when_the_attempt_ran(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    clock.advance(10)
    assert store.settle([Settlement(lease, AGAIN, timedelta(seconds=4))]) == []
    [entry] = look_up(store, lease.id).history
    assert (entry.started_at, entry.finished_at) == (lease.job.started_at, store.now())
    assert entry.seconds == 4


@pytest.mark.parametrize(
    "said",
    [
        "0001-01-01T00:00:00Z",
        'token expired at 0001-01-01T00:00:00Z, or "0001-01-01T00:00:00Z"',
        '{"finished_at":"0001-01-01T00:00:00Z"}',
    ],
)
def test_a_message_keeps_the_times_that_it_names(store: Store, said: str) -> None:
    """Also the one that other languages have for no time at all."""
    lease = take_new(store)
    for outcome in (Again(timedelta(0), Error(Reason.EXCEPTION, "E", said)), AGAIN):
        assert settle(store, lease, outcome)
        lease = take_one(store)
    assert settle(store, lease, DONE)
    [first, *_] = look_up(store, lease.id).history
    assert first.error is not None
    assert first.error.message == said


def test_a_completed_job_keeps_the_records_of_its_failures(store: Store) -> None:
    lease = take_new(store)
    assert settle(store, lease, AGAIN)
    assert settle(store, take_one(store), DONE)
    job = look_up(store, lease.id)
    assert [entry.error for entry in job.history] == [BOOM, None]
    assert len({entry.outcome for entry in job.history}) == 2


def test_a_death_by_age_says_so_above_the_attempts_own_error(store: Store) -> None:
    lease = take_new(store)
    why = Error(Reason.EXPIRED, message="too old")
    assert settle(store, lease, Dead(BOOM, why=why))
    job = look_up(store, lease.id)
    assert job.error is not None
    assert job.error.reason is Reason.EXPIRED
    assert [entry.error for entry in job.history] == [BOOM]


def test_history_is_bounded_and_the_newest_stay(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    for _ in range(150):
        assert settle(store, lease, INTERRUPTED)
        lease = take_one(store)
    assert settle(store, lease, DEAD)
    job = look_up(store, lease.id)
    assert job.claims == 151
    assert 20 <= len(job.history) <= 100
    claims = [entry.claim for entry in job.history]
    assert claims == sorted(claims)
    assert claims[-1] == 151
    assert job.history[-1].error == BOOM


def test_twenty_full_attempts_are_all_kept(store: Store) -> None:
    put(store, a_job(max_attempts=20))
    long = Error(Reason.EXCEPTION, "ValueError", "m" * 2_000, "t" * 8_000)
    for _ in range(19):
        assert settle(store, take_one(store), Again(timedelta(0), long))
    assert settle(store, take_one(store), Dead(long))
    [job] = store.find(Filter()).jobs
    assert [entry.number for entry in job.history] == list(range(1, 21))
    assert all(entry.error is not None and entry.error.message for entry in job.history)


# --- what cannot be stored ----------------------------------------------------------------------


def test_an_outcome_that_cannot_be_stored_fails_alone(store: Store) -> None:
    put(store, a_job(), a_job(), a_job())
    leases = take(store, limit=3)
    bad = Done(b"\xff\xfe not text")
    outcomes = (DONE, bad, DONE)
    answer = store.settle(
        [Settlement(one, two, timedelta(1)) for one, two in zip(leases, outcomes, strict=True)]
    )
    assert answer == []
    states = [state_of(store, lease.id) for lease in leases]
    assert states == [JobState.COMPLETED] * 3, "the work is done, whatever it left behind"
    job = look_up(store, leases[1].id)
    assert job.result is None
    assert job.result_missing is not None
    assert "could not be stored" in job.result_missing


@pytest.mark.parametrize("together", [1, 5])
def test_a_completion_says_why_its_result_is_missing(store: Store, together: int) -> None:
    put(store, *(a_job() for _ in range(together)))
    leases = take(store, limit=together)
    assert store.settle([Settlement(each, Done(missing="too large"), timedelta(1)) for each in leases]) == []
    jobs = [look_up(store, each.id) for each in leases]
    assert {(job.state, job.result, job.result_missing) for job in jobs} == {
        (JobState.COMPLETED, None, "too large")
    }


@pytest.mark.parametrize("text", ["a NUL \0 inside", "half a character \ud83d"])
def test_an_odd_message_does_not_stop_a_settle(store: Store, text: str) -> None:
    put(store, a_job(), a_job())
    one, two = take(store, limit=2)
    odd = Again(timedelta(0), Error(Reason.EXCEPTION, "ValueError", text), Output(stderr=text))
    assert store.settle([Settlement(one, odd, timedelta(1)), Settlement(two, DONE, timedelta(1))]) == []
    assert state_of(store, one.id) in {JobState.PENDING, JobState.DEAD}
    assert state_of(store, two.id) is JobState.COMPLETED
