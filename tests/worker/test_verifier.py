"""Do samples of completed jobs get checked, whatever the check does? Its ticks by hand, on a real store."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.waiting import PATIENCE
from tests.worker.scene import Still
from windlass.config import ring
from windlass.errors import InvalidValue
from windlass.job import Job
from windlass.policy import is_sampled, make_verify
from windlass.store.oncall import Verdicts
from windlass.worker.verifier import Verifier


class Mailbox:
    """What the outside world saw: the handler says that it sent, and did or did not."""

    def __init__(self) -> None:
        self.delivered: set[str] = set()
        self.broken = False
        self.asked = 0

    def send(self, to: str) -> str:
        """The handler."""
        if not self.broken:
            self.delivered.add(to)
        return f"sent to {to}"

    def arrived(self, to: str, job: Job, result: str) -> bool:
        """The check."""
        self.asked += 1
        assert job.type == "mail"
        assert result == f"sent to {to}"
        return to in self.delivered


def run(still: Still, to: str) -> Job:
    """Send one mail, from enqueue to settle."""
    [job] = still.put(job_type="mail", payload={"to": to})
    done = still.parts.settler.done
    still.parts.triggers.hint()
    still.parts.claimer.tick()
    still.until(still.parts.idle)
    still.settle()
    assert still.parts.settler.done == done + 1
    return job


def build(still: Still, verify: Callable[..., Any], **options: Any) -> Mailbox:
    mailbox: Mailbox = getattr(verify, "__self__", None) or Mailbox()
    still.handler(mailbox.send, "mail", **{"sample": 1, "verify": verify, **options})
    still.build()
    return mailbox


def verify_all(still: Still) -> None:
    """As the verifier's loop does, until nothing is due."""
    while still.parts.verifier.tick() is not None:
        pass


def verdict(still: Still) -> Verdicts:
    [found] = still.store.sight(timedelta(0)).verdicts
    return found


def test_a_job_that_says_completed_and_did_nothing_is_counted_and_named(
    still: Still, caplog: pytest.LogCaptureFixture
) -> None:
    mailbox = Mailbox()
    build(still, mailbox.arrived)
    run(still, "a@b.c")
    mailbox.broken = True
    wrong = run(still, "d@e.f")
    assert still.job(wrong).state == "completed"
    verify_all(still)
    assert mailbox.asked == 0
    still.clock.advance(60)
    with caplog.at_level(logging.WARNING, "windlass"):
        verify_all(still)
    found = verdict(still)
    assert (found.matched, found.mismatched, found.waiting) == (1, 1, 0)
    assert found.mismatch_job == wrong.id
    [record] = [each for each in caplog.records if each.getMessage() == "check.mismatched"]
    assert (vars(record)["job"], vars(record)["type"]) == (wrong.id, "mail")


def test_verify_after_says_when(still: Still) -> None:
    mailbox = Mailbox()
    build(still, mailbox.arrived, verify_after="10m")
    run(still, "a@b.c")
    still.clock.advance(599)
    verify_all(still)
    assert verdict(still).waiting == 1
    still.clock.advance(1)
    verify_all(still)
    assert verdict(still).matched == 1


def test_a_check_that_raises_is_made_again_and_given_up_in_the_end(still: Still) -> None:
    def away(to: str) -> bool:
        raise ConnectionError(to)

    build(still, away)
    run(still, "a@b.c")
    still.clock.advance(60)
    for _ in range(4):
        verify_all(still)
        assert verdict(still).waiting == 1
        still.clock.advance(60)
    verify_all(still)
    found = verdict(still)
    assert (found.matched, found.mismatched, found.unknown, found.waiting) == (0, 0, 1, 0)


def test_what_a_check_answers_must_be_a_verdict_and_an_assertion_is_one(still: Still) -> None:
    answers: list[Any] = [None]

    def odd(to: str) -> Any:
        assert answers[0] != "assert", "it is not there"
        return answers[0]

    build(still, odd)
    run(still, "a@b.c")
    still.clock.advance(60)
    verify_all(still)
    assert verdict(still).waiting == 1
    answers[0] = "assert"
    still.clock.advance(60)
    verify_all(still)
    assert verdict(still).mismatched == 1


def test_an_async_check_runs_on_the_loop_of_the_jobs(still: Still) -> None:
    async def arrived(to: str) -> bool:
        return to == "a@b.c"

    build(still, arrived)
    run(still, "a@b.c")
    run(still, "x@y.z")
    still.clock.advance(60)
    verify_all(still)
    found = verdict(still)
    assert (found.matched, found.mismatched) == (1, 1)


def impatient(still: Still, patience: float) -> Verifier:
    """A verifier that waits for so many seconds."""
    parts, loop = still.parts, still.parts.runner.coroutines
    return Verifier(still.store, parts.handlers, loop, ring, parts.ledger, patience=patience)


def test_a_check_that_does_not_end_holds_up_nobody_and_is_counted(
    still: Still, caplog: pytest.LogCaptureFixture
) -> None:
    ends, asked = threading.Event(), list[str]()

    def hang(job: Job) -> bool:
        asked.append(job.type)
        return ends.wait(PATIENCE) and job.type == "mail"

    still.handler(lambda: None, "mail", verify=hang, sample=1)
    still.handler(lambda: None, "post", verify=lambda: True, sample=1)
    still.build()

    def work(*types: str) -> None:
        for name in types:
            still.put(job_type=name)
        still.parts.triggers.hint()
        still.parts.claimer.tick()
        still.until(still.parts.idle)
        still.settle()
        still.pass_time(60)

    work("mail", "mail")
    verifier = impatient(still, 1.0)
    with caplog.at_level(logging.WARNING, "windlass"):
        verifier.tick()
    # One of its type hangs; the other one is not asked meanwhile, and other types are.
    verifier.patience = PATIENCE
    work("post")
    while verifier.tick() is not None:
        pass
    assert asked == ["mail"]
    found = {each.type: each for each in still.store.sight(timedelta(0)).verdicts}
    assert (found["mail"].waiting, found["post"].matched) == (2, 1)
    [record] = [each for each in caplog.records if each.getMessage() == "check.hung"]
    assert "in hang" in vars(record)["stack"]
    still.parts.ledger.tick()
    assert still.store.totals()["mail", "checks_hung"] == 1
    # When it has ended, its type is checked again.
    ends.set()
    still.clock.advance(60)

    def all_matched() -> bool:
        verifier.tick()
        return {each.type: each for each in still.store.sight(timedelta(0)).verdicts}["mail"].matched == 2

    still.until(all_matched)


def test_an_async_check_that_does_not_end_is_cancelled(still: Still) -> None:
    cancelled = threading.Event()

    async def hang() -> bool:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return True

    build(still, hang)
    run(still, "a@b.c")
    still.clock.advance(60)
    impatient(still, 1.0).tick()
    assert cancelled.wait(PATIENCE)
    assert verdict(still).waiting == 1


def test_a_verifier_that_was_killed_is_followed_by_the_next(still: Still) -> None:
    mailbox = Mailbox()
    build(still, mailbox.arrived)
    run(still, "a@b.c")
    still.clock.advance(60)
    # What a worker leaves behind that is killed between taking and telling.
    assert still.store.take_checks(["mail"], limit=1, again=timedelta(minutes=5))
    verify_all(still)
    assert verdict(still).waiting == 1
    still.clock.advance(timedelta(minutes=5))
    verify_all(still)
    assert verdict(still).matched == 1


def test_a_check_that_has_taken_five_workers_with_it_is_not_made_any_more(still: Still) -> None:
    mailbox = Mailbox()
    build(still, mailbox.arrived)
    run(still, "a@b.c")
    still.clock.advance(60)
    for _ in range(5):
        still.store.take_checks(["mail"], limit=1, again=timedelta(0))
    verify_all(still)
    assert (mailbox.asked, verdict(still).unknown) == (0, 1)


def test_one_is_taken_at_a_time_and_no_type_waits_for_all_of_another(still: Still) -> None:
    asked: list[str] = []

    def check(job: Job) -> bool:
        asked.append(job.type)
        # Whoever looks meanwhile finds the rest untaken.
        return len(still.store.take_checks(["mail", "post"], limit=9, again=timedelta(0))) == 4 - len(asked)

    for name in ("mail", "post"):
        still.handler(lambda: None, name, verify=check, sample=1)
    still.build(threads=4)
    for name in ("mail", "post"):
        still.put(2, job_type=name)
    still.parts.triggers.hint()
    still.parts.claimer.tick()
    still.until(still.parts.idle)
    still.settle()
    still.clock.advance(60)
    verify_all(still)
    assert asked == ["mail", "post", "mail", "post"]
    totals = still.store.totals()
    # Counted with the verdicts: who is killed after them has not forgotten any.
    assert [totals[name, "matched"] for name in ("mail", "post")] == [2, 2]


# --- which jobs ---------------------------------------------------------------------------------


def test_the_share_is_met_and_always_alike() -> None:
    verify = make_verify(lambda: True, 0.25, None, ())
    assert verify is not None
    ids = [f"0198-{number * 2654435761 % 2**32:08x}" for number in range(10_000)]
    chosen = [each for each in ids if is_sampled(each, verify.share)]
    assert 2_300 < len(chosen) < 2_700
    assert chosen == [each for each in ids if is_sampled(each, verify.share)]


def test_a_type_without_a_check_has_no_verifier(still: Still) -> None:
    still.build()
    assert not still.parts.verifier.wanted
    assert still.parts.verifier.loop not in (*still.parts.loops, *still.parts.reporting)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"sample": 0.5}, "sample"),
        ({"verify_after": "1m"}, "verify_after"),
        ({"verify": 5}, "verify"),
        ({"verify": bool, "sample": 0}, "sample"),
        ({"verify": lambda: True, "sample": 1.5}, "sample"),
        ({"verify": lambda: True, "verify_after": "8d"}, "verify_after"),
        ({"verify": lambda somebody: True}, "parameter somebody of verify"),
        ({"smoke": {"to": 5}}, "smoke"),
        ({"smoke": {"nobody": "x"}}, "smoke"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_said(
    still: Still, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        still.handler(Mailbox().send, "mail", **options)
    assert refused.value.field == field
