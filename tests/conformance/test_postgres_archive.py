"""The archive's days: made ahead, cleared whole."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from tests.conformance.contenders import at_once, won
from tests.conformance.scene import DEAD, DONE, a_job, put, put_one, settle, state_of, take, take_one
from tests.conformance.server import run, store, url
from windlass import connect
from windlass.clock import ManualClock
from windlass.errors import StoreBusy
from windlass.job import JobState
from windlass.store import statements
from windlass.store.jobs import Filter
from windlass.store.postgres import health
from windlass.store.upkeep import Retention

__all__ = ["store", "url"]
WEEK = timedelta(days=7)


def days(url: str) -> list[str]:
    found = run(
        url, "select inhrelid::regclass::text from pg_inherits where inhparent = 'windlass.archive'::regclass"
    )
    return sorted(name for (name,) in found)


def test_days_are_made_a_week_ahead_and_when_one_is_missing(url: str) -> None:
    clock = ManualClock()
    opened = connect.open(url, clock=clock)
    with closing(opened):
        assert days(url)[0] == "windlass.archive_20260101"
        assert len(days(url)) == 8
        clock.advance(timedelta(days=20))
        job = put_one(opened.store)
        assert settle(opened.store, take_one(opened.store), DONE)
        assert state_of(opened.store, job.id) is JobState.COMPLETED
        assert "windlass.archive_20260121" in days(url)
        clock.advance(timedelta(days=20))
        opened.store.cancel(put_one(opened.store).id)
        assert "windlass.archive_20260210" in days(url)


def test_a_large_day_goes_whole_with_its_keys_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_LARGE_DAY", 0)
    clock = ManualClock()
    opened = connect.open(url, clock=clock)
    with closing(opened):
        store = opened.store
        put(store, *(a_job(key=f"k{number}") for number in range(20)), *(a_job() for _ in range(5)))
        for lease in take(store, limit=25):
            assert settle(store, lease, DONE)
        clock.advance(WEEK + timedelta(hours=23))
        assert store.prune(Retention(), limit=8) == 0
        clock.advance(timedelta(hours=2))
        batches = []
        while pruned := store.prune(Retention(), limit=8):
            batches.append(pruned)
        assert max(batches) <= 8
        assert sum(batches[:3]) == 20
        assert "windlass.archive_20260101" not in days(url)
        assert store.count(Filter(), limit=100) == 0
        assert store.check() == []
        assert put_one(store, key="k1").key == "k1"


def test_a_detach_that_was_left_half_way_is_finished(url: str) -> None:
    clock = ManualClock()
    opened = connect.open(url, clock=clock)
    with closing(opened):
        day = "windlass.archive_20260101"
        with psycopg.connect(url) as reader:
            reader.execute("select count(*) from windlass.archive")
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("set lock_timeout = '200ms'")
                with pytest.raises(psycopg.Error):
                    other.execute(
                        f"alter table windlass.archive detach partition {day} concurrently".encode()
                    )
        clock.advance(timedelta(days=30))
        opened.store.prune(Retention())
        assert day not in days(url)
        assert run(url, f"select to_regclass('{day}')") == [(None,)]


def test_a_day_that_was_detached_and_not_dropped_goes_and_a_partition_of_somebody_else_stays(
    url: str,
) -> None:
    clock = ManualClock()
    opened = connect.open(url, clock=clock)
    with closing(opened):
        job = put_one(opened.store)
        assert settle(opened.store, take_one(opened.store), DONE)
        # It holds what has no day of its own, and begins nowhere.
        run(url, "create table windlass.archive_rest partition of windlass.archive default")
        run(url, "alter table windlass.archive detach partition windlass.archive_20260101")
        run(url, "insert into windlass.archive select * from windlass.archive_20260101")
        clock.advance(timedelta(days=30))
        opened.store.prune(Retention())
        assert state_of(opened.store, job.id) is JobState.COMPLETED
        assert run(url, "select to_regclass('windlass.archive_20260101')") == [(None,)]


def test_dead_letters_past_their_retention_are_looked_for_by_their_index(url: str) -> None:
    connect.migrate(url)
    text, _ = statements.numbered(statements.load("postgres")["any_dead"])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """
            insert into windlass.jobs (
                id, type, state, priority, due, payload, max_attempts,
                created_at, enqueued_at, updated_at, run_at, finished_at
            )
            select gen_random_uuid(), 'crowd', 'dead', 5, 0, '{}', 5, 0, 0, 0, 0, 2 + number
              from generate_series(1, 5000) as number
            """
        )
        connection.execute("analyze windlass.jobs")
        # The server keeps one plan for all times in the end.
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.execute(f"prepare any_dead (bigint) as {text}".encode())
        plan = "".join(line for (line,) in connection.execute("explain execute any_dead(1)"))
        assert "using jobs_dead_since" in plan
        assert [connection.execute(f"execute any_dead({at})".encode()).fetchone() for at in (3, 4)] == [
            (False,),
            (True,),
        ]


def test_a_note_that_somebody_holds_keeps_no_other_from_being_pruned(url: str) -> None:
    connect.migrate(url)
    with closing(connect.open(f"{url}&options=-c%20lock_timeout%3D100ms")) as opened:
        run(url, "insert into windlass.progress values (gen_random_uuid(), 1, null, 0)")
        run(url, "insert into windlass.once values (gen_random_uuid(), 'charge', 1, 0)")
        with psycopg.connect(url) as holder:
            holder.execute("select from windlass.progress for update")
            with pytest.raises(StoreBusy):
                opened.store.prune(Retention())
            assert run(url, "select count(*) from windlass.once") == [(0,)]
        opened.store.prune(Retention())
        assert run(url, "select count(*) from windlass.progress") == [(0,)]


def forty_days_of_jobs(url: str, clock: ManualClock) -> None:
    """A completed job with a key on each of forty days, and some dead letters."""
    with closing(connect.open(url, clock=clock)) as opened:
        for day in range(40):
            put_one(opened.store, key=f"k{day}")
            assert settle(opened.store, take_one(opened.store), DEAD if day % 4 == 0 else DONE)
            clock.advance(timedelta(days=1))


@pytest.mark.parametrize("large", [0, 2**40], ids=["whole days", "row by row"])
def test_prunes_at_the_same_time_never_fail_and_leave_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(health, "_LARGE_DAY", large)
    clock = ManualClock()
    forty_days_of_jobs(url, clock)
    clock.advance(timedelta(days=60))

    def prune_all() -> int:
        with closing(connect.open(url, clock=clock)) as opened:
            while opened.store.prune(Retention(), limit=7):
                pass
            return 0

    won(at_once(*[prune_all] * 4))
    assert prune_all() == 0
    with closing(connect.open(url, clock=clock)) as opened:
        assert opened.store.count(Filter(), limit=100) == 0
        assert opened.store.check() == []
    assert run(url, "select count(*) from windlass.keys") == [(0,)]


def test_where_a_day_begins_is_asked_once(url: str) -> None:
    """Between two answers another prune may drop it, and the second one would be null."""
    connect.migrate(url)
    text, _ = statements.numbered(statements.load("postgres")["archive_days"])
    plan = "".join(line for (line,) in run(url, f"explain (verbose) {text}"))
    assert plan.count("pg_get_expr") == 1
