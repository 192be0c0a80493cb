"""Completions are written many at a time, and never so many that they fill the memory."""

from __future__ import annotations

import msgspec

from tests.unit.scene import THEN, running
from windlass.job import Attempt, Error, Lease, Reason
from windlass.outcome import Done
from windlass.store.engine import Settlement
from windlass.store.sqlite.hot import _stretches


def completions(count: int, failures: int) -> list[tuple[Settlement, Done]]:
    error = Error(Reason.EXCEPTION, "ValueError", "no", "x" * 8_000)
    failed = tuple(
        Attempt(number, number, "w", THEN, THEN, "retry", error=error) for number in range(failures)
    )
    job = msgspec.structs.replace(running("j"), history=failed)
    done = Done(None)
    return [(Settlement(Lease(job, str(number), "w", THEN), done), done) for number in range(count)]


def test_completions_that_leave_little_are_written_at_once() -> None:
    assert [len(each) for each in _stretches(completions(500, 0))] == [500]


def test_completions_after_many_failures_are_written_in_parts() -> None:
    done = completions(500, 19)
    parts = list(_stretches(done))
    assert [each for part in parts for each in part] == done
    assert (
        max(len(msgspec.json.encode([each.lease.job.history for each, _ in part])) for part in parts)
        < 3_000_000
    )
