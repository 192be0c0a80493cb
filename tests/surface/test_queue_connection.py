"""Jobs that commit or roll back with the caller's own row."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass import InvalidValue, JobType, Queue, StoreBusy
from windlass.store.jobs import Filter

Send = JobType[[str], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{path}") as queue:
        yield queue


@pytest.fixture
def send(queue: Queue) -> Send:
    @queue.job
    def send(to: str) -> None: ...

    return send


@pytest.fixture
def caller(path: Path, queue: Queue) -> Iterator[sqlite3.Connection]:
    queue.store.now()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("create table users (name text)")
    yield connection
    connection.close()


def stored(queue: Queue, caller: sqlite3.Connection) -> tuple[int, int]:
    return caller.execute("select count(*) from users").fetchone()[0], queue.store.count(Filter(), limit=100)


def test_a_job_commits_with_the_callers_row(queue: Queue, send: Send, caller: sqlite3.Connection) -> None:
    caller.execute("begin immediate")
    caller.execute("insert into users values ('a')")
    handle = send.options(connection=caller).enqueue("a")
    queue.enqueue("send", {"to": "b"}, connection=caller)
    queue.enqueue_many([send.draft("c"), send.draft("d")], connection=caller)
    caller.execute("commit")
    assert stored(queue, caller) == (1, 4)
    assert bytes(handle.get().payload) == b'{"to":"a"}'


def test_a_job_rolls_back_with_the_callers_row(queue: Queue, send: Send, caller: sqlite3.Connection) -> None:
    caller.execute("begin immediate")
    caller.execute("insert into users values ('a')")
    send.options(connection=caller).enqueue("a")
    queue.enqueue_many([send.draft("c"), send.draft("d")], connection=caller)
    caller.execute("rollback")
    assert stored(queue, caller) == (0, 0)


def test_the_first_enqueue_of_a_process_may_be_within_the_callers_transaction(
    queue: Queue, send: Send, caller: sqlite3.Connection
) -> None:
    caller.execute("begin immediate")
    send.options(connection=caller).enqueue("a")
    assert queue.store.types() == {}
    caller.execute("commit")
    send.enqueue("b")
    assert set(queue.store.types()) == {"send"}


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("commits", [True, False])
def test_the_first_use_of_a_queue_may_be_within_a_transaction_on_a_file_without_its_tables(
    path: Path, journal: str, *, commits: bool
) -> None:
    caller = sqlite3.connect(path, isolation_level=None)
    caller.execute(f"pragma journal_mode = {journal}")
    caller.execute("begin immediate")
    caller.execute("create table users (name text)")
    caller.execute("insert into users values ('a')")
    with Queue(path) as queue:

        @queue.job
        def send(to: str) -> None: ...

        first = send.options(connection=caller).enqueue("a")
        queue.enqueue_many([send.draft("b"), send.draft("c")], connection=caller)
        caller.execute("commit" if commits else "rollback")
        if commits:
            assert first.state == "pending"
        assert queue.store.count(Filter(), limit=100) == (3 if commits else 0)
        assert send.enqueue("d").state == "pending"
        assert queue.store.count(Filter(), limit=100) == (4 if commits else 1)
        assert queue.store.check() == []
        send.options(connection=caller).enqueue("e")
        caller.execute("commit")
    caller.close()


def test_who_writes_elsewhere_meanwhile_is_told_to_commit_first(path: Path) -> None:
    with Queue(path, patience=0.3) as queue:

        @queue.job
        def send(to: str) -> None: ...

        caller = sqlite3.connect(path, isolation_level=None)
        caller.execute("begin immediate")
        with pytest.raises(StoreBusy, match=r"no Windlass tables yet.*commit it first, or .*connection="):
            send.enqueue("a")
        caller.execute("commit")
        caller.close()
        assert send.enqueue("a").state == "pending"


@pytest.mark.parametrize("made_before", [True, False])
def test_the_first_use_of_a_queue_may_be_within_a_sqlalchemy_session(
    path: Path, *, made_before: bool
) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    if made_before:
        Queue(path).open().close()
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    users = sqlalchemy.Table("users", sqlalchemy.MetaData(), sqlalchemy.Column("name", sqlalchemy.String))
    users.create(engine)
    with Queue(path) as queue, orm.Session(engine) as session:

        @queue.job
        def welcome(to: str) -> None: ...

        session.execute(users.insert().values(name="a"))
        session.flush()
        handle = welcome.options(connection=session).enqueue("a")
        session.commit()
        assert handle.state == "pending"
        welcome.enqueue("b")
        assert queue.store.count(Filter(), limit=9) == 2
    engine.dispose()


def test_async_callers_use_their_connection_on_their_own_thread(
    queue: Queue, send: Send, caller: sqlite3.Connection
) -> None:
    async def main() -> None:
        caller.execute("begin immediate")
        await send.options(connection=caller).enqueue_async("a")
        await queue.enqueue_async("send", {"to": "b"}, connection=caller)
        caller.execute("commit")

    asyncio.run(main())
    assert stored(queue, caller) == (0, 2)


def test_who_holds_a_transaction_and_forgets_to_name_it_is_told(
    send: Send, caller: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.sqlite.writer._OWN_LOCK_SECONDS", 0.5)
    send.enqueue("a")
    caller.execute("begin immediate")
    with pytest.raises(StoreBusy, match="connection="):
        send.enqueue("b")
    caller.execute("rollback")


def test_a_draft_cannot_carry_a_connection(queue: Queue, send: Send, caller: sqlite3.Connection) -> None:
    with pytest.raises(InvalidValue, match="a draft cannot carry connection="):
        send.options(connection=caller).draft("a")
    with pytest.raises(InvalidValue, match="a draft cannot carry connection="):
        queue.draft("send", {"to": "a"}, connection=caller)


def test_a_connection_to_another_file_is_refused(
    send: Send, caller: sqlite3.Connection, tmp_path: Path
) -> None:
    send.enqueue("a")
    other = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(InvalidValue, match="connection must be"):
        send.options(connection=other).enqueue("b")
    other.close()


def test_a_queue_closed_by_another_thread_in_the_midst_of_an_enqueue_is_opened_again(
    queue: Queue, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    send.enqueue("a")
    admission = queue._admission  # noqa: SLF001 - the moment between opening and storing
    check = admission.check
    closed: list[bool] = []

    def close_first(*args: object, **options: object) -> None:
        if not closed:
            closed.append(True)
            queue.close()
        check(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(admission, "check", close_first)
    assert send.enqueue("b").state == "pending"
    assert closed
    assert queue.store.count(Filter(), limit=9) == 2
