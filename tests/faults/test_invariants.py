"""Does the check that ends every test of a fault find what is wrong?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.conformance.scene import BOOM, DONE, put_one, settle, take
from tests.invariants import Watch, broken
from tests.worker.stores import on_both, sql
from windlass import connect
from windlass.outcome import Dead
from windlass.store.store import Store

url = on_both


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """One job that waits, one that runs, one that is dead and one that is completed."""
    with contextlib.closing(connect.open(url)) as opened:
        for outcome in (DONE, Dead(BOOM)):
            put_one(opened.store)
            assert settle(opened.store, take(opened.store)[0], outcome)
        put_one(opened.store)
        assert len(take(opened.store)) == 1
        put_one(opened.store)
        yield opened.store


def changed(url: str, text: str) -> None:
    sql(url, text if url.startswith("postgres") else text.replace("windlass.", "windlass_"))


def test_nothing_is_wrong_with_a_store_that_was_used_as_usual(store: Store) -> None:
    assert broken(store, [job.id for job in take(store, limit=10)]) == []


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        ("delete from windlass.jobs where state = 'pending'", "is missing"),
        ("update windlass.jobs set attempts = max_attempts + 1 where state = 'dead'", "was attempted"),
        ("update windlass.jobs set lease_until = 1 where state = 'processing'", "a lease that is over"),
        (
            "insert into windlass.history values ('ever', 0, 'mail.send', 'completed', 7)",
            "the counts say",
        ),
    ],
)
def test_what_is_wrong_is_found(store: Store, url: str, harm: str, found: str) -> None:
    acknowledged = put_one(store)
    changed(url, harm)
    problems = broken(store, [acknowledged.id])
    assert any(found in each for each in problems), problems


def test_what_was_acknowledged_while_a_test_ran_is_looked_for(url: str) -> None:
    watch = Watch()
    with watch.watching(), contextlib.closing(connect.open(url)) as opened:
        job = put_one(opened.store)
        assert watch.broken() == []
        changed(url, "delete from windlass.jobs")
        assert f"job {job.id} was acknowledged and is missing" in watch.broken()
