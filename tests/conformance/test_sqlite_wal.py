"""Can a checkpoint ever race a commit, or spoil the answer to one?

SQLite before 3.51.3 can corrupt its log when a commit on one connection races a checkpoint on another.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.contenders import at_once
from tests.conformance.scene import DONE, a_job, a_payload, put, put_one, settle, take
from tests.conformance.watching import Watched, path, store, watched
from tests.waiting import PATIENCE
from windlass import connect
from windlass.errors import StoreUnavailable, WindlassError
from windlass.store.sqlite import writer
from windlass.store.sqlite.storefile import StoreFile
from windlass.store.sqlite.writer import Checkpointer
from windlass.store.store import Store

__all__ = ["path", "store", "watched"]

LARGE = "x" * 60_000
# Longer than a connection of ours waits in one step.
HELD_SECONDS = 0.4
WRITES = re.compile(r"\b(insert (?:or ignore )?into|update|delete from) windlass_")


def write_much(store: Store, megabytes: int = 12) -> None:
    for _ in range(megabytes * 2):
        put(store, *(a_job(payload=a_payload(text=LARGE)) for _ in range(8)))


class Attempts:
    """What somebody else meets who wants to commit at the moment of a checkpoint."""

    def __init__(self, watched: Watched, path: Path) -> None:
        self.met: list[str] = []
        self._watched = watched
        self._path = path
        watched.before_each(self._try)

    def _try(self, _: sqlite3.Connection, statement: str) -> None:
        if "wal_checkpoint" not in statement:
            return
        outsider = self._watched.outsider(self._path, patience=0)
        try:
            outsider.execute("begin immediate")
            self.met.append("free to commit")
        except sqlite3.OperationalError as refused:
            self.met.append(str(refused))
        finally:
            outsider.close()


def test_nobody_can_commit_while_a_checkpoint_runs(store: Store, watched: Watched, path: Path) -> None:
    attempts = Attempts(watched, path)
    write_much(store)
    assert attempts.met, "the log has grown, yet no checkpoint ran"
    assert set(attempts.met) == {"database is locked"}


def test_the_log_does_not_grow_without_bound(store: Store, path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    sizes = []
    for _ in range(6):
        write_much(store, megabytes=8)
        sizes.append(log.stat().st_size)
    assert max(sizes) < 24_000_000, sizes


def test_a_log_that_is_used_again_is_emptied_before_it_has_to_grow(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "pragma journal_mode = wal; pragma wal_autocheckpoint = 0; create table much (text)"
    )
    checkpointer = Checkpointer(StoreFile(str(path)), look_seconds=0.0)
    log = path.with_name(path.name + "-wal")

    def commits_until_due() -> int:
        for number in itertools.count(1):
            connection.execute("insert into much values (?)", [LARGE])
            if checkpointer.is_due():
                checkpointer.run(connection)
                return number
        raise AssertionError

    commits_until_due()
    sizes = set()
    for _ in range(3):
        assert commits_until_due() > 50, "a log that was just emptied is not full"
        sizes.add(log.stat().st_size)
    assert len(sizes) == 1, "the file grew"
    checkpointer.close()
    connection.close()


def test_a_log_in_use_is_made_large_at_once_and_nothing_else_changes(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "pragma journal_mode = wal; pragma wal_autocheckpoint = 0; create table much (text)"
    )
    log = path.with_name(path.name + "-wal")
    checkpointer = Checkpointer(StoreFile(str(path)), look_seconds=0.0)
    commits = 0
    while not checkpointer.is_due():
        connection.execute("insert into much values (?)", ["x" * 200])
        commits += 1
    assert log.stat().st_size < 1_000_000, "a log that was in use was left to grow"
    assert commits > 10, "who writes little should not wait for a large log"
    checkpointer.run(connection)
    large = log.stat().st_size
    assert large > 4_000_000
    for _ in range(100):
        connection.execute("insert into much values (?)", ["x" * 200])
        assert not checkpointer.is_due()
    assert log.stat().st_size == large, "the file grew"
    checkpointer.close()
    assert connection.execute("select count(*) from much").fetchone() == (commits + 100,)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert connection.execute("select name from sqlite_schema").fetchall() == [("much",)]
    connection.close()


def test_a_log_that_cannot_be_made_large_is_left_to_grow(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "pragma journal_mode = wal; pragma wal_autocheckpoint = 0; create table much (text)"
    )
    checkpointer = Checkpointer(StoreFile(str(path)), look_seconds=0.0)
    while not checkpointer.is_due():
        connection.execute("insert into much values (?)", [LARGE])
    connection.execute("begin immediate")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        checkpointer.run(connection)
    assert not checkpointer.is_due(), "it is tried again at each commit"
    connection.execute("insert into much values (?)", [LARGE])
    connection.execute("commit")
    while not checkpointer.is_due():
        connection.execute("insert into much values (?)", [LARGE])
    checkpointer.run(connection)
    assert path.with_name(path.name + "-wal").stat().st_size > 4_000_000
    checkpointer.close()
    connection.close()


def test_a_disk_that_is_full_before_the_log_is_large_is_not_tried_at_each_commit(
    path: Path, watched: Watched
) -> None:
    """What was written of it by then stays in the log's file: it looks as if as much had been added."""
    connection = watched.outsider(path)
    connection.executescript(
        "pragma journal_mode = wal; pragma wal_autocheckpoint = 0; create table much (text)"
    )
    tries = 0

    def narrow(own: sqlite3.Connection, statement: str) -> None:
        nonlocal tries
        if "insert into windlass_room" in statement:
            tries += 1
            own.execute("pragma max_page_count = 500")

    watched.before_each(narrow)
    checkpointer = Checkpointer(StoreFile(str(path)), look_seconds=0.0)
    while not checkpointer.is_due():
        connection.execute("insert into much values (?)", [LARGE])
    before = path.with_name(path.name + "-wal").stat().st_size
    with pytest.raises(sqlite3.OperationalError, match="full"):
        checkpointer.run(connection)
    assert path.with_name(path.name + "-wal").stat().st_size > before + 1_000_000
    for _ in range(20):
        connection.execute("insert into much values (?)", ["x" * 200])
        assert not checkpointer.is_due()
    assert tries == 1
    checkpointer.close()
    connection.close()


def test_a_log_that_somebody_keeps_short_is_not_made_large_again(path: Path, watched: Watched) -> None:
    outsider = watched.outsider(path)
    outsider.executescript(
        "pragma journal_mode = wal; pragma wal_autocheckpoint = 0; pragma journal_size_limit = 0;"
        "create table much (text)"
    )
    log = path.with_name(path.name + "-wal")
    checkpointer = Checkpointer(StoreFile(str(path)), look_seconds=0.0)
    while not checkpointer.is_due():
        outsider.execute("insert into much values (?)", [LARGE])
    checkpointer.run(outsider)
    assert log.stat().st_size > 4_000_000
    outsider.execute("insert into much values (?)", [LARGE])
    assert log.stat().st_size < 1_000_000, "it was not cut back"
    for _ in range(20):
        outsider.execute("insert into much values (?)", [LARGE])
        assert not checkpointer.is_due()
    while not checkpointer.is_due():
        outsider.execute("insert into much values (?)", [LARGE])
    assert log.stat().st_size > 4_000_000, "it is emptied once that much stands in it"
    checkpointer.close()
    outsider.close()


def test_a_file_without_a_log_is_told_in_words(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table much (text)")
    with pytest.raises(StoreUnavailable, match=r"cannot read .*-wal: No such file"):
        Checkpointer(StoreFile(str(path)))


def test_whoever_has_written_does_not_fail_because_the_store_is_closed_meanwhile(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table much (text)")
    checkpointer = Checkpointer(StoreFile(str(path)), look_seconds=0.0)
    checkpointer.close()
    assert not checkpointer.is_due()
    connection.close()


def test_whoever_comes_behind_a_checkpoint_is_not_made_to_wait_for_company(
    store: Store, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What wakes the writer for a checkpoint is nobody who comes again."""
    monkeypatch.setattr(writer, "_GATHER_SECONDS", 4 * PATIENCE)
    ended = threading.Event()

    def produce() -> None:
        for _ in range(300):
            store.enqueue([a_job(payload=a_payload(text=LARGE))])
        ended.set()

    threading.Thread(target=produce, daemon=True).start()
    assert ended.wait(PATIENCE)
    assert any("wal_checkpoint" in text for said in watched.statements for text in said)


def test_all_who_were_written_for_have_their_answers_before_the_log_is_emptied(
    store: Store, watched: Watched, path: Path
) -> None:
    answered: list[str] = []
    late: list[tuple[int, int]] = []
    looking = watched.outsider(path)

    def look(_: sqlite3.Connection, statement: str) -> None:
        if "wal_checkpoint" not in statement:
            return
        [written] = looking.execute("select count(*) from windlass_jobs").fetchone()
        end = time.monotonic() + PATIENCE
        while len(answered) < written and time.monotonic() < end:
            threading.Event().wait(0.001)
        late.append((len(answered), written))

    def produce() -> None:
        for _ in range(40):
            job = a_job(payload=a_payload(text=LARGE))
            store.enqueue([job])
            answered.append(job.id)

    watched.before_each(look)
    at_once(*(produce for _ in range(4)))
    looking.close()
    assert late, "no checkpoint ran"
    assert [each for each in late if each[0] < each[1]] == []


def test_whoever_waits_for_a_checkpoint_is_not_told_of_a_transaction_of_his_own(
    store: Store, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process holds the write lock meanwhile, but it is ours."""
    monkeypatch.setattr(writer, "_OWN_LOCK_SECONDS", 0.01)
    begun = threading.Event()
    refused: list[WindlassError] = []

    def produce() -> None:
        try:
            store.enqueue([a_job()])
        except WindlassError as refusal:
            refused.append(refusal)

    waiting = threading.Thread(target=produce)

    def wait(_: sqlite3.Connection, statement: str) -> None:
        if "wal_checkpoint" in statement and not begun.is_set():
            begun.set()
            waiting.start()
            waiting.join(HELD_SECONDS)

    watched.before_each(wait)
    while not begun.is_set():
        put(store, *(a_job(payload=a_payload(text=LARGE)) for _ in range(8)))
    waiting.join()
    assert refused == []


def test_only_passive_checkpoints_run(store: Store, watched: Watched) -> None:
    """The other kinds fall back to the racy form when somebody reads."""
    write_much(store)
    checkpoints = {text for said in watched.statements for text in said if "wal_checkpoint" in text}
    assert checkpoints
    assert all("passive" in text for text in checkpoints), checkpoints


def test_no_connection_of_ours_runs_checkpoints_by_itself(store: Store, watched: Watched, path: Path) -> None:
    second = connect.open(f"sqlite:///{path}")
    put_one(store)
    for lease in take(second.store):
        settle(second.store, lease, DONE)
    second.store.counts()
    second.store.status()
    second.store.check()
    second.store.backup(str(path.with_name("copy.db")))
    second.close()
    assert len(watched.statements) >= 4
    for said in watched.statements:
        assert "pragma wal_autocheckpoint = 0" in [text.replace("(0)", " = 0") for text in said], said


def test_the_callers_connection_runs_no_checkpoints_by_itself_from_then_on(store: Store, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute("pragma wal_autocheckpoint").fetchone() == (1000,)
        store.enqueue_on(connection, [a_job()])
        assert connection.execute("pragma wal_autocheckpoint").fetchone() == (0,)
    connection.close()


class Seizing:
    """An outsider who takes the write lock between a commit and the checkpoint after it, for a while."""

    def __init__(self, watched: Watched, path: Path) -> None:
        self.times = 0
        self._outsider = watched.outsider(path, patience=0)
        self._committed = False
        self._free = threading.Event()
        self._free.set()
        watched.before_each(self._seize)

    def _seize(self, _: sqlite3.Connection, statement: str) -> None:
        if self._committed and statement == "begin immediate" and self.times < 3:
            self.times += 1
            self._outsider.execute("begin immediate")
            self._free.clear()
            threading.Timer(HELD_SECONDS, self._let_go).start()
        self._committed = statement == "commit"

    def _let_go(self) -> None:
        self._outsider.execute("rollback")
        self._free.set()

    def close(self) -> None:
        assert self._free.wait(PATIENCE)
        self._outsider.close()


def test_an_answer_is_not_spoilt_by_a_checkpoint_that_cannot_run(
    store: Store, watched: Watched, path: Path
) -> None:
    """The job is committed by then: whoever is told otherwise enqueues it again."""
    write_much(store, megabytes=3)
    seizing = Seizing(watched, path)
    accepted, refused = [], []
    for _ in range(60):
        job = a_job(payload=a_payload(text=LARGE))
        try:
            store.enqueue([job])
            accepted.append(job.id)
        except WindlassError:
            refused.append(job.id)
    seizing.close()
    assert seizing.times
    assert [job_id for job_id in accepted if store.get(job_id) is None] == []
    assert [job_id for job_id in refused if store.get(job_id) is not None] == []
    assert len(accepted) == 60


def test_commits_are_durable_and_written_ahead(store: Store, watched: Watched, path: Path) -> None:
    put_one(store)
    assert all("pragma synchronous = full" in said for said in watched.statements)
    outsider = watched.outsider(path)
    assert outsider.execute("pragma journal_mode").fetchone() == ("wal",)
    outsider.close()


def test_a_write_begins_as_one_so_that_it_never_meets_a_stale_read(store: Store, watched: Watched) -> None:
    put_one(store)
    for lease in take(store):
        assert settle(store, lease, DONE)
    began_with = set()
    for said in watched.statements:
        begin = ""
        for text in said:
            begin = text if text.startswith("begin") else begin
            if WRITES.search(text):
                began_with.add(begin)
    assert began_with == {"begin exclusive", "begin immediate"}
