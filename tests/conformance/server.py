"""What do tests start from that ask more of PostgreSQL than every store must do?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.servers import postgres
from windlass import connect
from windlass.store.store import Store

MAJOR = 15


@pytest.fixture
def url() -> Iterator[str]:
    """A fresh database."""
    with postgres.fresh(MAJOR) as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store in it."""
    opened = connect.open(url)
    yield opened.store
    opened.close()


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    """A statement on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
