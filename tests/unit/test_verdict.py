"""Is each thing that can be wrong told from the others, by the facts alone?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from windlass.clock import uuid7
from windlass.job import Attempt, Error, Job, JobState, Reason
from windlass.ops.finding import Cause, in_a_line
from windlass.ops.overview import COLUMNS, FleetSummary, TypeStatus
from windlass.ops.verdict import Failures, Verdict, outage, verdict, worth_a_sample
from windlass.policy.limit import Limit, Rate
from windlass.policy.retry import Retry
from windlass.settings import Effective
from windlass.store.flow import Breaker, Pause

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FLEET = FleetSummary(alive=2, silent=0, slots=20, busy=3)
NOBODY = FleetSummary(alive=0, silent=0, slots=0, busy=0)
HOLDS = Effective(max_attempts=5, timeout=timedelta(minutes=5), retry=Retry())
REFUSED = Error(Reason.EXCEPTION, "ConnectionError", "crm: connection refused")
WRONG = Error(Reason.EXCEPTION, "ValueError", "no address\nat all")


def kind(name: str = "mail", *, waited: float | None = None, workers: int = 2, **fields: Any) -> TypeStatus:
    counts = {column: fields.pop(column, 0) for column in COLUMNS}
    oldest = None if waited is None else timedelta(seconds=waited)
    return TypeStatus(
        name=name,
        known=True,
        schema_version=1,
        options={},
        effective=HOLDS,
        counts=counts,
        oldest_due=oldest,
        workers=workers,
        **fields,
    )


def failed(error: Error, *, ago: float = 60, state: JobState = JobState.PENDING) -> Job:
    at = NOW - timedelta(seconds=ago)
    attempt = Attempt(1, 1, "w", at, at, "dead" if state is JobState.DEAD else "again", error=error)
    return Job(
        id=uuid7(),
        seq=1,
        type="mail",
        state=state,
        priority=5,
        payload=msgspec.Raw(b"{}"),
        max_attempts=5,
        attempts=1,
        created_at=at,
        enqueued_at=at,
        updated_at=at,
        run_at=at,
        finished_at=at if state is JobState.DEAD else None,
        error=error,
        history=(attempt,),
    )


def judge(*types: TypeStatus, fleet: FleetSummary = FLEET, **failures: Failures) -> Verdict:
    return verdict(NOW, types, fleet, failures)


def grave(told: Verdict) -> list[Cause]:
    return [each.cause for each in told.findings if each.grave]


def test_nothing_wrong_is_healthy() -> None:
    told = judge(kind(processing=3, due=4, waited=2.0))
    assert (told.state, told.since, told.findings) == ("healthy", None, ())
    assert told.sentence == "Healthy: 2 workers, 3 jobs running, nothing waits long"


def test_an_empty_store_without_workers_is_no_trouble() -> None:
    assert judge(fleet=NOBODY).state == "healthy"


def test_jobs_without_any_worker() -> None:
    told = judge(kind(due=3, waited=30.0, workers=0), fleet=NOBODY)
    assert grave(told) == [Cause.NO_WORKER]
    assert told.sentence == "No worker is running: 3 jobs wait"
    assert told.since == NOW - timedelta(seconds=30)


def test_a_type_that_no_worker_serves() -> None:
    told = judge(kind(due=1, waited=5.0, workers=0), kind("other", processing=1))
    assert grave(told) == [Cause.UNSERVED]
    assert "mail: 1 job waits" in told.sentence


def test_a_pause_is_trouble_only_when_jobs_wait_long_behind_it() -> None:
    pause = Pause(type="mail", by="ann", why="bounces", at=NOW - timedelta(hours=1))
    assert judge(kind(paused=pause)).state == "notice"
    told = judge(kind(due=25, waited=900.0, paused=pause))
    assert grave(told) == [Cause.PAUSED]
    assert told.sentence == "mail is paused by ann (bounces): 25 jobs wait"
    assert told.since == pause.at


def test_an_open_breaker_is_a_dependency_that_is_down() -> None:
    breaker = Breaker(name="mail", open=True, by_hand=False, at=NOW, by="", why="")
    told = judge(kind(due=5, waited=9.0, breaker=breaker), mail=Failures(retrying=[failed(REFUSED)]))
    assert grave(told) == [Cause.DEPENDENCY]
    assert "ConnectionError: crm: connection refused" in told.sentence
    by_hand = msgspec.structs.replace(breaker, by_hand=True, by="ann")
    assert grave(judge(kind(due=5, waited=90.0, breaker=by_hand))) == [Cause.PAUSED]


def test_errors_of_the_outside_are_an_outage_and_those_of_the_handler_are_not() -> None:
    outside = judge(kind(retrying=4), mail=Failures(retrying=[failed(REFUSED, ago=n) for n in (300, 20, 10)]))
    assert grave(outside) == [Cause.DEPENDENCY]
    assert outside.since == NOW - timedelta(seconds=300)
    deaths = [failed(WRONG, state=JobState.DEAD) for _ in range(4)]
    inside = judge(kind(dead=4), mail=Failures(dead=deaths))
    assert grave(inside) == [Cause.POISON]
    assert inside.sentence == (
        "Jobs of mail fail by themselves (ValueError: no address): 4 jobs died within 15 minutes"
    )


def test_bad_luck_and_old_deaths_are_no_trouble() -> None:
    assert judge(kind(retrying=2), mail=Failures(retrying=[failed(REFUSED)] * 2)).state == "healthy"
    old = [failed(WRONG, ago=86_400, state=JobState.DEAD) for _ in range(9)]
    told = judge(kind(dead=9), mail=Failures(dead=old))
    assert (told.state, [each.cause for each in told.findings]) == ("notice", [Cause.DEAD])


def test_dead_letters_of_all_types_are_one_finding() -> None:
    [alone] = judge(kind(dead=2)).findings
    assert (alone.sentence, alone.type, alone.mend) == (
        "2 dead letters of mail",
        "mail",
        "windlass dlq list --type mail",
    )
    [found] = judge(*(kind(f"t{number}", dead=number) for number in range(6))).findings
    assert found.sentence == "15 dead letters: 5 of t5, 4 of t4, 3 of t3, 2 more types"
    assert (found.type, found.mend) == (None, "windlass dlq list --group")


def test_a_finding_says_for_how_long_it_lasts_and_what_to_type() -> None:
    told = judge(kind(due=3, waited=30.0, workers=0), fleet=NOBODY)
    [line] = [in_a_line(each, NOW) for each in told.findings]
    assert line == "No worker is running: 3 jobs wait, for 30s: windlass worker start"


def test_a_few_failures_of_what_mostly_goes_well_wake_nobody() -> None:
    some = [failed(WRONG, ago=n) for n in range(20)]
    told = judge(kind(retrying=20, processing=9), mail=Failures(retrying=some, completed=160_000))
    assert (told.state, [each.cause for each in told.findings]) == ("notice", [Cause.POISON])
    # All of them fail since half a minute.
    told = judge(kind(retrying=8_000), mail=Failures(retrying=some, completed=160_000))
    assert grave(told) == [Cause.POISON]
    # And they do not hide what else is wrong with the type.
    slow = kind(retrying=20, due=9_000, waited=600.0, processing=2)
    assert grave(judge(slow, mail=Failures(retrying=some, completed=160_000))) == [Cause.TOO_FEW_WORKERS]


def test_workers_that_all_fell_silent_over_their_jobs_are_trouble() -> None:
    silent = FleetSummary(alive=0, silent=3, slots=0, busy=0)
    told = judge(kind(processing=12, workers=0), fleet=silent)
    assert grave(told) == [Cause.SILENT]
    assert judge(kind(workers=0), fleet=silent).state == "notice"
    assert judge(kind(processing=12), fleet=msgspec.structs.replace(FLEET, silent=1)).state == "notice"


def test_waiting_jobs_are_held_by_a_limit_or_by_too_few_workers_or_by_idle_ones() -> None:
    limited = kind(due=50, processing=2, waited=120.0, limit=Limit(concurrency=2))
    assert grave(judge(limited)) == [Cause.HELD]
    assert grave(judge(kind(due=50, processing=1, waited=120.0, limit=Limit(rate=Rate(1, 60))))) == [
        Cause.HELD
    ]
    roomy = kind(due=50, processing=2, waited=120.0, limit=Limit(concurrency=9))
    assert grave(judge(roomy)) == [Cause.TOO_FEW_WORKERS]
    assert grave(judge(kind(due=50, waited=120.0))) == [Cause.IDLE]


def test_a_burst_that_is_worked_off_is_a_backlog_and_no_trouble() -> None:
    told = judge(kind(due=5_000, processing=20, waited=12.0))
    assert (told.state, [each.cause for each in told.findings]) == ("notice", [Cause.BACKLOG])


def test_the_worst_speaks_for_all_and_says_how_many_more_there_are() -> None:
    pause = Pause(type="b", by="ann", why="", at=NOW)
    told = judge(
        kind("a", due=9, processing=1, waited=400.0),
        kind("b", due=9, waited=400.0, paused=pause),
        kind("c", retrying=9),
        c=Failures(retrying=[failed(REFUSED)] * 3),
    )
    assert grave(told) == [Cause.DEPENDENCY, Cause.PAUSED, Cause.TOO_FEW_WORKERS]
    assert told.sentence.endswith("(and 2 more)")


def test_only_the_worst_types_are_sampled() -> None:
    types = [kind(f"t{number}", dead=number) for number in range(9)]
    assert worth_a_sample(types) == ["t8", "t7", "t6", "t5", "t4"]
    assert worth_a_sample(types[:4]) == ["t3"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Error(Reason.TIMEOUT, None, "took longer than 5m"), True),
        (Error(Reason.EXCEPTION, "httpx.ConnectTimeout", ""), True),
        (Error(Reason.EXCEPTION, "HTTPError", "503 Service Unavailable"), True),
        (Error(Reason.EXCEPTION, "KeyError", "'address'"), False),
        (Error(Reason.CHILD_CRASHED, None, "killed by SIGSEGV"), False),
    ],
)
def test_what_looks_like_an_outage(error: Error, expected: bool) -> None:  # noqa: FBT001 - a parameter
    assert outage(error) is expected
