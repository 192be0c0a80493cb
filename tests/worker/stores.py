"""Which stores does a scene run on, if it does not say? Both, and it never asks which."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers import postgres, sqlite
from windlass.queue import Queue


@pytest.fixture(params=["sqlite", "postgres-15"])
def on_both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a fresh store. A module that says `url = on_both` runs all of its scenes on each."""
    if request.param == "sqlite":
        yield sqlite.prepared(tmp_path / "jobs.db")
    else:
        with postgres.prepared(15) as url:
            yield url


def sql(url: str, text: str) -> list[tuple[Any, ...]]:
    """A statement on a connection of its own, as an application would make one."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(text).fetchall()
    with psycopg.connect(url, autocommit=True) as session:
        cursor = session.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def beside_a_table(url: str) -> Iterator[Queue]:
    """A queue in whose database the application has a table of its own, for what it has sent."""
    with Queue(url) as queue:
        queue.store.now()
        sql(url, "create table sent (name text)")
        yield queue


def sent(url: str) -> list[str]:
    """What stands in that table."""
    return sorted(name for (name,) in sql(url, "select name from sent"))
