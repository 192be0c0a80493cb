"""Does a look at jobs or at the audit log read only what it asks for, however much there is?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import psycopg
import pytest

from tests.servers import postgres
from windlass import connect
from windlass.job import JobState, View
from windlass.store import access, jobs, statements
from windlass.store.jobs import Filter
from windlass.store.postgres.session import USES, first

MAJOR = 15
# A page and the ways to it through indexes, one for each day of the archive; there are thousands in all.
MOST_BLOCKS = 120
BATCH = "0190a5a0-0000-7000-8000-000000000000"
LIMIT = 10


class Explaining:
    """Stands where a transaction does, and asks how a search would be made."""

    now = 2**50

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.blocks = 0
        self.rows = 0

    def row(self, name: str, **values: object) -> None:
        """Nobody else goes by such a name."""

    def search(self, parts: Sequence[str], clauses: str, values: Mapping[str, object]) -> list[Any]:
        texts = statements.load("postgres")
        text, names = statements.numbered(
            first([texts[name].replace("/*where*/", clauses) for name in parts])
        )
        explain = f"explain (analyze, buffers, format json) {text}".encode()
        [(told,)] = self._connection.execute(explain, [values[each] for each in names]).fetchall()
        plan = told[0]["Plan"]
        self.blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self.rows = plan["Actual Rows"]
        return []


@pytest.fixture(scope="module")
def store() -> Iterator[Explaining]:
    """Many jobs that wait and many that have ended, few that are dead or of a batch, and a long log."""
    with postgres.fresh(MAJOR) as url:
        connect.migrate(url)
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
            fill(connection)
            for name, value in USES["pool"].items():
                connection.execute(f"set {name} = '{value}'".encode())
            yield Explaining(connection)


def fill(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        f"""
        insert into windlass.jobs (
            id, type, state, priority, due, payload, max_attempts, batch,
            created_at, enqueued_at, updated_at, run_at, finished_at
        )
        select gen_random_uuid(), 'noop', case when n % 3000 = 0 then 'dead' else 'pending' end, 5,
               case when n % 3000 = 0 then 0 else 1 end, '{{}}', 5,
               case when n % 10000 = 1 then '{BATCH}' end, 0, 0, 0, 0, case when n % 3000 = 0 then 0 end
          from generate_series(1, 30000) as n
        """.encode()
    )
    connection.execute("""
        insert into windlass.archive (
            seq, id, type, state, priority, tenant, payload, schema_version, caller, max_attempts, attempts,
            claims, snoozes, interruptions, losses, replay_count,
            created_at, enqueued_at, updated_at, run_at, finished_at
        )
        select 100000 + n, gen_random_uuid(), 'noop', 'completed', 5, '', '{}', 1, '', 5, 1, 1, 0, 0, 0, 0,
               0, 0, 0, 0, windlass.now()
          from generate_series(1, 30000) as n
    """)
    connection.execute("""
        insert into windlass.audit (at, who, verb, kind, target)
        select 0, case n when 10 then 'anna' else 'bot' end,
               case n when 10 then 'revoke' else 'replay' end, 'job', 'job-' || n
          from generate_series(1, 30000) as n
    """)
    connection.execute("analyze")


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (Filter(), LIMIT + 1),
        (Filter(states=(JobState.DEAD,)), LIMIT),
        (Filter(states=(JobState.COMPLETED,)), LIMIT + 1),
        (Filter(states=(JobState.PROCESSING,)), 0),
        (Filter(view=View.DUE), LIMIT + 1),
        (Filter(view=View.STUCK), 0),
        (Filter(ids=(BATCH,)), 0),
        (Filter(batch=BATCH), 3),
    ],
    ids=str,
)
def test_a_page_of_jobs_costs_the_same_however_many_there_are(
    store: Explaining, where: Filter, found: int
) -> None:
    jobs.find(cast(Any, store), where, limit=LIMIT)
    assert store.rows == found
    assert store.blocks <= MOST_BLOCKS


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, LIMIT + 1),
        ({"who": "anna"}, 1),
        ({"who": "nobody"}, 0),
        ({"who": "bot"}, LIMIT + 1),
        ({"verb": "revoke"}, 1),
        ({"target": "job-10"}, 1),
        ({"who": "nobody", "verb": "replay"}, 0),
        ({"who": "bot", "verb": "revoke"}, 0),
    ],
)
def test_a_page_of_the_log_costs_the_same_however_long_it_is(
    store: Explaining, asked: dict[str, str], found: int
) -> None:
    wanted = {"target": "", "who": "", "verb": ""} | asked
    access.audit(cast(Any, store), limit=LIMIT, cursor=None, **wanted)
    assert store.rows == found
    assert store.blocks <= MOST_BLOCKS
