"""A job is there exactly if the caller commits, whatever kind of connection the caller holds."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

from tests.servers import postgres
from tests.surface import callers
from tests.surface.callers import CALLERS, Caller
from tests.waiting import PATIENCE
from windlass import InvalidValue, JobType, KeyConflict, Queue
from windlass.store.jobs import Filter

Send = JobType[[str], None]


class Scene:
    """A queue and its application: who is a user, and which jobs there are."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.queue = Queue(url)

        @self.queue.job
        def send(to: str) -> None: ...

        self.send = send
        self.queue.store.now()
        self.sql("create table users (name text)")

    def users(self) -> list[str]:
        return [name for (name,) in self.sql("select name from users order by name")]

    def jobs(self) -> int:
        return self.queue.store.count(Filter(), limit=100)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """What another connection, which sees only what is committed, is told."""
        if self.url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
                found = connection.execute(text).fetchall()
                connection.commit()
                return found
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def place(name: str, folder: Path) -> Iterator[str]:
    if name.startswith("sqlite"):
        yield f"sqlite:///{folder}/jobs.db"
    else:
        with postgres.prepared(15) as url:
            yield url


@pytest.fixture(params=CALLERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def scene(kind: str, tmp_path: Path) -> Iterator[Scene]:
    with place(kind, tmp_path) as url:
        scene = Scene(url)
        with scene.queue:
            yield scene


def play(kind: str, scene: Scene, story: Callable[[Caller], Awaitable[None]]) -> None:
    async def main() -> None:
        async with CALLERS[kind](scene.url) as caller:
            await story(caller)

    asyncio.run(main())


def test_commit_shows_the_job(kind: str, scene: Scene) -> None:
    async def story(caller: Caller) -> None:
        await caller.add_user("ann")
        handle = await caller.enqueue(scene.send.options(connection=caller.connection), "ann")
        assert (scene.users(), scene.jobs()) == ([], 0)
        await caller.commit()
        assert bytes(handle.get().payload) == b'{"to":"ann"}'

    play(kind, scene, story)
    assert (scene.users(), scene.jobs()) == (["ann"], 1)


def test_the_job_may_be_the_first_thing_in_the_transaction(kind: str, scene: Scene) -> None:
    async def story(caller: Caller) -> None:
        await caller.enqueue(scene.send.options(connection=caller.connection), "ann")
        await caller.add_user("ann")
        assert (scene.users(), scene.jobs()) == ([], 0)
        await caller.commit()

    play(kind, scene, story)
    assert (scene.users(), scene.jobs()) == (["ann"], 1)


def test_rollback_leaves_no_trace(kind: str, scene: Scene) -> None:
    async def story(caller: Caller) -> None:
        await caller.add_user("ann")
        await caller.enqueue(scene.send.options(connection=caller.connection, key="k"), "ann")
        await caller.rollback()

    play(kind, scene, story)
    assert (scene.users(), scene.jobs()) == ([], 0)
    assert scene.send.options(key="k").enqueue("bob").created


def test_a_known_key_finds_its_job_and_a_conflict_leaves_the_transaction_usable(
    kind: str, scene: Scene
) -> None:
    first = scene.send.options(key="k").enqueue("ann")

    async def story(caller: Caller) -> None:
        await caller.add_user("ann")
        keyed = scene.send.options(key="k", connection=caller.connection)
        again = await caller.enqueue(keyed, "ann")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(KeyConflict):
            await caller.enqueue(keyed, "bob")
        await caller.add_user("bob")
        await caller.enqueue(scene.send.options(key="l", connection=caller.connection), "bob")
        await caller.commit()

    play(kind, scene, story)
    assert (scene.users(), scene.jobs()) == (["ann", "bob"], 2)


def test_a_connection_to_another_database_is_refused_in_words(
    kind: str, scene: Scene, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with place(kind, elsewhere) as url:
        other = Scene(url)
        other.queue.close()

        async def story(caller: Caller) -> None:
            await caller.add_user("ann")
            with pytest.raises(InvalidValue, match="the queue's own"):
                await caller.enqueue(scene.send.options(connection=caller.connection), "ann")
            await caller.commit()

        play(kind, other, story)
        assert other.users() == ["ann"]
    assert scene.jobs() == 0


def test_workers_of_this_process_are_woken_by_the_commit(kind: str, scene: Scene) -> None:
    woken = threading.Event()
    scene.queue.wakeup.subscribe(woken.set)
    # Until whoever listens has begun to.
    while not woken.wait(0.1):
        scene.sql("insert into users values ('zoe')")

    async def story(caller: Caller) -> None:
        woken.clear()
        await caller.enqueue(scene.send.options(connection=caller.connection), "ann")
        await caller.commit()
        assert await asyncio.to_thread(woken.wait, PATIENCE)

    play(kind, scene, story)
    scene.queue.wakeup.unsubscribe(woken.set)


# --- what only some can do ------------------------------------------------------------------------

ASYNC = [name for name in CALLERS if "async" in name or "aiosqlite" in name]


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_connection_is_for_async_enqueues(kind: str, scene: Scene) -> None:
    async def story(caller: Caller) -> None:
        with pytest.raises(InvalidValue, match="enqueue_async"):
            scene.send.options(connection=caller.connection).enqueue("ann")
        many = [scene.send.draft("ann"), scene.send.draft("bob")]
        handles = await scene.queue.enqueue_many_async(many, connection=caller.connection)
        await scene.queue.enqueue_async("send", {"to": "cid"}, connection=caller.connection)
        await caller.commit()
        assert [handle.created for handle in handles] == [True, True]

    play(kind, scene, story)
    assert scene.jobs() == 3


@pytest.mark.parametrize("kind", ASYNC)
def test_who_is_cancelled_gets_the_connection_back_in_one_piece(kind: str, scene: Scene) -> None:
    async def story(caller: Caller) -> None:
        await caller.add_user("ann")
        for _ in range(20):
            task = asyncio.ensure_future(
                caller.enqueue(scene.send.options(connection=caller.connection), "ann")
            )
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await caller.add_user("bob")
        await caller.commit()

    play(kind, scene, story)
    assert scene.users() == ["ann", "bob"]


@pytest.mark.parametrize("kind", ["postgres-psycopg", "postgres-asyncpg", "postgres-psycopg2"])
def test_where_each_statement_commits_at_once_so_does_the_job(kind: str, scene: Scene) -> None:
    async def story(caller: Caller) -> None:
        await caller.rollback()
        with contextlib.suppress(AttributeError):
            caller.connection.autocommit = True
        await caller.enqueue(scene.send.options(connection=caller.connection), "ann")
        assert scene.jobs() == 1
        keyed = scene.send.options(connection=caller.connection, key="k")
        await caller.enqueue(keyed, "ann")
        with pytest.raises(KeyConflict):
            await caller.enqueue(keyed, "bob")
        await caller.add_user("ann")
        assert scene.users() == ["ann"]

    play(kind, scene, story)
    assert scene.jobs() == 2


@pytest.mark.parametrize("kind", ["sqlite-django", "postgres-django"])
def test_outside_atomic_django_commits_at_once(kind: str, scene: Scene) -> None:
    connection = callers.django_connection(scene.url)
    scene.send.options(connection=connection).enqueue("ann")
    assert scene.jobs() == 1
    assert connection.get_autocommit()
    connection.close()


@pytest.mark.parametrize("kind", ["sqlite-sqlalchemy-session", "postgres-sqlalchemy-session-psycopg"])
def test_a_session_is_told_of_once_and_savepoints_are_not_commits(kind: str, scene: Scene) -> None:
    engine = callers._engine(scene.url, "sqlite" if "sqlite" in kind else "psycopg")  # noqa: SLF001
    calls: list[int] = []
    scene.queue.wakeup.notify = lambda: calls.append(scene.jobs())  # type: ignore[method-assign]
    with orm.Session(engine) as session:
        with session.begin_nested():
            scene.send.options(connection=session).enqueue("ann")
        scene.send.options(connection=session).enqueue("bob")
        assert calls == []
        session.commit()
        assert calls == [2]
        session.execute(sqlalchemy.text("insert into users values ('ann')"))
        session.commit()
        assert calls == [2]
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite-sqlite3", "postgres-psycopg"])
def test_what_makes_connections_is_not_taken_for_one(kind: str, scene: Scene) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    for wrong in (engine, orm.sessionmaker(engine)):
        with pytest.raises(InvalidValue, match="not what makes them"):
            scene.send.options(connection=wrong).enqueue("ann")
    for nonsense in ("conn", 7, object()):
        with pytest.raises(InvalidValue, match="connection must be a"):
            scene.send.options(connection=nonsense).enqueue("ann")
    assert scene.jobs() == 0


def test_none_of_these_libraries_is_needed() -> None:
    import subprocess  # noqa: PLC0415 - used here alone
    import sys  # noqa: PLC0415 - used here alone

    code = (
        "import sys, windlass.queue.guests, windlass.store.postgres.store\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not names & {'sqlalchemy', 'django', 'asyncpg', 'aiosqlite', 'psycopg2'}, names\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert asyncpg.__version__
