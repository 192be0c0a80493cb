"""Which connection does a caller hold, and what lies within it?

SQLAlchemy's and Django's objects are opened up to the driver's own connection, which the store knows. They
are recognised by their classes' names: whoever passes one has imported its library, and nobody else need
install it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from windlass.errors import InvalidValue, must_be

Wake = Callable[[], None]

_SESSIONS = {("sqlalchemy", "Session"), ("sqlalchemy", "scoped_session")}
_ASYNC_SESSIONS = {("sqlalchemy", "AsyncSession"), ("sqlalchemy", "async_scoped_session")}
_CONNECTIONS = {("sqlalchemy", "Connection")}
_ASYNC_CONNECTIONS = {("sqlalchemy", "AsyncConnection")}
_ASYNC_DRIVERS = {("psycopg", "AsyncConnection"), ("asyncpg", "Connection"), ("aiosqlite", "Connection")}
_ASYNC = _ASYNC_SESSIONS | _ASYNC_CONNECTIONS | _ASYNC_DRIVERS | {("asyncpg", "PoolConnectionProxy")}
_DJANGO = {("django", "BaseDatabaseWrapper"), ("django", "ConnectionProxy")}
# What stands beside a connection in those libraries and is easily taken for one.
_MAKERS = {
    ("sqlalchemy", "Engine"),
    ("sqlalchemy", "AsyncEngine"),
    ("sqlalchemy", "sessionmaker"),
    ("sqlalchemy", "async_sessionmaker"),
    ("psycopg_pool", "ConnectionPool"),
    ("psycopg_pool", "AsyncConnectionPool"),
    ("asyncpg", "Pool"),
}
_MARK = "windlass.wakes"


def is_async(connection: object) -> bool:
    """Whether a connection can be used by `enqueue_async` only."""
    return bool(_names(connection) & _ASYNC)


@contextmanager
def opened(connection: Any, wake: Wake) -> Iterator[object]:
    """The driver's own connection within the caller's; `wake` is called after a commit that is told of."""
    names = _names(connection)
    if names & _ASYNC:
        problem = "an async connection needs enqueue_async()"
        allowed = "a connection that is not async"
        raise InvalidValue(problem, field="connection", value=connection, allowed=allowed)
    if names & _MAKERS:
        raise must_be("connection", connection, "a connection or session, not what makes them")
    if names & _SESSIONS:
        driver = connection.connection().connection.driver_connection
        _after_commit(connection, wake)
        yield driver
    elif names & _CONNECTIONS:
        # Else SQLAlchemy knows of no transaction, and its commit would do nothing.
        connection.exec_driver_sql("select 1")
        yield connection.connection.driver_connection
    elif names & _DJANGO:
        with _django(connection) as driver:
            yield driver
            connection.on_commit(wake)
    else:
        yield connection


@asynccontextmanager
async def opened_async(connection: Any, wake: Wake) -> AsyncIterator[object]:
    """The same for a connection that belongs to the running event loop."""
    names = _names(connection)
    if names & _ASYNC_SESSIONS:
        inner = await connection.connection()
        _after_commit(connection.sync_session, wake)
    elif names & _ASYNC_CONNECTIONS:
        inner = connection
    else:
        yield connection
        return
    # A transaction that SQLAlchemy has begun for itself may not have reached the driver yet.
    await inner.exec_driver_sql("select 1")
    yield (await inner.get_raw_connection()).driver_connection


def _names(connection: object) -> set[tuple[str, str]]:
    return {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(connection).__mro__}


@contextmanager
def _django(connection: Any) -> Iterator[object]:
    """Within atomic(), a part of it; outside, committed at once, as everything is in Django."""
    with sys.modules["django.db.transaction"].atomic(using=connection.alias):
        connection.ensure_connection()
        yield connection.connection


def _after_commit(session: Any, wake: Wake) -> None:
    """Wake the workers after the session's next commit; once, however many jobs it makes."""
    # A scoped session stands for the one of this thread.
    session = session.registry() if hasattr(session, "registry") else session
    events = sys.modules["sqlalchemy.event"]
    if not events.contains(session, "after_commit", _wake_all):
        events.listen(session, "after_commit", _wake_all)
    session.info.setdefault(_MARK, set()).add(wake)


def _wake_all(session: Any) -> None:
    # Also told of a savepoint that ends; then the transaction goes on.
    if session.get_nested_transaction() is None:
        waiting: set[Wake] = session.info.pop(_MARK, set())
        for wake in waiting:
            wake()
