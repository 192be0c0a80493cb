"""What does each result of an attempt amount to? The decision as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import Cancel, FatalError, RetryableError, Snooze
from windlass.job import FREE_INTERRUPTIONS, MAX_SNOOZES, Error, Job, JobState, Output, Reason, Request
from windlass.outcome import (
    Again,
    Cancelled,
    Dead,
    Done,
    Interrupted,
    Lost,
    Outcome,
    Overdue,
    Policy,
    Raised,
    Rejected,
    Released,
    Result,
    Returned,
    Snoozed,
    Stopped,
    TimedOut,
    Unstarted,
    clean,
    clean_end,
    decide,
    describe,
    is_overdue,
)
from windlass.policy.retry import Retry

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
AT_ONCE = timedelta(0)
BACKOFF = timedelta(seconds=70)
PLAIN = Policy(Retry(kind="fixed", base=60, jitter=20))
NEVER = Policy(Retry(kind="never"))
AGED = Policy(Retry(kind="fixed", base=60, jitter=20), max_age=timedelta(minutes=10))
SAID = Output(exit_code=3, stdout="out", stderr="err")


def running(**changes: object) -> Job:
    """A job in its second attempt of five, enqueued five minutes ago."""
    job = Job(
        id="0198c0de-0000-7000-8000-000000000001",
        seq=41,
        type="mail.send",
        state=JobState.PROCESSING,
        priority=6,
        payload=msgspec.Raw(b"{}"),
        max_attempts=5,
        attempts=2,
        claims=9,
        created_at=NOW - timedelta(minutes=60),
        enqueued_at=NOW - timedelta(minutes=5),
        updated_at=NOW - timedelta(minutes=4),
        run_at=NOW - timedelta(minutes=3),
        started_at=NOW - timedelta(minutes=2),
    )
    return msgspec.structs.replace(job, **changes)


def decided(result: Result, policy: Policy = PLAIN, **changes: object) -> Outcome:
    """The decision on a running job, with a chance of one half."""
    return decide(running(**changes), result, policy, now=NOW, chance=lambda: 0.5)


def told(outcome: Outcome) -> tuple[object, ...]:
    """An outcome in short: its kind, its delay, its reason, and the reason above it."""
    error = getattr(outcome, "error", None)
    why = getattr(outcome, "why", None)
    return (
        type(outcome),
        getattr(outcome, "delay", None),
        error.reason if error else None,
        why.reason if why else None,
    )


FAILED = Reason.EXCEPTION
LEASE = Reason.LEASE_EXPIRED
LOST_WORKER = Lost(Reason.WORKER_LOST)
LOST_LEASE = Lost(Reason.LEASE_EXPIRED)
BROKEN = Raised(KeyError("broken"))
LATE = TimedOut(timedelta(seconds=30))

TABLE: list[tuple[Result, Policy, dict[str, object], tuple[object, ...]]] = [
    # A return is done, whatever the counters and the policy say.
    (Returned(b"1"), PLAIN, {}, (Done, None, None, None)),
    (Returned(None), NEVER, {"attempts": 5}, (Done, None, None, None)),
    (Returned(b"1"), AGED, {"enqueued_at": NOW - timedelta(days=9)}, (Done, None, None, None)),
    # An exception or a timeout waits for the type's backoff while attempts are left.
    (BROKEN, PLAIN, {"attempts": 1}, (Again, BACKOFF, FAILED, None)),
    (BROKEN, PLAIN, {"attempts": 4}, (Again, BACKOFF, FAILED, None)),
    (BROKEN, PLAIN, {"attempts": 5}, (Dead, None, FAILED, None)),
    (BROKEN, PLAIN, {"attempts": 1, "max_attempts": 1}, (Dead, None, FAILED, None)),
    (BROKEN, NEVER, {"attempts": 1}, (Dead, None, FAILED, None)),
    (LATE, PLAIN, {"attempts": 4}, (Again, BACKOFF, Reason.TIMEOUT, None)),
    (LATE, PLAIN, {"attempts": 5}, (Dead, None, Reason.TIMEOUT, None)),
    (LATE, NEVER, {"attempts": 1}, (Dead, None, Reason.TIMEOUT, None)),
    # An attempt lost with its worker is tried again at once, also by a type that never retries; it counts.
    (LOST_WORKER, PLAIN, {"attempts": 1}, (Again, AT_ONCE, Reason.WORKER_LOST, None)),
    (LOST_WORKER, NEVER, {"attempts": 1}, (Again, AT_ONCE, Reason.WORKER_LOST, None)),
    (LOST_WORKER, PLAIN, {"attempts": 5}, (Dead, None, Reason.WORKER_LOST, None)),
    (LOST_LEASE, PLAIN, {"attempts": 4}, (Again, AT_ONCE, Reason.LEASE_EXPIRED, None)),
    (LOST_LEASE, PLAIN, {"attempts": 5}, (Dead, None, Reason.LEASE_EXPIRED, None)),
    # Our own shutdown is free nine times; then it costs an attempt, and the last one ends the job.
    (Interrupted(), PLAIN, {}, (Released, None, Reason.INTERRUPTED, None)),
    (Interrupted(), NEVER, {"attempts": 5}, (Released, None, Reason.INTERRUPTED, None)),
    (Interrupted(), PLAIN, {"interruptions": 8}, (Released, None, Reason.INTERRUPTED, None)),
    (Interrupted(), PLAIN, {"interruptions": 9}, (Again, AT_ONCE, Reason.INTERRUPTED, None)),
    (Interrupted(), PLAIN, {"interruptions": 30, "attempts": 4}, (Again, AT_ONCE, Reason.INTERRUPTED, None)),
    (Interrupted(), PLAIN, {"interruptions": 9, "attempts": 5}, (Dead, None, Reason.INTERRUPTED, None)),
    # What never started is given back without a word.
    (Unstarted(), PLAIN, {"attempts": 5}, (Released, None, None, None)),
    (Unstarted(), NEVER, {"interruptions": 99}, (Released, None, None, None)),
    # An operator's request is carried out.
    (Stopped(Request.CANCEL), PLAIN, {}, (Cancelled, None, Reason.CANCELLED, None)),
    (Stopped(Request.BURY), PLAIN, {}, (Dead, None, Reason.CANCELLED, None)),
    # No attempt helps a job that is too old, or a payload that does not fit.
    (Overdue(), AGED, {"attempts": 1}, (Dead, None, Reason.EXPIRED, None)),
    (Rejected("no field 'to'"), PLAIN, {"attempts": 1}, (Dead, None, Reason.INVALID_PAYLOAD, None)),
    # The handler's own words.
    (Raised(FatalError("no")), PLAIN, {"attempts": 1}, (Dead, None, FAILED, None)),
    (Raised(Cancel("no longer")), PLAIN, {"attempts": 1}, (Cancelled, None, FAILED, None)),
    (Raised(RetryableError("later")), PLAIN, {}, (Again, BACKOFF, FAILED, None)),
    (Raised(RetryableError("later")), NEVER, {}, (Dead, None, FAILED, None)),
    (Raised(RetryableError("x", delay=7)), PLAIN, {}, (Again, timedelta(seconds=7), FAILED, None)),
    (Raised(RetryableError("x", delay=-7)), PLAIN, {}, (Again, AT_ONCE, FAILED, None)),
    (Raised(RetryableError("x", delay=7)), PLAIN, {"attempts": 5}, (Dead, None, FAILED, None)),
    # A snooze uses no attempt, not even the last one, but there is an end to snoozing.
    (Raised(Snooze(90)), PLAIN, {"attempts": 5}, (Snoozed, timedelta(seconds=90), None, None)),
    (Raised(Snooze(-1)), PLAIN, {}, (Snoozed, AT_ONCE, None, None)),
    (Raised(Snooze(90)), NEVER, {"snoozes": 999}, (Snoozed, timedelta(seconds=90), None, None)),
    (Raised(Snooze(90)), PLAIN, {"snoozes": 1000}, (Dead, None, FAILED, None)),
    # Retries are bounded by age as well: one that would come too late is not planned.
    (BROKEN, AGED, {"enqueued_at": NOW - timedelta(seconds=530)}, (Again, BACKOFF, FAILED, None)),
    (BROKEN, AGED, {"enqueued_at": NOW - timedelta(seconds=531)}, (Dead, None, FAILED, Reason.EXPIRED)),
    (
        LOST_WORKER,
        AGED,
        {"enqueued_at": NOW - timedelta(seconds=600)},
        (Again, AT_ONCE, Reason.WORKER_LOST, None),
    ),
    (
        LOST_WORKER,
        AGED,
        {"enqueued_at": NOW - timedelta(seconds=601)},
        (Dead, None, Reason.WORKER_LOST, Reason.EXPIRED),
    ),
]


@pytest.mark.parametrize(("result", "policy", "changes", "expected"), TABLE)
def test_a_result_amounts_to(
    result: Result, policy: Policy, changes: dict[str, object], expected: tuple[object, ...]
) -> None:
    assert told(decided(result, policy, **changes)) == expected


def test_the_limits_of_the_table_are_the_promised_ones() -> None:
    assert (FREE_INTERRUPTIONS, MAX_SNOOZES) == (9, 1000)


RESULTS: list[Result] = [
    Returned(b"1"),
    BROKEN,
    Raised(RetryableError("x", delay=1)),
    Raised(Snooze(1)),
    LATE,
    LOST_WORKER,
    LOST_LEASE,
    Interrupted(),
    Stopped(Request.CANCEL),
    Stopped(Request.BURY),
    Unstarted(),
    Overdue(),
    Rejected("no"),
]


@given(
    result=st.sampled_from(RESULTS),
    policy=st.sampled_from([PLAIN, NEVER, AGED]),
    max_attempts=st.integers(1, 20),
    spare=st.integers(0, 19),
    interruptions=st.integers(0, 20),
    snoozes=st.integers(0, 1001),
    age=st.timedeltas(timedelta(0), timedelta(days=2)),
)
def test_a_job_without_attempts_left_is_never_tried_again_at_its_own_cost(
    result: Result,
    policy: Policy,
    max_attempts: int,
    spare: int,
    interruptions: int,
    snoozes: int,
    age: timedelta,
) -> None:
    attempts = max(1, max_attempts - spare)
    outcome = decided(
        result,
        policy,
        attempts=attempts,
        max_attempts=max_attempts,
        interruptions=interruptions,
        snoozes=snoozes,
        enqueued_at=NOW - age,
    )
    if isinstance(outcome, Again):
        assert attempts < max_attempts
        assert outcome.delay >= AT_ONCE
    if isinstance(outcome, Released) and outcome.error is not None:
        assert interruptions < FREE_INTERRUPTIONS
    if isinstance(outcome, Snoozed):
        assert snoozes < MAX_SNOOZES


class Timeout(ConnectionError):
    """A class with a rule of its own below one with another."""


RULES = Policy(
    PLAIN.retry, rules={ConnectionError: "retry", Timeout: "fatal", LookupError: "cancel", OSError: "fatal"}
)


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        (ConnectionError("a"), Again),
        (ConnectionResetError("nearest is ConnectionError"), Again),
        (Timeout("own rule"), Dead),
        (PermissionError("an OSError"), Dead),
        (KeyError("a LookupError"), Cancelled),
        (ValueError("no rule: retryable"), Again),
        (RecursionError("no rule: retryable"), Again),
        (SystemExit(3), Again),
        (KeyboardInterrupt(), Again),
    ],
)
def test_the_rule_of_the_nearest_class_decides(exception: BaseException, expected: type) -> None:
    assert isinstance(decided(Raised(exception), RULES), expected)


@pytest.mark.parametrize(
    ("exception", "expected"),
    [(FatalError("x"), Dead), (RetryableError("x"), Again), (Cancel("x"), Cancelled), (Snooze(1), Snoozed)],
)
def test_the_handlers_own_words_stand_above_the_types_rules(exception: BaseException, expected: type) -> None:
    policy = Policy(PLAIN.retry, rules={FatalError: "retry", RetryableError: "fatal", Exception: "cancel"})
    assert isinstance(decided(Raised(exception), policy), expected)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Returned(b"1", SAID), Done),
        (Raised(KeyError(), SAID), Again),
        (Raised(FatalError(), SAID), Dead),
        (Raised(Cancel(), SAID), Cancelled),
        (TimedOut(timedelta(1), SAID), Again),
        (Interrupted(SAID), Released),
        (Stopped(Request.CANCEL, SAID), Cancelled),
        (Stopped(Request.BURY, SAID), Dead),
    ],
)
def test_what_a_command_said_is_never_dropped(result: Result, expected: type) -> None:
    outcome = decided(result)
    assert isinstance(outcome, expected)
    assert getattr(outcome, "output", None) == SAID


@pytest.mark.parametrize("exception", [Snooze(1e12), RetryableError("x", delay=1e12)])
def test_a_delay_beyond_the_calendar_does_not_break_the_decision(exception: BaseException) -> None:
    outcome = decided(Raised(exception))
    assert isinstance(outcome, (Again, Snoozed))
    assert NOW + outcome.delay > NOW


def test_the_jitter_comes_from_the_given_chance() -> None:
    asked: list[None] = []

    def chance() -> float:
        asked.append(None)
        return 0.25

    outcome = decide(running(), BROKEN, PLAIN, now=NOW, chance=chance)
    assert isinstance(outcome, Again)
    assert outcome.delay == timedelta(seconds=65)
    assert len(asked) == 1


def test_the_backoff_follows_the_number_of_the_attempt() -> None:
    policy = Policy(Retry(jitter=0))
    delays = [
        outcome.delay.total_seconds()
        for attempt in range(1, 10)
        if isinstance(outcome := decided(BROKEN, policy, attempts=attempt, max_attempts=20), Again)
    ]
    assert delays == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_age_counts_from_the_last_enqueue() -> None:
    limit = timedelta(minutes=10)
    assert not is_overdue(running(enqueued_at=NOW - limit), AGED, NOW)
    assert is_overdue(running(enqueued_at=NOW - limit - timedelta(microseconds=1)), AGED, NOW)
    assert not is_overdue(running(enqueued_at=NOW - timedelta(days=400)), PLAIN, NOW)


# --- telling of errors --------------------------------------------------------------------------


def raised(exception: BaseException) -> BaseException:
    with pytest.raises(type(exception)) as caught:
        raise exception
    return caught.value


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Wordless(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value] # noqa: PLE0307 - what careless code does


def test_an_exception_is_told_with_class_message_and_traceback() -> None:
    error = describe(raised(ValueError("not a number")))
    assert (error.reason, error.kind, error.message) == (Reason.EXCEPTION, "ValueError", "not a number")
    assert error.traceback is not None
    assert "in raised" in error.traceback


def test_a_class_of_a_module_is_told_with_its_module() -> None:
    assert describe(Unprintable()).kind == f"{__name__}.Unprintable"


@pytest.mark.parametrize("exception", [Unprintable(), Wordless()])
def test_an_exception_that_cannot_be_printed_is_still_told(exception: Exception) -> None:
    error = describe(raised(exception))
    assert error.message
    assert error.traceback
    assert "in raised" in error.traceback


@given(st.text(st.characters(), max_size=400), st.integers(1, 300))
def test_cleaned_text_can_be_stored_anywhere(text: str, limit: int) -> None:
    for cleaned in (clean(text, limit), clean_end(text, limit)):
        assert "\0" not in cleaned
        cleaned.encode("utf-8")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300))
def test_short_clean_text_stays_as_it_is(text: str) -> None:
    assert clean(text, 300) == text
    assert clean_end(text, 300) == text


def test_of_a_long_text_the_start_is_kept_or_the_end() -> None:
    text = "start" + "x" * 100 + "end"
    assert clean(text, 10).startswith("startxxxxx…")
    assert clean_end(text, 10).endswith("…xxxxxxxend")
    assert "98" in clean(text, 10)
    assert "98" in clean_end(text, 10)


def test_an_error_fits_a_record_however_long_its_text() -> None:
    error = describe(raised(ValueError("y" * 1_000_000 + "\0")))
    assert len(msgspec.json.encode(error)) < 20_000


def test_an_error_survives_its_way_through_json() -> None:
    error = describe(raised(ValueError("half a character \ud83d and a NUL \0")))
    assert msgspec.json.decode(msgspec.json.encode(error), type=Error) == error
