"""A forgotten transaction keeps dead rows from being cleaned up: who is named, and what do claims do?"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.conformance.scene import GIVEN_BACK, a_job, ids, put, settle, take
from tests.servers import postgres
from windlass.clock import ManualClock
from windlass.store.postgres import claim, health
from windlass.store.postgres.claim import Floors
from windlass.store.postgres.store import PostgresStore

MAJOR = 15
MAIL = ("mail.send",)


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.fresh(MAJOR) as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(url)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "statement",
    ["select 1 from windlass.jobs", "select pg_current_xact_id()"],
    ids=["with a snapshot", "having written"],
)
def test_the_status_names_whoever_keeps_a_transaction_open(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(health, "_LONG_SECONDS", 0)
    level = psycopg.IsolationLevel.REPEATABLE_READ
    with psycopg.connect(url, application_name="forgotten report") as holder:
        holder.isolation_level = level if "jobs" in statement else None
        holder.execute(statement.encode())
        [note] = store.status().notes
        assert f"process {holder.info.backend_pid} (forgotten report, user postgres" in note
        assert "idle in transaction, last statement begun 2" in note
        holder.rollback()
        assert store.status().notes == ()


def test_with_few_dead_rows_there_is_no_floor(store: PostgresStore) -> None:
    put(store, a_job(), a_job())
    take(store, 1)
    assert store._floors.get(MAIL) == 0  # noqa: SLF001 - a floor that is not needed is not seen from outside


def test_a_floor_holds_for_a_moment_and_for_its_own_types() -> None:
    clock = ManualClock()
    floors = Floors(clock.monotonic)
    floors.learn(MAIL, head=7)
    assert floors.get(MAIL) == 7
    assert floors.get(("report.build",)) == 0
    clock.advance(1)
    assert floors.get(MAIL) == 0


def test_a_job_that_comes_back_below_the_floor_waits_no_longer_than_the_floor_holds(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_MANY_DEAD", -1)
    clock = ManualClock()
    monkeypatch.setattr(store, "_floors", Floors(clock.monotonic))
    first, _, third = ids(put(store, a_job(), a_job(), a_job()))
    [lease, _] = take(store, 2)
    clock.advance(1)
    assert ids(take(store, 2)) == [third]
    assert settle(store, lease, GIVEN_BACK)
    assert take(store, 2) == []
    clock.advance(1)
    assert ids(take(store, 2)) == [first]


def test_a_floor_hides_nothing_that_is_newer(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_MANY_DEAD", -1)
    monkeypatch.setattr(store, "_floors", Floors(ManualClock().monotonic))
    waiting = ids(put(store, a_job(), a_job(), a_job()))
    assert ids(take(store, 2)) == waiting[:2]
    newer = ids(put(store, a_job(tenant="b", priority=10), a_job(tenant="c"), a_job(tenant="a", priority=3)))
    assert ids(take(store, 9)) == [newer[0], newer[1], waiting[2], newer[2]]
