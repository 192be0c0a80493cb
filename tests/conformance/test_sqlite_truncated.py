"""No job is accepted into a file that was truncated under open processes, and its log is kept."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.conformance.scene import DONE, a_job, put_one, settle, take
from windlass import connect
from windlass.errors import StoreMismatch, StoreUnavailable
from windlass.store.store import Store
from windlass.store.upkeep import Retention

TRUNCATED = r"jobs\.db was truncated to \d+ bytes .* keep .*jobs\.db-wal, and restore a backup"
EMPTIED = r"jobs\.db is damaged: it is empty, and .*jobs\.db-wal beside it is not.* restore a backup"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@contextlib.contextmanager
def opened(path: Path, *, create: bool = True) -> Iterator[Store]:
    with contextlib.closing(connect.open(f"sqlite:///{path}", create=create)) as one:
        yield one.store


def files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def killed_with_jobs(path: Path) -> None:
    """A process that was killed: what it accepted last is only in the log."""
    code = (
        "import os, sys; from windlass import Queue; queue = Queue(sys.argv[1])\n"
        "@queue.job\n"
        "def send(n: int) -> None: ...\n"
        "for n in range(20): send.enqueue(n)\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, f"sqlite:///{path}"], check=True)


@pytest.mark.parametrize("pages", [0, 1, 20])
@pytest.mark.parametrize("many", [False, True])
def test_a_truncated_file_accepts_nothing_and_keeps_its_log(path: Path, pages: int, *, many: bool) -> None:
    with opened(path) as store:
        put_one(store)
        os.truncate(path, pages * 4096)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=TRUNCATED):
                store.enqueue([a_job(), a_job()] if many else [a_job()])
        log = path.with_name("jobs.db-wal").read_bytes()
    assert path.stat().st_size == pages * 4096, "the log does not go into what is left of the file"
    assert path.with_name("jobs.db-wal").read_bytes() == log


def test_a_store_that_is_closed_after_its_file_was_truncated_keeps_its_log(path: Path) -> None:
    with opened(path) as store:
        put_one(store)
        os.truncate(path, 0)
    assert path.stat().st_size == 0
    assert path.with_name("jobs.db-wal").stat().st_size > 0


def test_a_process_that_ends_without_closing_keeps_the_log_of_a_truncated_file(path: Path) -> None:
    code = (
        "import os, sys; from windlass import Queue; queue = Queue(sys.argv[1])\n"
        "@queue.job\n"
        "def send(n: int) -> None: ...\n"
        "send.enqueue(1); os.truncate(sys.argv[2], 0)\n"
        "try: send.enqueue(2)\n"
        "except Exception as error: print(error)"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{path}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "was truncated to 0 bytes" in done.stdout
    assert path.stat().st_size == 0
    assert path.with_name("jobs.db-wal").stat().st_size > 0


def test_a_file_that_became_shorter_by_a_vacuum_is_used_on(path: Path) -> None:
    payload = b'{"text": "' + b"x" * 20_000 + b'"}'
    with opened(path) as store, opened(path) as other:
        for _ in range(30):
            store.enqueue([a_job(payload=payload) for _ in range(10)])
        put_one(other)
        with contextlib.closing(sqlite3.connect(path)) as outsider:
            outsider.execute("pragma wal_checkpoint(passive)")
        put_one(store)
        put_one(other)
        long = path.stat().st_size
        while leases := take(store, limit=100):
            for lease in leases:
                settle(store, lease, DONE)
        store.prune(Retention(ended=timedelta(0)), limit=100_000)
        with contextlib.closing(sqlite3.connect(path)) as outsider:
            outsider.execute("pragma incremental_vacuum")
            outsider.execute("pragma wal_checkpoint(passive)")
        assert path.stat().st_size < long / 2
        for each in (store, other):
            put_one(each)
            each.enqueue([a_job(), a_job()])
        assert store.check() == []


@pytest.mark.parametrize("create", [False, True])
def test_an_empty_file_beside_a_log_is_refused_and_nothing_is_changed(path: Path, *, create: bool) -> None:
    killed_with_jobs(path)
    os.truncate(path, 0)
    before = files(path.parent)
    assert before["jobs.db-wal"]
    with pytest.raises(StoreMismatch, match=EMPTIED), opened(path, create=create):
        pass
    assert files(path.parent) == before


def test_looking_at_a_new_empty_file_beside_the_log_of_another_one_changes_nothing(path: Path) -> None:
    killed_with_jobs(path)
    path.rename(path.with_name("aside.db"))
    path.touch()
    before = files(path.parent)
    with pytest.raises(StoreMismatch, match=EMPTIED), opened(path, create=False):
        pass
    assert files(path.parent) == before


def test_a_restored_backup_keeps_the_emptied_file_and_its_log(path: Path) -> None:
    with opened(path) as store:
        put_one(store)
        store.backup(str(path.with_name("backup.db")))
    killed_with_jobs(path)
    os.truncate(path, 0)
    log = path.with_name("jobs.db-wal").read_bytes()
    kept = connect.restore(f"sqlite:///{path}", str(path.with_name("backup.db"))).kept
    assert kept is not None
    assert Path(f"{kept}-wal").read_bytes() == log
    with opened(path, create=False) as store:
        assert store.check() == []
        put_one(store)


def test_looking_does_not_make_a_store_of_an_empty_file(path: Path) -> None:
    path.touch()
    with (
        pytest.raises(StoreUnavailable, match=r"there is no store at .*jobs\.db"),
        opened(path, create=False),
    ):
        pass
    assert files(path.parent) == {"jobs.db": b""}
    with opened(path) as store:
        put_one(store)


def test_looking_does_not_make_a_store_of_a_database_without_tables(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("pragma user_version = 7")
    before = files(path.parent)
    assert before["jobs.db"]
    with (
        pytest.raises(StoreUnavailable, match=r"there is no store at .*jobs\.db"),
        opened(path, create=False),
    ):
        pass
    assert files(path.parent) == before


def test_looking_leaves_nothing_beside_another_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("create table precious (a)")
    before = files(path.parent)
    with pytest.raises(StoreMismatch, match="without Windlass tables"), opened(path, create=False):
        pass
    assert files(path.parent) == before
