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


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes that we sync ourselves."""
    inodes: list[int] = []
    sync = os.fsync

    def noted(file: int) -> None:
        inodes.append(os.fstat(file).st_ino)
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    return inodes


def test_a_backup_is_on_the_disk_before_it_is_acknowledged(path: Path, synced: list[int]) -> None:
    """Found by `make power-cuts`: the copy's journal came back, and SQLite undid the copy with it."""
    copy = path.with_name("backup.db")
    with opened(path) as store:
        put_one(store)
        synced.clear()
        store.backup(str(copy))
        assert synced == [path.parent.stat().st_ino]


def test_whose_log_it_is_is_on_the_disk_before_anything_is_in_the_log(path: Path, synced: list[int]) -> None:
    """Found by `make power-cuts`: a backup that was renamed into place got the log of the store before it."""
    with opened(path):
        assert path.with_name("jobs.db-turn").stat().st_ino in synced


def test_a_log_that_is_set_aside_stays_there_after_a_power_cut(
    path: Path, backup: Path, synced: list[int]
) -> None:
    with opened(path) as store:
        put_one(store)
        backup.rename(path)
        synced.clear()
        with opened(path):
            assert path.with_name("jobs.db-wal.old-1").exists()
        lock, folder = path.with_name("jobs.db-turn").stat().st_ino, path.parent.stat().st_ino
        assert synced[:2] == [folder, lock], "the names first"


def test_a_restored_file_can_be_opened_after_a_power_cut_at_its_first_opening(
    path: Path, backup: Path
) -> None:
    """Found by `make power-cuts`: the log was on the disk, and the removal of the journal was not."""
    path.unlink()
    backup.rename(path)
    journal, kept = path.with_name("jobs.db-journal"), path.with_name("kept")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        connection.execute("pragma user_version = 7")
        # Removed by the commit, and whole under its other name.
        kept.hardlink_to(journal)
        connection.execute("commit")
    kept.rename(journal)
    path.with_name("jobs.db-wal").write_bytes(a_log_header(path.with_name("other.db")))
    assert count(path) == 2


def a_log_header(path: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table one (number)")
        return path.with_name(path.name + "-wal").read_bytes()[:32]


def test_that_a_log_is_gone_is_on_the_disk_before_its_note_is_cleared(path: Path, synced: list[int]) -> None:
    """Found by `make power-cuts`: the log came back beside a backup that was moved to its store's place."""
    with opened(path) as store:
        put_one(store)
        synced.clear()
    assert not path.with_name("jobs.db-wal").exists()
    assert path.with_name("jobs.db-turn").read_bytes() == b""
    assert synced == [path.parent.stat().st_ino]


def test_a_restore_syncs_what_is_left_of_the_old_file_before_the_new_one_takes_its_place(
    path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `make power-cuts`: the journal of the old file came back beside the new one."""
    steps: list[str] = []
    sync, rename = os.fsync, os.rename
    folder = path.parent.stat().st_ino

    def synced(file: int) -> None:
        steps.extend(["sync"] * (os.fstat(file).st_ino == folder))
        sync(file)

    def renamed(old: str, new: str) -> None:
        steps.extend(["rename"] * (new == str(path)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    connect.restore(str(path), str(backup))
    assert steps[:3] == ["sync", "rename", "sync"]
