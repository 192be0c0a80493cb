"""Does a PostgreSQL store say how its database is, and who is to blame?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import msgspec
import psycopg
import pytest

from tests.conformance.scene import put_one
from tests.servers import postgres
from windlass import connect
from windlass.clock import SystemClock
from windlass.connect import Opened
from windlass.ops import Ops
from windlass.ops.doctor import Level, checkup, diagnoses


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres.fresh(postgres.MAJORS[-1]) as url:
        yield url


@pytest.fixture
def opened(url: str) -> Iterator[Opened]:
    with closing(connect.open(url)) as opened:
        yield opened


def test_who_keeps_a_transaction_open_is_named_with_what_ends_it(opened: Opened, url: str) -> None:
    put_one(opened.store)
    with psycopg.connect(url, application_name="forgetful") as forgetful:
        forgetful.execute("select count(*), pg_current_xact_id() from windlass.jobs")
        pid = forgetful.info.backend_pid
        seen = checkup(Ops(opened.store), SystemClock())
    oldest = seen.database.oldest
    assert oldest is not None
    assert (oldest.pid, "forgetful" in oldest.holder) == (pid, True)
    # A minute later it is somebody's to fix.
    later = msgspec.structs.replace(oldest, age=timedelta(minutes=2))
    worse = msgspec.structs.replace(seen, database=msgspec.structs.replace(seen.database, oldest=later))
    [told] = [each for each in diagnoses(worse) if each.name == "transactions"]
    assert (told.level, told.fix) == (Level.BAD, f"select pg_terminate_backend({pid})")


def test_tables_sessions_and_listeners_are_counted(opened: Opened, url: str) -> None:
    before = opened.store.database()
    assert before.most_sessions is not None
    assert 0 < (before.sessions or 0) < before.most_sessions
    opened.store.listener.hear(0.01)  # type: ignore[attr-defined] # this store has one
    put_one(opened.store)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze windlass.jobs")
    after = opened.store.database()
    assert (after.listeners or 0) == (before.listeners or 0) + 1
    jobs = next(table for table in after.tables if table.name == "jobs")
    assert jobs.size_bytes > 0
    assert jobs.vacuumed_at is not None
    assert jobs.analyzed_at is not None
    # Days of the archive are one table to a person.
    assert [table.name for table in after.tables].count("archive") == 1
