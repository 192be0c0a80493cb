"""What a handler learns about its job."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.waiting import PATIENCE
from windlass.clock import ManualClock
from windlass.context import Context, Notice
from windlass.job import Job, JobState

THEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def a_job(**fields: object) -> Job:
    return Job(
        **{
            "id": "0192",
            "seq": 7,
            "type": "send_email",
            "state": JobState.PROCESSING,
            "priority": 5,
            "payload": msgspec.Raw(b"{}"),
            "max_attempts": 4,
            "attempts": 2,
            "claims": 9,
            "tenant": "acme",
            "traceparent": "00-aa-bb-01",
            "created_at": THEN,
            "enqueued_at": THEN,
            "updated_at": THEN,
            "run_at": THEN,
            **fields,
        }  # type: ignore[arg-type]
    )


def a_context(
    job: Job | None = None, notice: Notice | None = None, clock: ManualClock | None = None
) -> Context:
    return Context(
        job or a_job(),
        notice or Notice(),
        deadline=THEN + timedelta(seconds=30),
        ends=30.0,
        clock=clock or ManualClock(),
    )


def test_a_context_tells_the_jobs_own_facts() -> None:
    ctx = a_context()
    assert (ctx.id, ctx.type, ctx.tenant, ctx.traceparent) == ("0192", "send_email", "acme", "00-aa-bb-01")
    assert (ctx.attempt, ctx.max_attempts, ctx.fence) == (2, 4, 9)
    assert ctx.deadline == THEN + timedelta(seconds=30)
    assert not ctx.cancelled
    assert not ctx.lease_lost


@pytest.mark.parametrize(("key", "expected"), [("order:1", "order:1"), (None, "0192")])
def test_the_key_for_outside_systems_is_the_jobs_key_or_else_its_id(key: str | None, expected: str) -> None:
    assert a_context(a_job(key=key)).key == expected


def test_the_time_left_runs_down_to_zero_and_not_below() -> None:
    clock = ManualClock()
    ctx = a_context(clock=clock)
    clock.advance(12.5)
    assert ctx.time_left() == 17.5
    clock.advance(60)
    assert ctx.time_left() == 0.0


def test_a_notice_to_stop_is_seen_and_ends_the_wait() -> None:
    notice = Notice()
    ctx = a_context(notice=notice)
    assert ctx.wait_cancelled(0.001) is False
    seen: list[bool] = []
    waiter = threading.Thread(target=lambda: seen.append(ctx.wait_cancelled(timedelta(seconds=PATIENCE))))
    waiter.start()
    notice.give()
    waiter.join(PATIENCE)
    assert seen == [True]
    assert ctx.cancelled
    assert not ctx.lease_lost


def test_a_wait_that_begins_after_the_notice_ends_at_once() -> None:
    notice = Notice()
    notice.give()
    assert a_context(notice=notice).wait_cancelled() is True


def test_a_lost_lease_is_also_a_notice_to_stop() -> None:
    notice = Notice()
    notice.lose()
    ctx = a_context(notice=notice)
    assert ctx.lease_lost
    assert ctx.cancelled


def test_what_the_handler_logs_carries_the_jobs_fields_and_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "windlass.job"):
        a_context().log.info("mail.sent", extra={"to": "a@b.c"})
    [record] = [each for each in caplog.records if each.name == "windlass.job"]
    fields = [record.__dict__[name] for name in ("job", "type", "attempt", "to")]
    assert fields == ["0192", "send_email", 2, "a@b.c"]
