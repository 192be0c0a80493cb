"""Does a job enqueued on the caller's own connection live and die with the caller's transaction?"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.scene import a_job, a_payload, ids, put_one, take
from tests.waiting import PATIENCE
from windlass import connect
from windlass.errors import InvalidValue, KeyConflict, StoreBusy
from windlass.store.jobs import Filter
from windlass.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = connect.open(f"sqlite:///{path}")
    yield opened.store
    opened.close()


@pytest.fixture
def mine(store: Store, path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own connection, with a table of the caller's."""
    connection = sqlite3.connect(path, timeout=PATIENCE)
    connection.execute("create table users (name text)")
    connection.commit()
    yield connection
    connection.close()


def users(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("select name from users")]


def everything(store: Store) -> list[str]:
    return ids(store.find(Filter()).jobs)


# --- together or not at all ---------------------------------------------------------------------


def test_the_commit_shows_the_job_and_not_earlier(store: Store, mine: sqlite3.Connection) -> None:
    job = a_job()
    mine.execute("insert into users values ('ann')")
    [answer] = store.enqueue_on(mine, [job])
    assert (answer.created, answer.id) == (True, job.id)
    assert store.get(job.id) is None
    mine.commit()
    assert ids(take(store)) == [job.id]
    assert users(mine) == ["ann"]


def test_the_rollback_leaves_nothing(store: Store, mine: sqlite3.Connection) -> None:
    mine.execute("insert into users values ('ann')")
    store.enqueue_on(mine, [a_job(key="k"), a_job()])
    mine.rollback()
    assert everything(store) == []
    assert users(mine) == []
    assert put_one(store, key="k").key == "k"


def test_a_failing_with_block_takes_the_job_with_it(store: Store, mine: sqlite3.Connection) -> None:
    def fail_after_enqueueing() -> None:
        with mine:
            store.enqueue_on(mine, [a_job()])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_enqueueing()
    assert everything(store) == []


def test_outside_a_transaction_one_is_begun_and_the_commit_is_the_callers(
    store: Store, mine: sqlite3.Connection
) -> None:
    said: list[str] = []
    mine.set_trace_callback(said.append)
    job = a_job()
    store.enqueue_on(mine, [job])
    assert "begin immediate" in said
    assert mine.in_transaction
    mine.execute("insert into users values ('ann')")
    mine.commit()
    assert everything(store) == [job.id]


@pytest.mark.parametrize("begin", ["begin", "begin immediate", "begin exclusive"])
def test_a_transaction_of_any_kind_will_do(store: Store, path: Path, begin: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(begin)
    job = a_job()
    store.enqueue_on(connection, [job])
    connection.execute("commit")
    connection.close()
    assert everything(store) == [job.id]


def test_a_read_that_is_still_fresh_is_no_hindrance(store: Store, path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("begin")
    connection.execute("select count(*) from sqlite_master").fetchone()
    store.enqueue_on(connection, [a_job()])
    connection.execute("commit")
    connection.close()
    assert len(everything(store)) == 1


def test_inside_a_read_that_has_grown_stale_the_caller_is_told_to_begin_immediate(
    store: Store, path: Path
) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=1)
    connection.execute("begin")
    connection.execute("select count(*) from sqlite_master").fetchone()
    other = put_one(store)
    with pytest.raises(StoreBusy, match="begin immediate"):
        store.enqueue_on(connection, [a_job()])
    connection.execute("rollback")
    connection.close()
    assert everything(store) == [other.id]


def test_what_the_caller_wrote_before_a_refused_job_is_still_there(
    store: Store, mine: sqlite3.Connection
) -> None:
    put_one(store, key="k")
    mine.execute("insert into users values ('ann')")
    with pytest.raises(KeyConflict):
        store.enqueue_on(mine, [a_job(), a_job(key="k")])
    mine.commit()
    assert users(mine) == ["ann"]
    assert len(everything(store)) == 1


def test_a_refused_job_outside_a_transaction_leaves_none_open(store: Store, mine: sqlite3.Connection) -> None:
    """Otherwise the caller holds the write lock of everybody without knowing it."""
    put_one(store, key="k")
    with pytest.raises(KeyConflict):
        store.enqueue_on(mine, [a_job(key="k")])
    assert not mine.in_transaction


def test_the_callers_savepoints_are_respected(store: Store, mine: sqlite3.Connection) -> None:
    keep, drop = a_job(), a_job()
    mine.execute("begin")
    store.enqueue_on(mine, [keep])
    mine.execute("savepoint inner_part")
    store.enqueue_on(mine, [drop])
    mine.execute("rollback to inner_part")
    mine.commit()
    assert everything(store) == [keep.id]


# --- keys inside --------------------------------------------------------------------------------


def test_a_key_is_found_within_the_callers_transaction(store: Store, mine: sqlite3.Connection) -> None:
    payload = a_payload(to="a")
    [first] = store.enqueue_on(mine, [a_job(key="k", payload=payload)])
    [second] = store.enqueue_on(mine, [a_job(key="k", payload=payload)])
    assert (second.created, second.id) == (False, first.id)
    with pytest.raises(KeyConflict):
        store.enqueue_on(mine, [a_job(key="k", payload=a_payload(to="b"))])
    mine.commit()
    assert everything(store) == [first.id]


def test_a_key_committed_by_others_is_found(store: Store, mine: sqlite3.Connection) -> None:
    payload = a_payload(to="a")
    holder = put_one(store, key="k", payload=payload)
    [answer] = store.enqueue_on(mine, [a_job(key="k", payload=payload)])
    assert (answer.created, answer.id) == (False, holder.id)
    mine.rollback()


# --- whose connection ---------------------------------------------------------------------------


def test_a_connection_to_another_file_is_refused(store: Store, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("create table t (a)")
    with pytest.raises(InvalidValue, match=r"app\.db"):
        store.enqueue_on(connection, [a_job()])
    assert not connection.in_transaction
    connection.close()


def test_a_connection_to_memory_is_refused(store: Store) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(InvalidValue, match="connection"):
        store.enqueue_on(connection, [a_job()])
    connection.close()


@pytest.mark.parametrize("thing", [None, "app.db", 7, object()])
def test_what_is_no_connection_is_refused(store: Store, thing: object) -> None:
    with pytest.raises(InvalidValue, match="connection"):
        store.enqueue_on(thing, [a_job()])


def test_another_name_of_the_same_file_is_the_same_file(store: Store, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    connection = sqlite3.connect(link)
    store.enqueue_on(connection, [a_job()])
    connection.commit()
    connection.close()
    assert len(everything(store)) == 1


def as_dict(cursor: sqlite3.Cursor, row: tuple[object, ...]) -> dict[str, object]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("row_factory", [None, sqlite3.Row, as_dict])
@pytest.mark.parametrize("text_factory", [str, bytes])
def test_the_callers_settings_do_not_matter_and_are_left_as_they_were(
    store: Store, mine: sqlite3.Connection, row_factory: Any, text_factory: type
) -> None:
    mine.row_factory, mine.text_factory = row_factory, text_factory
    store.enqueue_on(mine, [a_job(key="k", payload=a_payload(to="a"))])
    [again] = store.enqueue_on(mine, [a_job(key="k", payload=a_payload(to="a"))])
    assert not again.created
    assert (mine.row_factory, mine.text_factory) == (row_factory, text_factory)
    mine.commit()
    assert len(everything(store)) == 1


# --- locks --------------------------------------------------------------------------------------


def test_a_caller_that_waits_for_itself_is_told_so(
    store: Store, mine: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.sqlite.writer._OWN_LOCK_SECONDS", 0.5)
    mine.execute("insert into users values ('ann')")
    with pytest.raises(StoreBusy, match="connection="):
        store.enqueue([a_job()])
    mine.commit()
    assert everything(store) == []
    assert len(store.enqueue([a_job()])) == 1


@pytest.mark.parametrize("fields", [{}, {"key": "k"}, {"unique": "u"}])
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_caller_whose_transaction_has_not_begun_to_write_waits_for_others(
    store: Store, mine: sqlite3.Connection, path: Path, jobs: int, fields: dict[str, Any]
) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    release = threading.Timer(0.1, other.execute, ["commit"])
    release.start()
    mine.execute("begin")
    named = [{name: f"{value}{number}" for name, value in fields.items()} for number in range(jobs)]
    store.enqueue_on(mine, [a_job(**each) for each in named])
    mine.commit()
    release.join()
    other.close()
    assert len(everything(store)) == jobs


def test_the_store_waits_for_a_caller_that_commits_in_time(store: Store, mine: sqlite3.Connection) -> None:
    mine.execute("insert into users values ('ann')")
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(len(store.enqueue([a_job()]))))
    waiting.start()
    mine.commit()
    waiting.join(PATIENCE)
    assert answers == [1]
