"""Which files are refused, in which words, and is nothing of them changed?"""

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

from tests.conformance.scene import DONE, a_job, a_payload, in_every_state, put, put_one, settle, take
from tests.conformance.watching import Watched, watched
from tests.servers import disks
from windlass import Queue, connect
from windlass.cli.main import run
from windlass.errors import InvalidValue, StoreBusy, StoreError, StoreMismatch, StoreUnavailable
from windlass.store.jobs import Filter
from windlass.store.sqlite.health import _PAGES_AT_ONCE
from windlass.store.store import Store
from windlass.store.upkeep import Retention
from windlass.url import without_password

__all__ = ["watched"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@contextlib.contextmanager
def opened(path: Path, *, create: bool = True, patience: float = 30) -> Iterator[Store]:
    one = connect.open(f"sqlite:///{path}", create=create, patience=patience)
    try:
        yield one.store
    finally:
        one.close()


def refusal_of(path: Path, kind: type[StoreError], *, create: bool = True) -> str:
    """The one clear line, naming the file, by which opening is refused."""
    with pytest.raises(kind) as refusal, opened(path, create=create):
        pass
    message = str(refusal.value)
    assert "\n" not in message
    assert str(path) in message
    return message


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "mysql://host/db", "sqlite://jobs.db", "sqlite:///", "sqlite:///:mem:"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="sqlite:///"):
        connect.open(url)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db.example password=hunter2",
        "password = hunter2 dbname=jobs",
        "user=app port=5432 password='hunter2'",
    ],
)
def test_a_libpq_connection_string_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (connect.open, Queue):
        with pytest.raises(InvalidValue, match="postgresql://") as refusal:
            use(dsn)
        assert "hunter2" not in str(refusal.value)
    assert "hunter2" not in without_password(dsn)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite:///jobs.db?mode=ro", "jobs.db?mode=ro&cache=shared"])
def test_parameters_in_the_url_of_a_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=r"must be without parameters for a file, got .*jobs\.db\?mode="):
        Queue(url)
    assert list(tmp_path.iterdir()) == []


def test_a_queue_with_an_empty_url_is_refused() -> None:
    with pytest.raises(InvalidValue, match="database URL must be a path"):
        Queue("")


def test_a_queue_takes_the_path_of_a_file(path: Path) -> None:
    with Queue(path) as queue:
        assert queue.open() is queue
        assert path.exists()
        put_one(queue.store)


@pytest.mark.parametrize("name", ["q?x=1.db", "q?mode=ro", "100%.db", "q%3Fx=1.db"])
def test_the_path_of_a_queue_is_the_name_of_its_file_as_it_is(tmp_path: Path, name: str) -> None:
    with Queue(tmp_path / name) as queue:
        put_one(queue.store)
        connect.handlers(queue.store.shared_address()).close()
    assert [each.name for each in tmp_path.glob("*") if not each.name.endswith(("-turn", "-door"))] == [name]


def test_a_queue_takes_nothing_else_for_a_url() -> None:
    with pytest.raises(InvalidValue, match="database URL must be a path"):
        Queue(5)  # type: ignore[arg-type]


def test_a_password_in_a_refused_url_is_not_shown() -> None:
    with pytest.raises(InvalidValue) as refusal:
        connect.open("mysql://user:secret@host/db")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "name", ["jobs.db", "with space.db", "per%20cent.db", "question?.db", "hash#.db", "ü.db"]
)
def test_a_file_of_any_name_is_the_file_of_that_name(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / name) as store:
        put_one(store)
    assert (tmp_path / name).stat().st_size > 0
    with opened(tmp_path / name, create=False) as store:
        assert store.count(Filter(), limit=9) == 1


def test_a_bare_path_is_a_url_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("here.db", "sqlite:///there.db"):
        connect.open(url).close()
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["here.db", "there.db"]


def test_a_store_in_memory_works_and_is_gone_with_its_opening() -> None:
    one = connect.open("sqlite:///:memory:")
    other = connect.open("sqlite:///:memory:")
    job = put_one(one.store)
    assert other.store.get(job.id) is None
    [lease] = take(one.store)
    assert settle(one.store, lease, DONE)
    for each in (one, other):
        each.close()


# --- files that are not ours --------------------------------------------------------------------


def test_a_text_file_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("dear diary, " * 1000)
    assert "not a SQLite database" in refusal_of(path, StoreMismatch)
    assert path.read_text() == "dear diary, " * 1000


def test_a_directory_is_refused(path: Path) -> None:
    path.mkdir()
    assert "directory" in refusal_of(path, StoreUnavailable)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    assert "no directory" in refusal_of(tmp_path / "no" / "jobs.db", StoreUnavailable)


def test_without_create_a_missing_file_is_refused_and_not_made(path: Path) -> None:
    assert "no store" in refusal_of(path, StoreUnavailable, create=False)
    assert not path.exists()


def test_without_create_a_strangers_database_is_refused_and_left_alone(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as stranger:
        stranger.execute("create table precious (a)")
    before = path.read_bytes()
    assert "without Windlass tables" in refusal_of(path, StoreMismatch, create=False)
    assert path.read_bytes() == before


def test_an_applications_own_database_becomes_a_store_beside_its_tables(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as application:
        application.execute("create table users (name text)")
        application.execute("insert into users values ('ann')")
        application.commit()
    with opened(path) as store:
        put_one(store)
    with contextlib.closing(sqlite3.connect(path)) as application:
        assert application.execute("select name from users").fetchall() == [("ann",)]


@pytest.mark.parametrize(("number", "word"), [(9999, "newer"), (0, "migrate")])
def test_a_schema_that_this_code_does_not_know_is_refused(path: Path, number: int, word: str) -> None:
    with opened(path) as store:
        newest = store.status().newest_schema
    with contextlib.closing(sqlite3.connect(path)) as tampering:
        tampering.execute("delete from windlass_schema where number < ?", (newest,))
        tampering.execute("update windlass_schema set number = ? where number = ?", (number, newest))
        tampering.commit()
    message = refusal_of(path, StoreMismatch)
    assert f"schema {number}" in message
    assert word in message


def test_a_damaged_schema_is_refused_in_words_although_sqlite_quotes_bytes_that_are_no_text(
    path: Path,
) -> None:
    with opened(path) as store:
        put_one(store)
    content = path.read_bytes()
    assert b"create table windlass_jobs" in content.lower()
    at = content.lower().index(b"create table windlass_jobs")
    path.write_bytes(content[:at] + b"create \xe7\xe7\xe7\xe7\xe7" + content[at + 12 :])
    assert "damaged" in refusal_of(path, StoreMismatch)


def test_a_damaged_file_is_refused_in_words(path: Path) -> None:
    with opened(path) as store:
        put(store, *(a_job() for _ in range(50)))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\0" * 3996 + whole[4096:])
    with pytest.raises(StoreError), opened(path) as store:
        store.find(Filter())


@pytest.mark.parametrize("version", [(3, 36, 0), (3, 8, 3)])
def test_a_sqlite_that_is_too_old_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    with pytest.raises(StoreMismatch, match=r"3\.37"), opened(path):
        pass
    assert not path.exists()


def test_the_oldest_supported_sqlite_is_not_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 0))
    with opened(path) as store:
        job = put_one(store)
        assert store.get(job.id) == job


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        *(
            ((3, 40, 1), True),
            ((3, 44, 5), True),
            ((3, 44, 6), False),
            ((3, 45, 0), True),
            ((3, 50, 6), True),
        ),
        *(((3, 50, 7), False), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 54, 1), False)),
    ],
)
def test_the_status_warns_of_a_sqlite_that_can_corrupt_its_log(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], *, affected: bool
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    with opened(path) as store:
        assert any("checkpoint" in note for note in store.status().notes) is affected


# --- no room and no right -----------------------------------------------------------------------


def fill(store: Store) -> tuple[list[str], StoreUnavailable]:
    """Enqueue until the store refuses; what was accepted, and the refusal."""
    accepted = []
    for _ in range(500):
        try:
            accepted.append(put_one(store, payload=a_payload(text="x" * 30_000)).id)
        except StoreUnavailable as refusal:
            return accepted, refusal
    pytest.fail("there was room without end")


def test_a_file_without_room_refuses_work_and_keeps_what_it_has(path: Path, watched: Watched) -> None:
    """As on a full disk: with `max_page_count` reached SQLite answers that the disk is full."""

    def narrow(connection: sqlite3.Connection, statement: str) -> None:
        if "insert into windlass_jobs" in statement:
            connection.execute("pragma max_page_count = 100")

    watched.before_each(narrow)
    with opened(path) as store:
        accepted, refusal = fill(store)
        assert "no space" in str(refusal)
        assert accepted
        assert [job.id for job in reversed(store.find(Filter(), limit=1000).jobs)] == accepted
        assert store.check() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small(tmp_path / "disk", 2) as disk:
        yield disk.folder


def test_a_full_disk_refuses_work_and_loses_nothing(small_disk: Path) -> None:
    path = small_disk / "jobs.db"
    with opened(path) as store:
        accepted, refusal = fill(store)
        assert str(path) in str(refusal)
        assert accepted
    with opened(path) as store:
        assert [job.id for job in reversed(store.find(Filter(), limit=1000).jobs)] == accepted


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Take from everybody, root included, the right to write a folder and what is in it."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "--bind", path, path], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
    else:
        for file in (path, *path.iterdir()):
            file.chmod(0o555)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", "-l", path], check=True)
        else:
            for file in (path, *path.iterdir()):
                file.chmod(0o755)


def test_a_read_only_store_refuses_work_in_words(small_disk: Path) -> None:
    path = small_disk / "jobs.db"
    with opened(path) as store:
        put_one(store)
    with read_only(small_disk):
        with pytest.raises(StoreUnavailable) as refusal, opened(path) as store:
            put_one(store)
        assert str(path) in str(refusal.value)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_read_only_store_can_be_read(small_disk: Path, *, crashed: bool) -> None:
    path = small_disk / "jobs.db"
    with opened(path) as store:
        job = put_one(store)
        log = path.with_name("jobs.db-wal").read_bytes()
        index = path.with_name("jobs.db-shm").read_bytes()
    if crashed:
        path.with_name("jobs.db-wal").write_bytes(log)
        path.with_name("jobs.db-shm").write_bytes(index)
    before = sorted(small_disk.iterdir())
    with read_only(small_disk):
        for create in (True, False):
            with opened(path, create=create) as store:
                assert store.get(job.id) == job
                assert store.find(Filter()).jobs == [job]
                assert store.status().live == 1
                assert store.check() == []
                with pytest.raises(StoreUnavailable, match="read-only for this user; nothing was written"):
                    put_one(store)
        done = subprocess.run(
            [sys.executable, "-m", "windlass", "list", "--db", path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, job.id in done.stdout) == (0, True), done.stderr
    assert sorted(small_disk.iterdir()) == before


READING = (
    *("status", "list", "types", "signals", "alerts", "metrics", "metrics --prometheus", "autoscale"),
    *("dlq list", "dlq list --group", "worker health", "config get", "config validate", "keys list"),
    *("db status", "db check", "schedule list", "limit mail", "breaker mail", "tail --for 10ms"),
    *("top --once", "audit", "doctor", "show first", "explain first", "db migrate --dry-run"),
)


def test_every_command_that_only_reads_works_on_a_read_only_store(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_disk / "jobs.db"
    with opened(path) as store:
        put_one(store, key="first")
    with read_only(small_disk):
        for command in READING:
            capsys.readouterr()
            # 1 says that something is not well; 3 would say that the store cannot be used.
            assert run([*command.split(), "--db", str(path)]) in (0, 1), (command, capsys.readouterr())
            said = capsys.readouterr().out
            assert "alter system" not in said, "that is for PostgreSQL"
            assert "journal_mode" not in said, "who may only read it does not set it"


def test_a_folder_that_may_not_be_written_refuses_a_new_store_in_words(small_disk: Path) -> None:
    with read_only(small_disk):
        assert "may not write the directory" in refusal_of(small_disk / "jobs.db", StoreUnavailable)


# --- locked by somebody else --------------------------------------------------------------------

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another program holds a write transaction."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


def test_whoever_holds_the_lock_for_too_long_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store:
        with locked(path) as holder:
            with monkeypatch.context() as impatient:
                impatient.setattr(store._writer, "_patience", 1.0)  # type: ignore[attr-defined] # noqa: SLF001
                with pytest.raises(StoreBusy) as busy:
                    put_one(store)
            assert str(path) in str(busy.value)
            if Path("/proc/locks").exists():
                assert str(holder.pid) in str(busy.value)
        assert store.count(Filter(), limit=9) == 0
        put_one(store)
        assert store.count(Filter(), limit=9) == 1


def test_reading_goes_on_while_somebody_holds_the_write_lock(path: Path) -> None:
    with opened(path) as store:
        job = put_one(store)
        with locked(path):
            assert store.get(job.id) == job
            assert store.find(Filter()).jobs == [job]
            assert store.check() == []


def test_a_store_can_be_opened_while_somebody_holds_the_write_lock(path: Path) -> None:
    with opened(path) as store:
        job = put_one(store)
    with locked(path), opened(path) as store:
        assert store.get(job.id) == job


# --- copies and growth --------------------------------------------------------------------------


def test_a_backup_is_a_whole_store_of_its_own(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with opened(path) as store:
        jobs = in_every_state(store)
        store.backup(str(copy))
        put_one(store)
    with opened(copy, create=False) as store:
        assert [store.get(job.id) for job in jobs] == jobs
        assert store.check() == []
        assert store.count(Filter(), limit=100) == len(jobs)
        assert Path(f"{copy}-wal").exists(), "whoever reads it would stop whoever writes"


def test_a_backup_overwrites_nothing(path: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.db"
    precious.write_text("precious")
    with opened(path) as store, pytest.raises(InvalidValue, match="precious"):
        store.backup(str(precious))
    assert precious.read_text() == "precious"


def test_the_check_finds_a_key_whose_job_is_gone(path: Path) -> None:
    with opened(path) as store:
        job = put_one(store, key="k")
        with contextlib.closing(sqlite3.connect(path)) as tampering:
            tampering.execute("delete from windlass_jobs where id = ?", (job.id,))
            tampering.commit()
        assert any("'k'" in problem for problem in store.check())


@pytest.mark.parametrize(
    "change", ["state = 'bogus'", "priority = 11", "priority = -1", "max_attempts = 21", "max_attempts = 0"]
)
def test_the_file_itself_refuses_what_no_job_can_be(path: Path, change: str) -> None:
    with opened(path) as store:
        put_one(store)
        with contextlib.closing(sqlite3.connect(path)) as tampering, pytest.raises(sqlite3.IntegrityError):
            tampering.execute(f"update windlass_jobs set {change}")


def free_pages(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as looking:
        [[count]] = looking.execute("pragma freelist_count")
    return int(count)


def complete_large_jobs(store: Store, count: int) -> None:
    """Jobs of some 50 pages each, done."""
    put(store, *(a_job(payload=a_payload(text="x" * 200_000)) for _ in range(count)))
    for lease in take(store, count):
        assert settle(store, lease, DONE)


def test_pruning_gives_all_free_pages_back_to_the_file_system(path: Path) -> None:
    with opened(path) as store:
        complete_large_jobs(store, 60)
        pages_of_the_jobs = 60 * 200_000 // 4096
        assert pages_of_the_jobs > _PAGES_AT_ONCE, "one step must not be enough"
        assert store.prune(Retention(ended=timedelta(0))) == 60
        assert free_pages(path) == 0
    assert path.stat().st_size < 1_000_000
    with opened(path) as store:
        assert store.check() == []


def test_a_file_without_incremental_vacuum_is_pruned_and_keeps_its_pages(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as making:
        making.execute("create table theirs (x)")
    with opened(path) as store:
        complete_large_jobs(store, 5)
        assert store.prune(Retention(ended=timedelta(0))) == 5
        assert free_pages(path) > 200
