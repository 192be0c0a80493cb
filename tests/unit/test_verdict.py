"""Is each thing that can be wrong told from the others, by the facts alone?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from windlass.clock import uuid7
from windlass.job import Attempt, Error, Job, JobState, Reason
from windlass.ops.overview import COLUMNS, FleetSummary, TooNew, TypeStatus
from windlass.ops.verdict import Cause, Failures, Verdict, in_a_line, outage, verdict, worth_a_sample
from windlass.policy import Limit, Rate, Retry
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


def test_jobs_of_a_version_that_no_worker_takes() -> None:
    newer = TooNew(count=2, version=3, newest=2, oldest=timedelta(seconds=70))
    told = judge(kind(due=2, waited=70.0, too_new=newer))
    assert grave(told) == [Cause.VERSION]
    assert told.sentence == "No running worker takes version 3 of mail, only versions up to 2: 2 jobs wait"
    both = judge(kind(due=3, waited=70.0, too_new=newer))
    assert grave(both) == [Cause.VERSION, Cause.IDLE]


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
        "Jobs of mail keep failing (ValueError: no address): 4 jobs died within 15 minutes"
    )


def test_an_open_breaker_over_a_bug_in_the_handler_is_no_outage() -> None:
    breaker = Breaker(name="mail", open=True, by_hand=False, at=NOW, by="", why="")
    broken = Error(Reason.EXCEPTION, "TypeError", "unsupported operand: connection timed out")
    told = judge(kind(due=5, waited=9.0, dead=2, breaker=breaker), mail=Failures(due=[failed(broken)]))
    assert grave(told) == [Cause.POISON]
    assert told.sentence == (
        "Jobs of mail keep failing (TypeError: unsupported operand: connection timed out); "
        "its circuit breaker is open: 5 jobs wait"
    )
    assert told.findings[0].fix == "windlass dlq list --type mail"
    # Nobody knows why: that is no outage either.
    assert grave(judge(kind(due=5, breaker=breaker))) == [Cause.POISON]


def test_an_open_breaker_over_words_alone_only_seems_to_be_an_outage() -> None:
    breaker = Breaker(name="mail", open=True, by_hand=False, at=NOW, by="", why="")
    said = Error(Reason.EXCEPTION, "app.CrmError", "the CRM is unavailable")
    told = judge(kind(due=5, breaker=breaker), mail=Failures(retrying=[failed(said)]))
    assert grave(told) == [Cause.DEPENDENCY]
    assert told.sentence.startswith("A dependency of mail seems to be down (CrmError: the CRM is")


def test_handlers_that_run_into_their_own_timeout_are_no_outage() -> None:
    stuck = Error(Reason.TIMEOUT, message="took longer than 5s")
    told = judge(kind("never", retrying=3), never=Failures(retrying=[failed(stuck)] * 3))
    assert grave(told) == [Cause.POISON]
    assert told.sentence == "Jobs of never keep failing (timeout: took longer than 5s): 3 jobs failed"


def test_what_somebody_buried_has_not_failed() -> None:
    buried = Error(Reason.CANCELLED, message="moved to the dead letters by hand")
    told = judge(kind(dead=7), mail=Failures(dead=[failed(buried, ago=5, state=JobState.DEAD)] * 7))
    assert (told.state, [each.cause for each in told.findings]) == ("notice", [Cause.DEAD])


def test_fatal_errors_are_no_outage_whatever_they_say() -> None:
    fatal = Error(Reason.EXCEPTION, "windlass.errors.FatalError", "550 mailbox unavailable")
    by_rule = Error(Reason.EXCEPTION, "ConnectionError", "refused", fatal=True, outside=True)
    for error in (fatal, by_rule):
        deaths = [failed(error, state=JobState.DEAD) for _ in range(4)]
        assert grave(judge(kind(dead=4), mail=Failures(dead=deaths))) == [Cause.POISON]


def test_a_finding_about_failures_ends_when_nothing_fails_any_more() -> None:
    def after(seconds: float, error: Error, **counts: Any) -> list[Cause]:
        dead = [failed(error, ago=seconds, state=JobState.DEAD) for _ in range(4)]
        return grave(judge(kind(dead=4, **counts), mail=Failures(dead=dead)))

    assert after(110, REFUSED) == [Cause.DEPENDENCY]
    assert after(110, WRONG) == [Cause.POISON]
    assert after(130, REFUSED) == []
    assert after(130, WRONG) == []
    # Some of them are still to be tried again.
    assert after(130, REFUSED, retrying=2) == [Cause.DEPENDENCY]


def test_the_command_of_a_finding_never_lists_nothing() -> None:
    dead = [failed(REFUSED, state=JobState.DEAD) for _ in range(4)]
    retrying = [failed(WRONG) for _ in range(4)]
    [outage_over_dead, _] = judge(kind(dead=4), mail=Failures(dead=dead)).findings
    assert outage_over_dead.fix == "windlass dlq list --type mail"
    [bug_that_retries] = judge(kind(retrying=4), mail=Failures(retrying=retrying)).findings
    assert bug_that_retries.fix == "windlass list --state retrying --type mail"


def test_bad_luck_and_old_deaths_are_no_trouble() -> None:
    assert judge(kind(retrying=2), mail=Failures(retrying=[failed(REFUSED)] * 2)).state == "healthy"
    old = [failed(WRONG, ago=86_400, state=JobState.DEAD) for _ in range(9)]
    told = judge(kind(dead=9), mail=Failures(dead=old))
    assert (told.state, [each.cause for each in told.findings]) == ("notice", [Cause.DEAD])


def test_dead_letters_of_all_types_are_one_finding() -> None:
    [alone] = judge(kind(dead=2)).findings
    assert (alone.sentence, alone.type, alone.fix) == (
        "2 dead letters of mail",
        "mail",
        "windlass dlq list --type mail",
    )
    [found] = judge(*(kind(f"t{number}", dead=number) for number in range(6))).findings
    assert found.sentence == "15 dead letters: 5 of t5, 4 of t4, 3 of t3, 2 more types"
    assert (found.type, found.fix) == (None, "windlass dlq list --group")


def test_a_finding_says_for_how_long_it_lasts_and_what_to_type() -> None:
    told = judge(kind(due=3, waited=30.0, workers=0), fleet=NOBODY)
    [line] = [in_a_line(each, NOW) for each in told.findings]
    assert line == "No worker is running: 3 jobs wait, for 30s: windlass worker start APP"


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


def test_a_worker_that_died_is_told_of_though_the_queue_is_empty() -> None:
    told = judge(kind(workers=0), fleet=msgspec.structs.replace(NOBODY, missing=1))
    assert grave(told) == [Cause.MISSING]
    assert told.sentence == "1 worker died and no other has started in its place"
    assert told.findings[0].fix == "windlass worker start APP"
    assert judge(kind(), fleet=msgspec.structs.replace(FLEET, missing=2)).state == "notice"


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
    # One whose breaker is open: its failed jobs may all be due again.
    breaker = Breaker(name="t0", open=True, by_hand=False, at=NOW, by="", why="")
    assert worth_a_sample([kind("t0", due=1, breaker=breaker), *types])[0] == "t0"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        # The handler may be stuck on a lock of its own.
        (Error(Reason.TIMEOUT, None, "took longer than 5m"), False),
        (Error(Reason.EXCEPTION, "httpx.ConnectTimeout", ""), True),
        (Error(Reason.EXCEPTION, "HTTPError", "503 Service Unavailable"), True),
        (Error(Reason.EXCEPTION, "KeyError", "'address'"), False),
        (Error(Reason.EXCEPTION, "psycopg.OperationalError", "could not connect: connection refused"), True),
        (Error(Reason.EXCEPTION, "app.CrmDown", "", outside=True), True),
        (Error(Reason.EXCEPTION, "FileNotFoundError", "no such file"), False),
        (Error(Reason.EXCEPTION, "windlass.errors.InvalidValue", "of must be whole; timed out"), False),
        (Error(Reason.CHILD_CRASHED, None, "killed by SIGSEGV"), False),
    ],
)
def test_what_looks_like_an_outage(error: Error, expected: bool) -> None:  # noqa: FBT001 - a parameter
    assert outage(error) is expected
