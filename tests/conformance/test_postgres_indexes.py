"""What becomes of an index whose build was cut off? (F-37)"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.conformance.scene import put_one
from tests.conformance.server import run
from tests.conformance.shelves import FIRST, OURS, shelf
from tests.servers import postgres
from tests.waiting import PATIENCE, until
from windlass import connect
from windlass.errors import StoreError

MAJOR = 16
BUILD = (
    "-- expand, statement by statement\n"
    "create index concurrently if not exists jobs_tenant on windlass.jobs (tenant);\n"
)
STATE = "select indisvalid from pg_index where indexrelid = to_regclass('windlass.jobs_tenant')"
BUILDERS = "select pid from pg_stat_progress_create_index where datname = current_database()"


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.fresh(MAJOR) as url:
        connect.migrate(url)
        yield url


def test_f37_an_index_whose_build_was_killed_is_built_again(url: str, tmp_path: Path) -> None:
    folder = shelf(tmp_path, BUILD)
    with closing(connect.open(url)) as opened:
        with building(url, folder) as (pid, failed):
            # The build waits for an old transaction: nobody who writes waits for the build.
            put_one(opened.store)
            run(url, f"select pg_terminate_backend({pid})")
            assert isinstance(failed(), StoreError)
        assert run(url, STATE) == [(False,)]
        assert connect.schema(url, migrations=folder).invalid_indexes == ("jobs_tenant",)
        assert opened.store.status().invalid_indexes == ("jobs_tenant",)
        told: list[str] = []
        with old_transaction(url) as end:
            again = threading.Thread(target=lambda: connect.migrate(url, migrations=folder, say=told.append))
            again.start()
            until(lambda: bool(run(url, BUILDERS)) or "dropping" in " ".join(told))
            put_one(opened.store)
            end()
            again.join(PATIENCE)
        assert told == [
            "dropping index jobs_tenant, whose build was cut off",
            f"applying {FIRST}, step 1 of 1",
        ]
        assert run(url, STATE) == [(True,)]
        assert opened.store.status().invalid_indexes == ()


def test_f37_an_index_that_no_migration_makes_is_built_again(url: str, tmp_path: Path) -> None:
    folder = shelf(tmp_path, BUILD)
    with building(url, folder) as (pid, failed):
        run(url, f"select pg_terminate_backend({pid})")
        failed()
    run(url, f"insert into windlass.schema values ({OURS + 1}, 'test', 'expand', 0)")
    told: list[str] = []
    assert connect.migrate(url, migrations=folder, say=told.append) == []
    assert told == ["building index jobs_tenant again, whose build was cut off"]
    assert run(url, STATE) == [(True,)]


def test_f37_an_index_that_is_being_built_is_left_alone_and_a_second_migrator_waits(
    url: str, tmp_path: Path
) -> None:
    folder = shelf(tmp_path, BUILD)
    told: list[str] = []
    with building(url, folder) as (_, failed):
        assert connect.schema(url, migrations=folder).invalid_indexes == ()
        second = threading.Thread(target=lambda: connect.migrate(url, migrations=folder, say=told.append))
        second.start()
        until(lambda: bool(told))
    second.join(PATIENCE)
    assert failed() is None
    assert told == ["waiting for another migrator"]
    assert run(url, STATE) == [(True,)]


def test_a_change_of_a_table_in_use_waits_without_keeping_writers_waiting(url: str, tmp_path: Path) -> None:
    folder = shelf(tmp_path, "-- expand\nalter table windlass.jobs add column colour text;\n")
    told: list[str] = []
    with closing(connect.open(url)) as opened, old_transaction(url, "select * from windlass.jobs") as end:
        thread = threading.Thread(target=lambda: connect.migrate(url, migrations=folder, say=told.append))
        thread.start()
        until(lambda: f"{FIRST} waits for a table that is in use" in told)
        put_one(opened.store)
        end()
        thread.join(PATIENCE)
        put_one(opened.store)
    assert connect.schema(url, migrations=folder).pending == ()


@contextmanager
def building(url: str, folder: Path) -> Iterator[tuple[int, Callable[[], Exception | None]]]:
    """A migrator that is building an index: its backend, and how to learn what it raised."""
    raised: list[Exception] = []

    def migrate() -> None:
        try:
            connect.migrate(url, migrations=folder)
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=migrate)

    def failed() -> Exception | None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        return raised[0] if raised else None

    with old_transaction(url):
        thread.start()
        until(lambda: run(url, STATE) == [(False,)] and bool(run(url, BUILDERS)))
        [(pid,)] = run(url, BUILDERS)
        yield pid, failed
    thread.join(PATIENCE)


@contextmanager
def old_transaction(url: str, first: str = "select 1 from windlass.jobs") -> Iterator[Callable[[], None]]:
    """A transaction that saw the tables before anything was changed, and how to end it."""
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute(first.encode())
        yield connection.rollback
