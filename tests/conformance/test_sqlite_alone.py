"""Is a job that one statement writes, outside any transaction, as safe as one that is written within one?"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from tests.conformance.scene import a_job, put_one
from tests.conformance.watching import Watched, path, store, watched
from windlass.errors import IdConflict, StoreError, WindlassError
from windlass.store.jobs import Filter
from windlass.store.store import Store

__all__ = ["path", "store", "watched"]

HELD_SECONDS = 0.2


def said_by_writer(watched: Watched) -> list[str]:
    """What was said on the connection that writes."""
    [said] = [
        said for said in watched.statements if any("insert into windlass_jobs" in text for text in said)
    ]
    return said


def test_it_takes_one_statement(store: Store, watched: Watched) -> None:
    put_one(store, fresh=True)
    said = said_by_writer(watched)
    said.clear()
    put_one(store, fresh=True)
    assert len(said) == 1


MORE: dict[str, dict[str, object]] = {
    "it may have been sent before": {"fresh": False},
    "it has a key": {"key": "mine"},
    "it is unique": {"unique": "one"},
    "its id is the caller's": {"own_id": True},
}


@pytest.mark.parametrize("name", MORE)
def test_what_takes_more_than_a_row_has_a_transaction(store: Store, watched: Watched, name: str) -> None:
    put_one(store, fresh=True)
    put_one(store, **({"fresh": True} | MORE[name]))
    assert said_by_writer(watched)[-1] == "commit"


@pytest.mark.parametrize(
    "fields",
    [{}, {"delay": timedelta(hours=1)}, {"tenant": "t", "priority": 9, "caller": "c", "max_attempts": 2}],
)
def test_it_is_the_same_row_as_one_that_is_written_otherwise(
    store: Store, watched: Watched, path: Path, fields: dict[str, object]
) -> None:
    put_one(store, fresh=True, payload=b"{}", **fields)
    put_one(store, payload=b"{}", **fields)
    with contextlib.closing(watched.outsider(path)) as outsider:
        outsider.row_factory = sqlite3.Row
        alone, other = map(dict, outsider.execute("select * from windlass_jobs order by seq"))
    assert (other.pop("seq"), other.pop("id") != alone.pop("id")) == (alone.pop("seq") + 1, True)
    for row in (alone, other):
        made = row.pop("created_at")
        row |= {name: row[name] - made for name in ("enqueued_at", "updated_at", "run_at")}
    assert alone == other


def test_an_id_that_is_known_is_told_as_ever(store: Store) -> None:
    job = a_job(fresh=True)
    [first], [again] = store.enqueue([job]), store.enqueue([job])
    assert (first.created, again.created, again.id) == (True, False, job.id)
    with pytest.raises(IdConflict):
        store.enqueue([a_job(fresh=True, id=job.id)])


def test_it_waits_for_an_outsider_who_writes(store: Store, watched: Watched, path: Path) -> None:
    with contextlib.closing(watched.outsider(path)) as outsider:
        outsider.execute("begin immediate")
        release = threading.Timer(HELD_SECONDS, outsider.execute, ["commit"])
        release.start()
        put_one(store, fresh=True)
        release.join()
    assert store.count(Filter(), limit=10) == 1


BAD: dict[str, dict[str, object]] = {
    "a payload that is no text": {"payload": b"\xff\xfe"},
    "a priority that no store takes": {"priority": 99},
    "a number beyond 64 bits": {"schema_version": 2**70},
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing_behind(store: Store, name: str) -> None:
    with pytest.raises((WindlassError, UnicodeError)):
        store.enqueue([a_job(fresh=True, **BAD[name])])
    put_one(store, fresh=True)
    assert store.count(Filter(), limit=10) == 1


def test_a_statement_that_is_interrupted_says_what_became_of_its_job(store: Store, watched: Watched) -> None:
    job = a_job(fresh=True)

    def interrupt(connection: sqlite3.Connection, statement: str) -> None:
        if "into windlass_jobs" in statement and job.id in statement:
            connection.interrupt()

    watched.before_each(interrupt)
    try:
        store.enqueue([job])
    except StoreError:
        assert store.get(job.id) is None, "told as failed, yet stored"
    else:
        assert store.get(job.id) is not None, "told as stored, yet gone"
    put_one(store, fresh=True)
