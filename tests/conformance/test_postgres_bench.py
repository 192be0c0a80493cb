"""What `windlass bench` counts on a server of PostgreSQL."""

from __future__ import annotations

import subprocess
import sys

from tests.conformance.server import url
from tests.waiting import PATIENCE

__all__ = ["url"]

# In a process of its own: what is followed there stays followed.
FOLLOWED = """
import sys
import psycopg
from windlass.bench.postgres import Wire
before = psycopg.connect(sys.argv[1], autocommit=True)
wire = Wire()
with before, psycopg.connect(sys.argv[1], autocommit=True) as one, psycopg.connect(sys.argv[1]) as other:
    print(wire.statements())
    before.execute("select 0")
    one.execute("select 1")
    one.execute("select %s", [2], prepare=True)
    other.execute("select 3")
    other.commit()
    print(wire.statements())
"""


def test_the_statements_of_an_idle_worker_are_those_of_its_own_connections(url: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", FOLLOWED, url], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    # Of the third, begin and commit are counted as well.
    assert told.stdout.split() == ["0", "5"]
