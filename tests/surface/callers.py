"""How does an application hold its own transaction? One caller for each kind of connection that we take."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiosqlite
import asyncpg
import django.apps
import django.conf
import django.db
import psycopg
import psycopg2
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

from windlass import JobHandle
from windlass.queue.guests import is_async
from windlass.queue.jobs import Prepared

_names = itertools.count(1)


class Caller:
    """An application's connection with its own table, and the few things that it does with both."""

    def __init__(
        self,
        connection: Any,
        *,
        execute: Callable[[str], Any],
        commit: Callable[[], Any],
        rollback: Callable[[], Any],
    ) -> None:
        self.connection = connection
        self._execute = execute
        self._commit = commit
        self._rollback = rollback

    async def add_user(self, name: str) -> None:
        """Write a row of the application's own."""
        await _awaited(self._execute(f"insert into users values ('{name}')"))

    async def commit(self) -> None:
        await _awaited(self._commit())

    async def rollback(self) -> None:
        await _awaited(self._rollback())

    async def enqueue(self, prepared: Prepared[[str]], name: str) -> JobHandle:
        """In the way that fits the connection."""
        if is_async(self.connection):
            return await prepared.enqueue_async(name)
        return prepared.enqueue(name)


async def _awaited(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


Opened = Callable[[str], Any]


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///")


def _dsn(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {"host": parse_qs(parts.query)["host"][0], "user": "postgres", "dbname": parts.path[1:]}


def _asyncpg_dsn(url: str) -> dict[str, str]:
    dsn = _dsn(url)
    return {"host": dsn["host"], "user": dsn["user"], "database": dsn["dbname"]}


# --- drivers --------------------------------------------------------------------------------------


@asynccontextmanager
async def sqlite(url: str) -> AsyncIterator[Caller]:
    connection = sqlite3.connect(_path(url))
    yield Caller(
        connection, execute=connection.execute, commit=connection.commit, rollback=connection.rollback
    )
    connection.close()


@asynccontextmanager
async def aiosqlite_(url: str) -> AsyncIterator[Caller]:
    async with aiosqlite.connect(_path(url)) as connection:

        async def execute(text: str) -> None:
            await connection.execute(text)

        yield Caller(connection, execute=execute, commit=connection.commit, rollback=connection.rollback)


@asynccontextmanager
async def psycopg_(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url) as connection:
        yield Caller(
            connection,
            execute=lambda text: connection.execute(text.encode()),
            commit=connection.commit,
            rollback=connection.rollback,
        )


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(
            connection,
            execute=lambda text: connection.execute(text.encode()),
            commit=connection.commit,
            rollback=connection.rollback,
        )


@asynccontextmanager
async def psycopg2_(url: str) -> AsyncIterator[Caller]:
    connection = psycopg2.connect(**_dsn(url))
    yield Caller(
        connection,
        execute=lambda text: connection.cursor().execute(text),
        commit=connection.commit,
        rollback=connection.rollback,
    )
    connection.close()


@asynccontextmanager
async def asyncpg_(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(**_asyncpg_dsn(url))
    # What applications set for themselves must not come between our statements and their answers.
    await connection.set_type_codec("json", encoder=repr, decoder=len, schema="pg_catalog")
    await connection.execute("begin")
    yield Caller(
        connection,
        execute=connection.execute,
        commit=lambda: connection.execute("commit"),
        rollback=lambda: connection.execute("rollback"),
    )
    await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with (
        asyncpg.create_pool(min_size=1, max_size=1, **_asyncpg_dsn(url)) as pool,
        pool.acquire() as connection,
    ):
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(
            connection,
            execute=connection.execute,
            commit=transaction.commit,
            rollback=transaction.rollback,
        )


# --- SQLAlchemy -----------------------------------------------------------------------------------


def _engine(url: str, driver: str) -> sqlalchemy.Engine:
    if driver == "sqlite":
        return sqlalchemy.create_engine(url)
    return sqlalchemy.create_engine(f"postgresql+{driver}://", connect_args=_dsn(url))


def _async_engine(url: str, driver: str) -> sa_asyncio.AsyncEngine:
    if driver == "aiosqlite":
        return sa_asyncio.create_async_engine(f"sqlite+aiosqlite:///{_path(url)}")
    dsn = _asyncpg_dsn(url) if driver == "asyncpg" else _dsn(url)
    return sa_asyncio.create_async_engine(f"postgresql+{driver}://", connect_args=dsn)


def _caller(opened: Any) -> Caller:
    """A session or a connection: SQLAlchemy words them alike."""
    return Caller(
        opened,
        execute=lambda text: opened.execute(sqlalchemy.text(text)),
        commit=opened.commit,
        rollback=opened.rollback,
    )


def _within(driver: str, begin: Callable[[sqlalchemy.Engine], AbstractContextManager[Any]]) -> Opened:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = _engine(url, driver)
        with begin(engine) as connection:
            yield _caller(connection)
        engine.dispose()

    return opened


def _within_async(
    driver: str, begin: Callable[[sa_asyncio.AsyncEngine], AbstractAsyncContextManager[Any]]
) -> Opened:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = _async_engine(url, driver)
        async with begin(engine) as connection:
            yield _caller(connection)
        await engine.dispose()

    return opened


def session(driver: str) -> Opened:
    return _within(driver, orm.Session)


def core(driver: str) -> Opened:
    return _within(driver, lambda engine: engine.connect())


def async_session(driver: str) -> Opened:
    return _within_async(driver, sa_asyncio.AsyncSession)


def async_core(driver: str) -> Opened:
    return _within_async(driver, lambda engine: engine.connect())


# --- Django ---------------------------------------------------------------------------------------


def django_connection(url: str) -> Any:
    """A connection as Django makes it, under an alias of its own."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(USE_TZ=True)
        django.apps.apps.populate(())
    if url.startswith("sqlite"):
        place: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": _path(url)}
    else:
        dsn = _dsn(url)
        place = {"ENGINE": "django.db.backends.postgresql", "NAME": dsn["dbname"]}
        place |= {"HOST": dsn["host"], "USER": dsn["user"]}
    alias = f"guest_{next(_names)}"
    django.db.connections.databases[alias] = {
        **django.db.utils.ConnectionHandler({"default": place}).databases["default"],
        **place,
    }
    return django.db.connections[alias]


@asynccontextmanager
async def django_(url: str) -> AsyncIterator[Caller]:
    # Django refuses to work on a thread that runs a loop.
    hands = _Hands()
    connection = await hands.do(lambda: django_connection(url))
    atomic = await hands.do(lambda: django.db.transaction.atomic(using=connection.alias))

    def end(*, error: BaseException | None) -> None:
        atomic.__exit__(type(error) if error else None, error, None)

    await hands.do(atomic.__enter__)
    caller = _DjangoCaller(
        connection,
        execute=lambda text: hands.do(lambda: connection.cursor().execute(text)),
        commit=lambda: hands.do(lambda: end(error=None)),
        rollback=lambda: hands.do(lambda: end(error=RuntimeError())),
    )
    caller.hands = hands
    yield caller
    await hands.do(connection.close)
    hands.close()


class _DjangoCaller(Caller):
    hands: _Hands

    async def enqueue(self, prepared: Prepared[[str]], name: str) -> JobHandle:
        handle: JobHandle = await self.hands.do(lambda: prepared.enqueue(name))
        return handle


class _Hands:
    """One thread without a loop, on which everything of a caller happens."""

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - used here alone

        self._pool = ThreadPoolExecutor(1)

    async def do(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        self._pool.shutdown()


CALLERS: dict[str, Opened] = {
    "sqlite-sqlite3": sqlite,
    "sqlite-aiosqlite": aiosqlite_,
    "sqlite-sqlalchemy-session": session("sqlite"),
    "sqlite-sqlalchemy-connection": core("sqlite"),
    "sqlite-sqlalchemy-async-session": async_session("aiosqlite"),
    "sqlite-sqlalchemy-async-connection": async_core("aiosqlite"),
    "sqlite-django": django_,
    "postgres-psycopg": psycopg_,
    "postgres-psycopg-async": psycopg_async,
    "postgres-psycopg2": psycopg2_,
    "postgres-asyncpg": asyncpg_,
    "postgres-asyncpg-pool": asyncpg_pool,
    "postgres-sqlalchemy-session-psycopg": session("psycopg"),
    "postgres-sqlalchemy-session-psycopg2": session("psycopg2"),
    "postgres-sqlalchemy-connection-psycopg": core("psycopg"),
    "postgres-sqlalchemy-connection-psycopg2": core("psycopg2"),
    "postgres-sqlalchemy-async-session-asyncpg": async_session("asyncpg"),
    "postgres-sqlalchemy-async-session-psycopg": async_session("psycopg"),
    "postgres-sqlalchemy-async-connection-asyncpg": async_core("asyncpg"),
    "postgres-sqlalchemy-async-connection-psycopg": async_core("psycopg"),
    "postgres-django": django_,
}
