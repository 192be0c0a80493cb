"""No job is accepted into a file that was removed, renamed or replaced under open processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.scene import DONE, a_job, put_one, settle, take
from tests.conformance.watching import Watched, watched
from windlass import connect
from windlass.errors import StoreMismatch, StoreUnavailable
from windlass.store.engine import Settlement
from windlass.store.jobs import Filter
from windlass.store.sqlite import storefile
from windlass.store.store import Store

__all__ = ["watched"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@contextlib.contextmanager
def opened(path: Path, *, create: bool = True) -> Iterator[Store]:
    one = connect.open(f"sqlite:///{path}", create=create)
    try:
        yield one.store
    finally:
        one.close()


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


def ids(store: Store) -> list[str]:
    return [job.id for job in reversed(store.find(Filter(), limit=1000).jobs)]


def in_new_process(path: Path) -> tuple[list[str], list[str]]:
    """The jobs that a process that has just started finds, and what its check finds wrong."""
    code = (
        "import json, sys; from windlass import connect; from windlass.store.jobs import Filter\n"
        "store = connect.open(sys.argv[1], create=False).store\n"
        "found = [job.id for job in reversed(store.find(Filter(), limit=1000).jobs)]\n"
        "print(json.dumps([found, store.check()])); store.close()"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, problems = json.loads(done.stdout)
    return found, problems


def backed_up(store: Store, path: Path) -> Path:
    copy = path.with_name("backup.db")
    store.backup(str(copy))
    return copy


def test_after_the_file_was_removed_nothing_is_accepted_and_no_new_file_is_made(
    store: Store, path: Path
) -> None:
    put_one(store)
    path.unlink()
    for _ in range(3):
        with pytest.raises(
            StoreUnavailable, match=r"jobs\.db was removed or renamed .* `windlass db restore`"
        ):
            put_one(store)
        with pytest.raises(StoreUnavailable, match="removed or renamed"):
            store.counts()
    assert not path.exists()


def test_a_renamed_file_takes_all_that_was_accepted_with_it(store: Store, path: Path, tmp_path: Path) -> None:
    accepted = [put_one(store).id for _ in range(20)]
    elsewhere = tmp_path / "elsewhere" / "old.db"
    elsewhere.parent.mkdir()
    path.rename(elsewhere)
    with pytest.raises(StoreUnavailable, match="removed or renamed"):
        put_one(store)
    store.close()
    assert in_new_process(elsewhere) == (accepted, [])


def test_a_file_that_comes_back_is_used_by_processes_that_start_then(store: Store, path: Path) -> None:
    accepted = [put_one(store).id for _ in range(20)]
    aside = path.with_name("aside.db")
    path.rename(aside)
    with pytest.raises(StoreUnavailable):
        put_one(store)
    found, problems = in_new_process(aside)
    assert (found, problems) == (accepted, [])
    aside.rename(path)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="put back while it was open: restart this process"):
            put_one(store)
    with opened(path) as other:
        accepted.append(put_one(other).id)
        assert in_new_process(path) == (accepted, [])


def test_a_replaced_file_is_refused_once_and_then_used(store: Store, path: Path) -> None:
    kept = put_one(store)
    copy = backed_up(store, path)
    put_one(store)
    copy.rename(path)
    with pytest.raises(StoreUnavailable, match="replaced by another file"):
        put_one(store)
    after = put_one(store)
    assert ids(store) == [kept.id, after.id]
    assert in_new_process(path) == ([kept.id, after.id], [])


def test_a_process_that_starts_beside_the_log_of_a_replaced_file_finds_the_new_file_whole(
    store: Store, path: Path
) -> None:
    """SQLite alone would write the old log into the new file."""
    kept = [put_one(store).id for _ in range(5)]
    copy = backed_up(store, path)
    for _ in range(50):
        put_one(store)
    copy.rename(path)
    assert in_new_process(path) == (kept, [])
    with pytest.raises(StoreUnavailable, match="replaced by another file"):
        put_one(store)
    assert in_new_process(path) == (kept, [])
    assert path.with_name("jobs.db-wal.old-1").exists(), "nothing of the old store is thrown away"


def test_a_log_that_its_writer_removes_meanwhile_does_not_fail_the_opening(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_one(store)
    backed_up(store, path).rename(path)
    found, looks = storefile._orphans, iter((False, True))  # noqa: SLF001

    def removed_meanwhile(*args: Any) -> list[str]:
        """It is looked for twice, the second time under the lock."""
        names = found(*args)
        for suffix in names if next(looks) else ():
            path.with_name(path.name + suffix).unlink()
        return names

    monkeypatch.setattr(storefile, "_orphans", removed_meanwhile)
    with opened(path, create=False) as other:
        assert len(ids(other)) == 1


def test_a_new_store_beside_the_log_of_a_removed_one_is_whole(store: Store, path: Path) -> None:
    for _ in range(50):
        put_one(store)
    path.unlink()
    with opened(path) as other:
        job = put_one(other)
        assert other.check() == []
    assert in_new_process(path) == ([job.id], [])


def test_the_log_of_a_killed_process_is_kept_with_its_own_file(path: Path) -> None:
    """It was never closed: what it accepted last is only in the log."""
    code = (
        "import os, sys; from windlass import Queue; queue = Queue(sys.argv[1])\n"
        "@queue.job\n"
        "def send(n: int) -> None: ...\n"
        "for n in range(20): send.enqueue(n)\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, f"sqlite:///{path}"], check=True)
    found, problems = in_new_process(path)
    assert (len(found), problems) == (20, [])


@pytest.mark.parametrize("alone", [True, False])
def test_a_job_whose_file_goes_during_its_commit_is_not_acknowledged(
    watched: Watched, path: Path, *, alone: bool
) -> None:
    moments = {True: "insert into windlass_jobs", False: "commit"}
    gone = threading.Event()

    def remove(_: sqlite3.Connection, statement: str) -> None:
        if armed.is_set() and moments[alone] in statement and not gone.is_set():
            gone.set()
            path.unlink()

    armed = threading.Event()
    watched.before_each(remove)
    with opened(path) as store:
        put_one(store)
        armed.set()
        with pytest.raises(StoreUnavailable, match="removed or renamed"):
            store.enqueue([a_job()] if alone else [a_job(), a_job()])
        assert gone.is_set()


def test_every_job_that_many_threads_were_told_is_accepted_is_in_one_of_the_files(
    store: Store, path: Path
) -> None:
    accepted: list[str] = []
    refused: list[StoreUnavailable] = []
    go_on, moved = threading.Event(), threading.Event()

    def produce() -> None:
        while not go_on.is_set() or len(accepted) < 50:
            try:
                accepted.append(store.enqueue([a_job()])[0].id)
            except StoreUnavailable as refusal:
                refused.append(refusal)
            if moved.is_set() and refused:
                go_on.set()

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(accepted) < 200:
        threads[0].join(0.001)
    old = path.with_name("old.db")
    copy = backed_up(store, path)
    path.rename(old)
    copy.rename(path)
    moved.set()
    for thread in threads:
        thread.join()
    store.close()
    in_old, in_new = in_new_process(old), in_new_process(path)
    assert refused
    assert (in_old[1], in_new[1]) == ([], [])
    assert set(accepted) <= {*in_old[0], *in_new[0]}


def test_what_runs_when_the_file_is_replaced_is_settled_in_no_file(store: Store, path: Path) -> None:
    """Its lease is in the old file: in the restored one the job waits and runs again."""
    job = put_one(store)
    copy = backed_up(store, path)
    [lease] = take(store)
    copy.rename(path)
    with pytest.raises(StoreUnavailable):
        settle(store, lease, DONE)
    assert not settle(store, lease, DONE)
    found = store.get(job.id)
    assert found is not None
    assert found.state == "pending"


def test_a_callers_connection_to_the_old_file_is_refused(store: Store, path: Path) -> None:
    put_one(store)
    caller = sqlite3.connect(path, isolation_level=None)
    store.enqueue_on(caller, [a_job()])
    caller.execute("commit")
    copy = backed_up(store, path)
    copy.rename(path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.enqueue_on(caller, [a_job()])
    put_one(store)
    before = len(ids(store))
    with pytest.raises(StoreUnavailable, match=r"connection= is open on a file that is no longer at"):
        store.enqueue_on(caller, [a_job()])
    caller.close()
    caller.close()
    again = sqlite3.connect(path, isolation_level=None)
    store.enqueue_on(again, [a_job()])
    again.execute("commit")
    again.close()
    assert len(ids(store)) == before + 1


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_log_removed_under_an_open_store_is_noticed_and_nothing_is_lost(path: Path, suffix: str) -> None:
    with opened(path) as store:
        accepted = [put_one(store).id for _ in range(20)]
        path.with_name(path.name + suffix).unlink()
        with pytest.raises(StoreUnavailable, match="stop every process"):
            put_one(store)
        with pytest.raises(StoreUnavailable, match="stop every process"):
            put_one(store)
    found, problems = in_new_process(path)
    assert found[:20] == accepted
    assert problems == []


def test_a_log_is_missed_also_in_a_folder_that_was_quiet(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names are known not to have changed; then one does."""
    monkeypatch.setattr(storefile, "_SETTLE_SECONDS", 0.0)
    looked: list[str] = []
    look = storefile._identity  # noqa: SLF001

    def noted(name: str) -> storefile.Identity | None:
        looked.append(name)
        return look(name)

    monkeypatch.setattr(storefile, "_identity", noted)
    with opened(path) as store:
        for _ in range(3):
            put_one(store)
        looked.clear()
        put_one(store)
        assert looked == [], "the time of the folder is enough"
        path.with_name("jobs.db-wal").unlink()
        with pytest.raises(StoreUnavailable, match="stop every process"):
            put_one(store)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_handlers_transaction_is_refused_without_the_log(path: Path, suffix: str) -> None:
    with opened(path) as store:
        put_one(store)
        [lease] = take(store)
        path.with_name(path.name + suffix).unlink()
        within = store.handlers().transaction(
            lambda: Settlement(lease, DONE, timedelta(0)), within=timedelta(seconds=5)
        )
        with pytest.raises(StoreUnavailable, match="stop every process"), within:
            raise AssertionError("the handler must not get a connection")


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_callers_connection_is_refused_without_the_log(path: Path, suffix: str) -> None:
    with opened(path) as store:
        put_one(store)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as caller:
            path.with_name(path.name + suffix).unlink()
            with pytest.raises(StoreUnavailable, match="stop every process"):
                store.enqueue_on(caller, [a_job()])


def test_a_link_that_leads_to_another_file_is_a_replaced_file(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        with opened(tmp_path / name) as each:
            put_one(each)
    link = tmp_path / "current.db"
    link.symlink_to("one.db")
    with opened(link) as store:
        put_one(store)
        (tmp_path / "next").symlink_to("two.db")
        (tmp_path / "next").rename(link)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                put_one(store)
    assert len(in_new_process(tmp_path / "two.db")[0]) == 1


def test_after_a_fork_the_parent_notices_that_its_file_was_replaced(store: Store, path: Path) -> None:
    kept = put_one(store)
    copy = backed_up(store, path)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    copy.rename(path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        put_one(store)
    assert ids(store) == [kept.id]


def test_a_file_that_is_no_store_is_not_taken_for_one(store: Store, path: Path) -> None:
    put_one(store)
    other = path.with_name("other.db")
    with contextlib.closing(sqlite3.connect(other)) as stranger:
        stranger.execute("create table precious (a)")
    before = other.read_bytes()
    other.rename(path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        put_one(store)
    for _ in range(2):
        with pytest.raises(StoreMismatch, match="without Windlass tables"):
            put_one(store)
    assert path.read_bytes() == before


# --- permissions --------------------------------------------------------------------------------


def modes(path: Path) -> dict[str, str]:
    return {
        file.name.removeprefix(path.name): oct(file.stat().st_mode & 0o777)
        for file in path.parent.glob(f"{path.name}*")
    }


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_only_the_user_that_makes_a_store_may_read_it_or_hold_its_locks(path: Path) -> None:
    with opened(path) as store:
        put_one(store)
        assert modes(path) == dict.fromkeys(("", "-wal", "-shm", "-turn", "-door"), "0o600")
        copy = backed_up(store, path)
        assert oct(copy.stat().st_mode & 0o777) == "0o600"


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("mode", [0o640, 0o660, 0o644])
def test_the_files_beside_a_store_follow_the_mode_that_the_operator_chose(path: Path, mode: int) -> None:
    with opened(path) as store:
        put_one(store)
    path.chmod(mode)
    with opened(path) as store:
        put_one(store)
        assert set(modes(path).values()) == {oct(mode)}
        assert oct(backed_up(store, path).stat().st_mode & 0o777) == oct(mode)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o660, False), (0o644, True), (0o666, True)])
def test_the_status_warns_of_a_store_that_every_user_can_read(path: Path, mode: int, *, warned: bool) -> None:
    with opened(path) as store:
        put_one(store)
    path.chmod(mode)
    with opened(path) as store:
        notes = [note for note in store.status().notes if "every user" in note]
    assert bool(notes) is warned
    assert all("chmod" in note for note in notes)


# --- where processes cannot wait for each other ---------------------------------------------------

SECOND = """
import fcntl, sys
from windlass.store.sqlite.storefile import OnlyProcess
try:
    OnlyProcess(sys.argv[1], lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
    print("taken")
except Exception as refusal:
    print(refusal)
"""


def test_without_locks_between_processes_a_second_process_is_refused(path: Path) -> None:
    """As on Windows; the lock itself is the system's."""

    def second() -> str:
        command = [sys.executable, "-c", SECOND, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    path.touch()
    first, again = (
        storefile.OnlyProcess(str(path), lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
        for _ in range(2)
    )
    assert first.take_if_free()
    assert again.take_if_free(), "threads of one process are kept in order by SQLite"
    assert "only one may use a SQLite store" in second()
    first.close()
    assert "only one may use a SQLite store" in second()
    again.close()
    assert second() == "taken\n"
