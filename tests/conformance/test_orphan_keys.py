"""Does the store's own check find a key whose record is gone, and no other?"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from tests.conformance.conftest import NEW
from windlass import connect
from windlass.clock import uuid7
from windlass.job import NewJob

ORPHAN = "insert into {}keys (caller, key, job_id, digest) values ('', 'orphan', '{}', '')"


def add_orphan(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(ORPHAN.format("windlass_", uuid7()))
    else:
        with psycopg.connect(url) as session:
            session.execute(ORPHAN.format("windlass.", uuid7()).encode())


@pytest.mark.parametrize("kind", ["sqlite", "postgres-15"])
def test_the_check_names_a_key_whose_record_is_gone(kind: str) -> None:
    with NEW[kind]() as url, closing(connect.open(url)) as opened:
        opened.store.enqueue([NewJob(id=uuid7(), type="t", payload=b"{}", max_attempts=1, key="kept")])
        assert opened.store.check() == []
        add_orphan(url)
        [problem] = opened.store.check()
        assert "orphan" in problem
