"""A backup takes the place of a store: checked first, while nobody else has it open, and in one step."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.scene import put_one, take
from windlass import connect
from windlass.errors import InvalidValue, Refused, StoreBusy, StoreError
from windlass.store.jobs import Filter
from windlass.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def backup(path: Path) -> Path:
    """A backup with one job that waits and one that runs, of a store that has gone on since."""
    copy = path.with_name("backup.db")
    with opened(path) as store:
        put_one(store)
        take(store)
        put_one(store)
        store.backup(str(copy))
        put_one(store)
    return copy


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Store]:
    one = connect.open(f"sqlite:///{path}")
    try:
        yield one.store
    finally:
        one.close()


def count(path: Path) -> int:
    with opened(path) as store:
        assert store.check() == []
        return store.count(Filter(), limit=100)


def test_the_store_is_as_it_was_when_the_backup_was_taken_and_the_old_file_is_kept(
    path: Path, backup: Path
) -> None:
    done = connect.restore(str(path), str(backup))
    assert (done.live, done.running, done.archived, done.pending) == (2, 1, 0, ())
    assert count(path) == 2
    assert done.kept is not None
    assert count(Path(done.kept)) == 3
    assert count(backup) == 2, "the backup stays as it is"
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_nothing_is_restored_while_another_connection_is_open(path: Path, backup: Path) -> None:
    with opened(path) as store:
        with pytest.raises(StoreBusy, match=r"is open in .*stop every worker, server and producer"):
            connect.restore(str(path), str(backup))
        put_one(store)
    assert count(path) == 4
    assert not list(path.parent.glob(".windlass*"))


def test_a_process_that_knows_nothing_of_us_counts_too(path: Path, backup: Path) -> None:
    """As an older release, or somebody's shell."""
    with contextlib.closing(sqlite3.connect(path)) as outsider:
        outsider.execute("select count(*) from windlass_jobs").fetchone()
        with pytest.raises(StoreBusy):
            connect.restore(str(path), str(backup))
    connect.restore(str(path), str(backup))
    assert count(path) == 2


def test_the_log_of_a_store_that_was_never_closed_does_not_reach_the_restored_one(
    path: Path, backup: Path
) -> None:
    """What a killed worker leaves behind."""
    with opened(path) as store:
        for _ in range(50):
            put_one(store)
        left = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("-wal",)}
    for suffix, contents in left.items():
        path.with_name(path.name + suffix).write_bytes(contents)
    done = connect.restore(str(path), str(backup))
    assert count(path) == 2
    assert done.kept is not None
    assert count(Path(done.kept)) == 53


def test_a_store_that_is_damaged_beyond_opening_is_replaced_and_kept(path: Path, backup: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    done = connect.restore(str(path), str(backup))
    assert done.kept is not None
    assert Path(done.kept).read_bytes() == b"no database" * 1000
    assert count(path) == 2


def test_a_store_that_is_gone_is_made_from_the_backup(path: Path, backup: Path) -> None:
    path.unlink()
    assert connect.restore(str(path), str(backup)).kept is None
    assert count(path) == 2


def damaged(backup: Path) -> None:
    whole = backup.read_bytes()
    backup.write_bytes(whole[: len(whole) // 2] + b"\xff" * 5000 + whole[len(whole) // 2 + 5000 :])


def without_our_tables(backup: Path) -> None:
    backup.unlink()
    with contextlib.closing(sqlite3.connect(backup)) as stranger:
        stranger.execute("create table precious (a)")


def of_a_newer_release(backup: Path) -> None:
    with contextlib.closing(sqlite3.connect(backup)) as newer:
        newer.execute("insert into windlass_schema values (9999, 'later', 'contract', 0)")
        newer.commit()


@pytest.mark.parametrize("spoil", [damaged, without_our_tables, of_a_newer_release, Path.unlink])
def test_what_is_no_whole_backup_of_ours_is_refused_and_the_store_left_alone(
    path: Path, backup: Path, spoil: object
) -> None:
    spoil(backup)  # type: ignore[operator]
    with pytest.raises((InvalidValue, StoreError), match=r"backup\.db"):
        connect.restore(str(path), str(backup))
    assert count(path) == 3
    assert sorted(file.name for file in path.parent.glob("*restore*")) == []


def test_a_store_is_not_its_own_backup(path: Path, backup: Path) -> None:
    assert backup.exists()
    with pytest.raises(InvalidValue, match="another file than the store itself"):
        connect.restore(str(path), str(path))


@pytest.mark.parametrize("url", ["postgresql://app@db.example/jobs", "https://jobs.example"])
def test_what_is_no_file_is_restored_by_other_means(url: str, backup: Path) -> None:
    with pytest.raises(Refused, match="pg_restore"):
        connect.restore(url, str(backup))


def test_a_backup_is_on_the_disk_before_it_is_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `make power-cuts`: SQLite 3.40 does not sync what `vacuum into` writes."""
    synced: list[int] = []
    sync = os.fsync

    def noted(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    copy = path.with_name("backup.db")
    with opened(path) as store:
        put_one(store)
        store.backup(str(copy))
    assert synced == [copy.stat().st_ino, copy.parent.stat().st_ino], "first the file, then its name"
