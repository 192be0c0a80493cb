"""F-44: a cancel at the same instant as a claim, a completion or a retry has one legal end."""

from __future__ import annotations

from tests.conformance.contenders import at_once
from tests.conformance.scene import AGAIN, DONE, put_one, settle, state_of, take
from tests.worker.stores import on_both
from windlass import connect
from windlass.errors import WrongState
from windlass.job import JobState
from windlass.outcome import Outcome

url = on_both
ROUNDS = 15


def test_a_cancel_and_a_claim(url: str) -> None:
    opened, other = (connect.open(url) for _ in range(2))
    for _ in range(ROUNDS):
        job = put_one(opened.store)
        acted, leases = at_once(lambda: opened.store.cancel(job.id), lambda: take(other.store))  # noqa: B023
        assert not isinstance(acted, Exception)
        assert isinstance(leases, list)
        if leases:
            settle(opened.store, leases[0], AGAIN)
        assert state_of(opened.store, job.id) is JobState.CANCELLED
    opened.close()
    other.close()


def test_a_cancel_and_a_completion_or_a_retry(url: str) -> None:
    opened, other = (connect.open(url) for _ in range(2))
    outcomes: list[Outcome] = [DONE, AGAIN]
    for outcome in outcomes * ROUNDS:
        job = put_one(opened.store)
        [lease] = take(opened.store)
        asked, settled = at_once(
            lambda: opened.store.cancel(job.id),  # noqa: B023
            lambda: settle(other.store, lease, outcome),  # noqa: B023
        )
        assert settled is True
        state = state_of(opened.store, job.id)
        if outcome is DONE:
            assert state is JobState.COMPLETED
        else:
            assert state is JobState.CANCELLED
        assert not isinstance(asked, Exception) or isinstance(asked, WrongState)
    opened.close()
    other.close()
