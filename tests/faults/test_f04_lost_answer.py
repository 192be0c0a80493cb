"""F-04: the network is cut at the moment of an answer. Is anything done twice, or not at all?"""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import pytest

from tests.faults.scene import CLAIM, COUNT, ENQUEUE, SETTLE, Yard
from tests.servers.proxy import Proxy, Where
from tests.waiting import until
from windlass.errors import StoreUnavailable
from windlass.job import JobState
from windlass.observe.ledger import Ledger
from windlass.store.engine import Want
from windlass.store.jobs import Filter


@pytest.mark.parametrize("where", Where)
def test_f04_a_settle_that_is_cut_off_is_repeated_and_nothing_runs_twice(
    yard: Yard, proxy: Proxy, where: Where
) -> None:
    [job_id] = yard.put(1)
    with proxy.failing(SETTLE, where) as point, yard.queue.worker() as worker:
        point.wait()
        yard.finish()
        assert worker.parts.settler.late == 0
    assert yard.ran == {0: 1}
    assert (yard.job(job_id).state, yard.job(job_id).attempts) == (JobState.COMPLETED, 1)


@pytest.mark.parametrize("where", [Where.BEFORE, Where.COMMITTED])
def test_f04_a_claim_that_is_cut_off_costs_no_attempt(yard: Yard, proxy: Proxy, where: Where) -> None:
    [job_id] = yard.put(1)
    with proxy.failing(CLAIM, where) as point, yard.queue.worker():
        point.wait()
        yard.finish()
    assert yard.ran == {0: 1}
    assert yard.job(job_id).attempts == 1


@pytest.mark.parametrize("where", Where)
def test_f04_an_enqueue_whose_answer_is_lost_makes_one_job_and_is_answered(
    yard: Yard, proxy: Proxy, where: Where
) -> None:
    yard.put(1)
    with proxy.failing(ENQUEUE, where) as point:
        handle = yard.work.enqueue(7)
        assert point.reached.is_set()
    assert handle.created is (where is not Where.COMMITTED)
    assert yard.left() == 2
    assert yard.job(handle.id).state is JobState.PENDING


@pytest.mark.parametrize("where", Where)
def test_f04_what_an_operator_asks_for_by_a_named_request_is_done_once_and_answered(
    yard: Yard, proxy: Proxy, where: Where
) -> None:
    [job_id] = yard.put(1)
    yard.store.bury(job_id)
    with proxy.failing("A dead job runs again", where) as point:
        acted = yard.store.replay(job_id, request_id="r1")
        assert point.reached.is_set()
    assert acted.state is JobState.PENDING
    assert yard.job(job_id).replay_count == 1


@pytest.mark.parametrize("where", Where)
def test_f04_a_claim_of_a_named_request_is_made_once_and_answered(
    yard: Yard, proxy: Proxy, where: Where
) -> None:
    yard.put(4)
    want = Want(worker="w", types={"work": 1}, limit=2, lease=timedelta(seconds=60), mark="0" * 16)
    yard.store.held_by("w")
    with proxy.failing(CLAIM, where) as point:
        claimed = yard.store.claim(want)
        assert point.reached.is_set()
    assert {lease.token for lease in claimed.leases} == {lease.token for lease in yard.store.held_by("w")}
    assert len(claimed.leases) == 2


def test_f04_callers_that_share_a_statement_are_each_answered_once(yard: Yard, proxy: Proxy) -> None:
    yard.put(1)
    made: list[str] = []
    with proxy.failing(ENQUEUE, Where.COMMITTED, times=2):
        callers = [
            threading.Thread(target=lambda number=number: made.append(yard.work.enqueue(number).id))
            for number in range(1, 13)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert len(set(made)) == 12
    assert yard.store.count(Filter(), limit=100) == 13


def test_f04_a_draft_that_failed_and_is_sent_again_runs_once_even_if_it_has_ended(
    yard: Yard, proxy: Proxy
) -> None:
    """Committed, the answer lost, every repeat cut off as well: the caller is told, and tries again."""
    draft = yard.work.draft(7)
    yard.put(1)
    with (
        proxy.failing(ENQUEUE, Where.COMMITTED),
        # As often as it is asked for.
        proxy.failing("Accept those jobs of which the id is not known", Where.BEFORE, times=4),
        pytest.raises(StoreUnavailable) as failure,
    ):
        yard.queue.enqueue_many([draft])
    assert failure.value.retryable
    with yard.queue.worker():
        until(lambda: yard.ran[7], "the job runs")
        yard.finish()
        [handle] = yard.queue.enqueue_many([draft])
        assert not handle.created
        yard.finish()
    assert yard.ran == {0: 1, 7: 1}


@pytest.mark.parametrize(
    ("marker", "where"),
    # Two statements in a transaction: the answer that counts is that of its commit.
    [(COUNT, Where.BEFORE), (COUNT, Where.EXECUTED), ("COMMIT", Where.COMMITTED)],
)
def test_f04_counts_whose_answer_is_lost_are_counted_once(
    yard: Yard, proxy: Proxy, marker: str, where: Where
) -> None:
    ledger = Ledger(yard.store, "1.0")
    ledger.count("renewed", 3)
    # Twice in a row, so that also the store's own repeat is cut off, and the ledger has to tell it again.
    with proxy.failing(marker, where, times=2) as point:
        with contextlib.suppress(StoreUnavailable):
            ledger.tick()
        assert point.reached.is_set()
        ledger.count("renewed", 4)
        until(lambda: _told(ledger))
    assert yard.store.totals()["", "renewed"] == 7


def _told(ledger: Ledger) -> bool:
    with contextlib.suppress(StoreUnavailable):
        ledger.tick()
        return True
    return False
