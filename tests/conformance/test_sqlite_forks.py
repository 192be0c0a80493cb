"""Forks, interrupts and links: nothing of SQLite's locks may be lost, and none may be left behind."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.scene import a_job, a_payload, put_one
from tests.conformance.watching import Watched, watched
from tests.waiting import PATIENCE
from windlass import connect
from windlass.errors import StoreError, StoreUnavailable
from windlass.store.jobs import Filter
from windlass.store.sqlite.store import SqliteStore
from windlass.store.store import Store

__all__ = ["watched"]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(SqliteStore(str(path))) as opened:
        yield opened


def in_child(work: Callable[[], None]) -> Callable[[], int]:
    """Run something in a forked process; the answer waits for it and gives its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_a_child_stored_is_there_after_its_parent_has_closed(store: Store, path: Path) -> None:
    put_one(store)
    parent_closed, child_open = os.pipe(), os.pipe()

    def work() -> None:
        with closing(SqliteStore(str(path))) as own:
            put_one(own)
            os.write(child_open[1], b"x")
            os.read(parent_closed[0], 1)
            for _ in range(50):
                put_one(own)

    ended = in_child(work)
    os.read(child_open[0], 1)
    store.close()
    # Whoever comes and goes alone would take the log with it, if the child's locks were not real.
    with closing(SqliteStore(str(path))) as alone:
        assert alone.count(Filter(), limit=1000) == 2
    os.write(parent_closed[1], b"x")
    assert ended() == 0
    with closing(SqliteStore(str(path))) as after:
        assert after.count(Filter(), limit=1000) == 52
        assert after.check() == []


def test_a_parent_goes_on_after_a_fork(store: Store) -> None:
    watch = store.watch()  # type: ignore[attr-defined]
    put_one(store)
    before = watch()
    assert in_child(lambda: None)() == 0
    put_one(store)
    assert store.count(Filter(), limit=10) == 2
    assert isinstance(watch(), int), before


def test_a_store_from_before_a_fork_is_refused_in_the_child(store: Store) -> None:
    def work() -> None:
        for verb in (lambda: put_one(store), store.counts):
            with pytest.raises(StoreUnavailable, match="open it again"):
                verb()
        store.close()

    assert in_child(work)() == 0
    assert put_one(store).seq


def test_forks_while_others_write_leave_parent_and_child_able_to_write(store: Store, path: Path) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            put_one(store)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()

    def work() -> None:
        with closing(SqliteStore(str(path))) as own:
            put_one(own)

    codes = [in_child(work)() for _ in range(8)]
    done.set()
    for writer in writers:
        writer.join()
    assert codes == [0] * 8
    assert store.check() == []


@pytest.mark.parametrize("which", ["door", "turn"])
def test_a_file_that_cannot_be_opened_after_a_fork_is_opened_when_it_can(
    store: Store, path: Path, which: str
) -> None:
    """Such as when too many files are open for a moment; none is taken for open that is not."""
    put_one(store)
    file = Path(f"{path}-{which}")
    assert in_child(lambda: None)() == 0
    file.unlink()
    file.mkdir()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=file.name):
            put_one(store)
    assert in_child(lambda: None)() == 0
    file.rmdir()
    assert put_one(store).seq
    assert store.count(Filter(), limit=10) == 2


def test_a_child_that_was_forked_in_the_midst_of_a_write_is_told(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.sqlite.writer._ENDING_SECONDS", 0.05)
    writing, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        writing.set()
        assert go_on.wait(PATIENCE)

    writer = threading.Thread(target=store._writer.run, args=(slow,))  # type: ignore[attr-defined]  # noqa: SLF001
    writer.start()
    assert writing.wait(PATIENCE)

    def work() -> None:
        with pytest.raises(StoreUnavailable, match="forked while"):
            SqliteStore(str(path))

    ended = in_child(work)
    go_on.set()
    writer.join()
    assert ended() == 0
    assert put_one(store).seq


def test_who_is_killed_while_the_log_is_made_large_leaves_all_that_was_accepted(
    path: Path, watched: Watched
) -> None:
    reading, telling = os.pipe()
    making: list[sqlite3.Connection] = []

    def kill(connection: sqlite3.Connection, statement: str) -> None:
        if "insert into windlass_room" in statement:
            making.append(connection)
        elif connection in making and statement == "rollback":
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        watched.before_each(kill)
        own = SqliteStore(str(path))
        while True:
            os.write(telling, put_one(own, payload=a_payload(text="x" * 2_000)).id.encode() + b"\n")

    ended = in_child(work)
    os.close(telling)
    with os.fdopen(reading, encoding="ascii") as told:
        accepted = told.read().split()
    assert ended() == -signal.SIGKILL
    log = path.with_name(path.name + "-wal")
    assert log.stat().st_size > 4_000_000, "it was killed at another moment"
    with closing(SqliteStore(str(path))) as after:
        assert [job_id for job_id in accepted if after.get(job_id) is None] == []
        assert after.check() == []
        assert put_one(after).seq > len(accepted)
    with closing(sqlite3.connect(path)) as outsider:
        assert outsider.execute("select 1 from sqlite_schema where name = 'windlass_room'").fetchall() == []


# --- interrupts -------------------------------------------------------------------------------


class Struck(BaseException):
    """As an interrupt from the keyboard, or a handler's time being over."""


def is_free(path: Path) -> bool:
    """Whether another process could write now."""

    def work() -> None:
        with closing(SqliteStore(str(path), patience=PATIENCE)) as own:
            put_one(own)

    return in_child(work)() == 0


def test_an_exception_that_strikes_a_writing_thread_leaves_no_lock_behind(store: Store, path: Path) -> None:
    accepted: list[str] = []
    strikes = 300
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            try:
                while not stop.is_set():
                    [answer] = store.enqueue([a_job()])
                    accepted.append(answer.id)
            except Struck:
                continue

    writer = threading.Thread(target=write)
    # A strike in the midst of somebody's callback for collections would be swallowed there.
    gc.disable()
    try:
        writer.start()
        pause = threading.Event()
        for number in range(strikes):
            pause.wait(0.0007 + (number % 7) / 10_000)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(writer.ident or 0), ctypes.py_object(Struck)
            )
        stop.set()
        writer.join()
    finally:
        gc.enable()
    locks = Path("/proc/locks").read_text(encoding="ascii") if sys.platform == "linux" else ""
    held = [line for line in locks.splitlines() if f" {os.getpid()} " in line and "FLOCK" in line]
    assert not [line for line in held if str(Path(f"{path}-turn").stat().st_ino) in line]
    assert is_free(path)
    assert all(store.get(job_id) for job_id in accepted)


def test_an_exception_of_the_callers_own_comes_through_as_it_is(store: Store) -> None:
    def broken(_: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        store._writer.run(broken)  # type: ignore[attr-defined]  # noqa: SLF001
    assert put_one(store).seq


# --- one file, several names ------------------------------------------------------------------


def test_a_store_behind_a_link_is_the_same_store(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    first, second = connect.open(str(path)), connect.open(str(link))
    job = put_one(first.store)
    assert second.store.get(job.id) is not None
    assert second.store.status().url == first.store.status().url
    first.close()
    second.close()
    assert not (tmp_path / "link.db-turn").exists()


def test_a_log_that_a_long_reader_let_grow_is_emptied_as_often_as_before(store: Store, path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from windlass_jobs").fetchone()
        payload = b'{"text":"' + b"x" * 60_000 + b'"}'
        while log.stat().st_size < 90_000_000:
            store.enqueue([a_job(payload=payload) for _ in range(50)])
    store.enqueue([a_job(payload=payload) for _ in range(200)])
    for _ in range(20):
        store.enqueue([a_job(payload=payload) for _ in range(50)])
    assert log.stat().st_size < 80_000_000


def test_a_damaged_file_is_told_in_words_also_when_writing(store: Store, path: Path) -> None:
    put_one(store)
    store.close()
    path.write_bytes(b"this is not a database, it only has the name of one" * 100)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with pytest.raises(StoreError, match="not a SQLite database"):
        SqliteStore(str(path))
