"""What does each result of an attempt amount to? The decision as a table."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from email.message import Message
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import Cancel, FatalError, InvalidValue, RetryableError, Snooze
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
from windlass.policy import Retry

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
    (Raised(RetryableError("x", delay=0)), PLAIN, {}, (Again, AT_ONCE, FAILED, None)),
    (Raised(RetryableError("x", delay=7)), PLAIN, {"attempts": 5}, (Dead, None, FAILED, None)),
    # A snooze uses no attempt, not even the last one, but there is an end to snoozing.
    (Raised(Snooze(90)), PLAIN, {"attempts": 5}, (Snoozed, timedelta(seconds=90), None, None)),
    (Raised(Snooze(0)), PLAIN, {}, (Snoozed, AT_ONCE, None, None)),
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


# --- rules that are a function, and what holds without rules --------------------------------------


def asked(rules: Any, exception: BaseException) -> Outcome:
    return decided(Raised(exception), Policy(PLAIN.retry, rules))


@pytest.mark.parametrize(
    ("answer", "expected"), [("retry", Again), ("fatal", Dead), ("cancel", Cancelled), (None, Again)]
)
def test_rules_may_be_a_function_of_the_exception(answer: Any, expected: type) -> None:
    seen: list[BaseException] = []

    def rules(exception: BaseException) -> Any:
        seen.append(exception)
        return answer

    error = ValueError("x")
    assert isinstance(asked(rules, error), expected)
    assert seen == [error]


def test_the_handlers_own_words_stand_above_a_function(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(asked(lambda _: "retry", FatalError("x")), Dead)
    assert not caplog.records


@pytest.mark.parametrize("answer", ["die", 5, True, ["retry"], object()])
def test_a_function_that_answers_nonsense_loses_no_job_and_is_logged(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(asked(lambda _: answer, ValueError("x")), Again)
    assert [record.message for record in caplog.records] == ["rules.wrong"]
    assert caplog.records[0].job == running().id  # type: ignore[attr-defined]


@pytest.mark.parametrize("raised", [ValueError("in the rules"), SystemExit(1), KeyboardInterrupt()])
def test_a_function_that_raises_loses_no_job_and_is_logged(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def rules(_: BaseException) -> Any:
        raise raised

    outcome = asked(rules, ValueError("x"))
    assert isinstance(outcome, Again)
    assert outcome.error.message == "x", "the job's own error is kept"
    assert [record.message for record in caplog.records] == ["rules.failed"]


class Response:
    def __init__(self, status_code: int, headers: dict[str, str] | None = None) -> None:
        self.status_code = status_code
        self.headers = headers or {}


class OfHttpx(Exception):
    """httpx.HTTPStatusError and requests.HTTPError: the response has the status."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"answered {status}")
        self.response = Response(status, headers)


class OfAiohttp(Exception):
    """aiohttp.ClientResponseError."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"answered {status}")
        self.status, self.headers = status, headers or {}


def of_urllib(status: int, headers: dict[str, str] | None = None) -> HTTPError:
    message = Message()
    for name, value in (headers or {}).items():
        message[name] = value
    return HTTPError("http://localhost/", status, "no", message, None)


HTTP = pytest.mark.parametrize("of", [OfHttpx, OfAiohttp, of_urllib])


@HTTP
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, Dead) for status in (400, 401, 403, 404, 409, 410, 422, 451)),
        *((status, Again) for status in (408, 425, 429, 500, 502, 503, 504, 599)),
    ],
)
def test_the_status_of_an_http_error_says_whether_another_attempt_can_help(
    of: Any, status: int, expected: type
) -> None:
    outcome = decided(Raised(of(status)))
    assert isinstance(outcome, expected)
    assert not isinstance(outcome, Dead) or outcome.fatal


@HTTP
@pytest.mark.parametrize(
    ("status", "said", "waits"),
    [
        (429, "120", 120),
        (503, "120", 120),
        (503, "0", None),
        (500, "120", None),
        (429, "864000", 3600),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        (429, "-5", None),
        (429, "9" * 30, None),
    ],
)
def test_a_server_that_says_when_to_come_back_is_obeyed_up_to_an_hour(
    of: Any, status: int, said: str, waits: int | None
) -> None:
    outcome = decided(Raised(of(status, {"Retry-After": said})))
    assert isinstance(outcome, Again)
    jitter = timedelta(seconds=10)
    assert outcome.delay == (BACKOFF if waits is None else timedelta(seconds=waits) + jitter)


def test_who_was_told_to_come_back_comes_with_a_jitter() -> None:
    told = Raised(OfHttpx(429, {"Retry-After": "600"}))
    outcome = decide(running(), told, PLAIN, now=NOW, chance=lambda: 0.5)
    assert isinstance(outcome, Again)
    assert outcome.delay == timedelta(seconds=600 + PLAIN.retry.jitter / 2)


def test_no_retry_policy_is_overruled_by_a_server() -> None:
    assert isinstance(decided(Raised(OfHttpx(429, {"Retry-After": "1"})), NEVER), Dead)


@pytest.mark.parametrize(
    "rules", [{OfHttpx: "retry", OSError: "retry"}, {Exception: "retry"}, lambda _: "retry"]
)
def test_a_types_rules_stand_above_the_defaults(rules: Any) -> None:
    assert isinstance(asked(rules, OfHttpx(404)), Again)
    assert isinstance(asked(rules, PermissionError("no")), Again)


def test_a_permission_error_is_fatal() -> None:
    assert isinstance(decided(Raised(PermissionError(13, "no"))), Dead)


class Coded(Exception):
    """Not about HTTP, though it has a code."""

    code = 404
    status = 404


class Booby(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("no such luck")


@pytest.mark.parametrize("exception", [Coded(), Booby(), SystemExit(404), OfHttpx(302), OSError(404, "x")])
def test_what_only_looks_like_an_http_error_is_retried(exception: BaseException) -> None:
    assert isinstance(decided(Raised(exception)), Again)


@pytest.mark.parametrize(
    ("exception", "seconds"),
    [
        (lambda: Snooze("10m"), 600),
        (lambda: Snooze(timedelta(minutes=1)), 60),
        (lambda: RetryableError("x", after="10m"), 600),
        (lambda: RetryableError("x", delay="1h30m"), 5400),
        (lambda: RetryableError("x", after=0.0), 0),
        (lambda: Snooze("366d"), 366 * 86_400),
    ],
)
def test_a_delay_is_written_as_every_duration(exception: Any, seconds: int) -> None:
    outcome = decided(Raised(exception()))
    assert isinstance(outcome, (Again, Snoozed))
    assert outcome.delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Snooze("tomorrow"), r"Snooze\(delay\) must be a duration: .*, got 'tomorrow'"),
        (lambda: Snooze(None), r"Snooze\(delay\) must be a duration: .*, got None"),  # type: ignore[arg-type]
        (lambda: Snooze(float("nan")), "must be a duration"),
        (lambda: RetryableError("x", after="soon"), r"RetryableError\(after=\) must be .*, got 'soon'"),
        (lambda: RetryableError("x", delay="soon"), r"RetryableError\(delay=\) must be .*, got 'soon'"),
        (lambda: RetryableError("x", delay=1, after=1), "delay must be left out when after is given"),
    ],
)
def test_a_delay_that_is_none_is_told_at_once_and_the_attempt_fails_as_any_other(
    make: Any, words: str
) -> None:
    with pytest.raises(InvalidValue, match=words) as raised:
        make()
    assert isinstance(decided(Raised(raised.value)), Again), "the next attempt may compute another delay"


@pytest.mark.parametrize(
    "delay",
    [-1, -1.0, "-1", "-1s", "-1h30m", timedelta(seconds=-1), "367d", 367 * 86_400, timedelta.max, "1000000d"],
)
@pytest.mark.parametrize(
    ("make", "field"),
    [
        (Snooze, r"Snooze\(delay\)"),
        (lambda delay: RetryableError("x", after=delay), r"RetryableError\(after=\)"),
        (lambda delay: RetryableError("x", delay=delay), r"RetryableError\(delay=\)"),
    ],
)
def test_a_delay_below_zero_or_beyond_a_year_is_refused_in_every_form(
    make: Any, field: str, delay: Any
) -> None:
    with pytest.raises(InvalidValue, match=f"{field} must be between 0s and 366d, got "):
        make(delay)


@pytest.mark.parametrize("delay", ["9999999999d", float("inf"), float("nan"), 1e300])
def test_a_delay_that_no_duration_can_hold_is_refused_with_the_bound(delay: Any) -> None:
    with pytest.raises(InvalidValue, match=r"Snooze\(delay\) must be a duration: .*, at most 366d, got "):
        Snooze(delay)


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


@pytest.mark.parametrize("exception", [Snooze(1), RetryableError("x", delay=1)])
def test_a_delay_that_a_handler_put_beyond_the_calendar_does_not_break_the_decision(
    exception: Snooze | RetryableError,
) -> None:
    exception.delay = timedelta.max
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


def exiting() -> BaseException:
    """An exception of which all that is read ends the program; not where pytest would look at its class."""

    class Nameless(type):
        def __getattribute__(cls, name: str) -> Any:
            raise SystemExit

    class Exits(Exception, metaclass=Nameless):
        def __str__(self) -> str:
            raise SystemExit

        def __getattribute__(self, name: str) -> Any:
            raise KeyboardInterrupt

    return Exits()


@pytest.mark.parametrize("rules", [{}, {ValueError: "fatal"}, str, sys.exit])
def test_an_exception_whose_words_end_the_program_is_recorded(rules: Any) -> None:
    try:
        raise exiting()  # noqa: TRY301 - as a handler does
    except Exception as error:  # noqa: BLE001 - its class is not one that can be named
        outcome = decided(Raised(error), Policy(rules=rules))
    assert isinstance(outcome, Again)
    assert outcome.error.kind == f"{__name__}.exiting.<locals>.Exits"
    assert outcome.error.message == "<its message could not be read: SystemExit>"
    assert "raise exiting()" in (outcome.error.traceback or "")


def test_a_class_without_a_module_is_recorded_by_its_name() -> None:
    lost = type("Lost", (ValueError,), {"__module__": None})
    outcome = decided(Raised(raised(lost("gone"))), Policy(rules={ValueError: "fatal"}))
    assert isinstance(outcome, Dead)
    assert (outcome.error.kind, outcome.error.message) == ("Lost", "gone")


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


class _Answered(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("the service answered")
        self.status = status


class _CrmDown(ConnectionError):
    """A class of the application's own."""


@pytest.mark.parametrize(
    ("exception", "outside"),
    [
        (_CrmDown("no"), True),
        (TimeoutError(), True),
        (_Answered(503), True),
        (_Answered(404), False),
        (FileNotFoundError("x"), False),
        (TypeError("connection timed out"), False),
    ],
)
def test_an_error_says_by_its_class_whether_something_outside_failed(
    exception: Exception,
    outside: bool,  # noqa: FBT001 - a parameter
) -> None:
    assert describe(exception).outside is outside


def test_the_error_of_a_fatal_end_says_that_it_was_fatal() -> None:
    by_rule = Policy(rules={KeyError: "fatal"})
    for exception, policy in ((FatalError("no"), Policy()), (KeyError("no"), by_rule)):
        outcome = decide(running(), Raised(exception), policy, now=NOW, chance=lambda: 0.5)
        assert isinstance(outcome, Dead)
        assert outcome.error.fatal
