"""Does what is written together fail apart, and is nobody blamed for another's delay?"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.contenders import at_once
from tests.conformance.scene import DONE, a_job, put_one, take, take_new
from tests.conformance.watching import Watched, watched
from tests.waiting import PATIENCE
from windlass import connect
from windlass.errors import KeyConflict, StoreError, WindlassError
from windlass.job import NewJob
from windlass.store.engine import Enqueued, Settlement
from windlass.store.jobs import Filter
from windlass.store.store import Store

__all__ = ["watched"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(watched: Watched, path: Path) -> Iterator[Store]:
    opened = connect.open(f"sqlite:///{path}", patience=20)
    yield opened.store
    opened.close()


def together(store: Store, outsider: sqlite3.Connection, batches: list[list[NewJob]]) -> list[object]:
    """Enqueue all batches in one group: they pile up while an outsider holds the lock."""
    outsider.execute("begin immediate")
    threading.Timer(0.5, outsider.execute, ["rollback"]).start()
    return list(at_once(*(partial(store.enqueue, batch) for batch in batches)))


BAD: dict[str, dict[str, object]] = {
    "a payload that is no text": {"payload": b"\xff\xfe"},
    "a priority that no store takes": {"priority": 99},
    "a key that is no text": {"key": "half a character \ud83d"},
    "a tenant that is no text": {"tenant": "half a character \ud83d"},
    "a number beyond 64 bits": {"schema_version": 2**70},
    "a type that is no text": {"type": None},
}


@pytest.mark.parametrize("name", BAD)
def test_a_job_that_cannot_be_stored_does_not_pull_down_its_neighbours(
    store: Store, watched: Watched, path: Path, name: str
) -> None:
    with contextlib.closing(watched.outsider(path)) as outsider:
        bad = a_job(**BAD[name])
        answers = together(store, outsider, [[a_job()], [a_job(), bad], [a_job()], [a_job(), a_job()]])
    refusals = [answer for answer in answers if isinstance(answer, Exception)]
    assert refusals == [answers[1]], "only the bad batch is refused"
    assert isinstance(answers[1], WindlassError)
    assert store.count(Filter(), limit=100) == 4


def test_drafts_sent_again_after_their_jobs_have_ended_run_nothing_twice(store: Store) -> None:
    batch = [a_job() for _ in range(4)]
    store.enqueue(batch)
    assert store.settle([Settlement(lease, DONE, None) for lease in take(store, limit=4)]) == []
    again = store.enqueue([*batch, a_job()])
    assert [answer.created for answer in again] == [False, False, False, False, True]


def test_a_conflict_does_not_pull_down_its_neighbours(store: Store, watched: Watched, path: Path) -> None:
    put_one(store, key="k")
    with contextlib.closing(watched.outsider(path)) as outsider:
        answers = together(store, outsider, [[a_job()], [a_job(key="k")], [a_job()]])
    assert [type(answer) for answer in answers] == [list, KeyConflict, list]
    assert store.count(Filter(), limit=100) == 3


def test_a_commit_that_fails_is_told_to_everyone_in_it(store: Store, watched: Watched, path: Path) -> None:
    failing = threading.Event()

    def fail(connection: sqlite3.Connection, statement: str) -> None:
        if statement == "commit" and failing.is_set():
            failing.clear()
            connection.interrupt()

    watched.before_each(fail)
    failing.set()
    jobs = [a_job() for _ in range(4)]
    answers: list[object] = []
    with contextlib.closing(watched.outsider(path)) as outsider:
        answers = together(store, outsider, [[job] for job in jobs])
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, Exception):
            assert isinstance(answer, StoreError), answer
            assert store.get(job.id) is None, "told as failed, yet stored"
        else:
            assert store.get(job.id) is not None, "told as stored, yet gone"


def test_a_caller_that_waits_for_a_long_write_of_ours_is_not_told_that_it_blocks_itself(
    store: Store, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.sqlite.writer._OWN_LOCK_SECONDS", 0.2)
    slow, go_on = threading.Event(), threading.Event()

    def linger(_: sqlite3.Connection, statement: str) -> None:
        if "insert into windlass_jobs" in statement and not slow.is_set():
            slow.set()
            go_on.wait(PATIENCE)

    watched.before_each(linger)
    answers: list[object] = []

    def enqueue() -> None:
        try:
            answers.extend(store.enqueue([a_job()]))
        except WindlassError as error:
            answers.append(error)

    first = threading.Thread(target=enqueue)
    first.start()
    assert slow.wait(PATIENCE)
    second = threading.Thread(target=enqueue)
    second.start()
    # Longer than it takes to suspect the caller, shorter than anybody's patience.
    second.join(1.5)
    go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE)
    assert [type(answer) for answer in answers] == [Enqueued, Enqueued]


def test_closing_writes_what_was_asked_before(path: Path) -> None:
    opened = connect.open(f"sqlite:///{path}")
    answers = at_once(*(partial(opened.store.enqueue, [a_job()]) for _ in range(20)))
    opened.close()
    again = connect.open(f"sqlite:///{path}")
    try:
        assert again.store.count(Filter(), limit=100) == len(answers) == 20
    finally:
        again.close()


def test_a_closed_store_says_so(path: Path) -> None:
    opened = connect.open(f"sqlite:///{path}")
    opened.close()
    opened.close()
    with pytest.raises(StoreError):
        opened.store.enqueue([a_job()])
    with pytest.raises(StoreError):
        opened.store.get("x")


def test_a_child_of_a_fork_cannot_use_the_parents_store_but_its_own(store: Store, path: Path) -> None:
    lease = take_new(store)
    child = os.fork()
    if child == 0:
        os._exit(_in_the_child(store, path, lease.id))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    put_one(store)
    assert store.check() == []


def _in_the_child(store: Store, path: Path, job_id: str) -> int:
    try:
        store.get(job_id)
    except StoreError:
        pass
    else:
        return 1
    try:
        store.enqueue([a_job()])
    except StoreError:
        pass
    else:
        return 2
    store.close()
    own = connect.open(f"sqlite:///{path}")
    known = own.store.get(job_id) is not None
    own.store.enqueue([a_job()])
    own.close()
    return 0 if known else 3
