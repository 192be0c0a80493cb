"""Does a look at the audit log read only what it asks for, however long the log is?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import psycopg
import pytest

from tests.servers import postgres
from windlass import connect
from windlass.store import statements
from windlass.store.verbs import access

MAJOR = 15
# A page and the way to it through an index; the whole log has hundreds.
MOST_BLOCKS = 40


class Explaining:
    """Stands where a transaction does, and asks how a search would be made."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.blocks = 0
        self.rows = 0

    def search(self, parts: Sequence[str], clauses: str, values: Mapping[str, object]) -> list[Any]:
        [name] = parts
        written = statements.load("postgres")[name].replace("/*where*/", clauses)
        text, names = statements.numbered(f"{written} order by seq desc limit :limit")
        explain = f"explain (analyze, buffers, format json) {text}".encode()
        [(told,)] = self._connection.execute(explain, [values[each] for each in names]).fetchall()
        plan = told[0]["Plan"]
        self.blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self.rows = plan["Actual Rows"]
        return []


@pytest.fixture(scope="module")
def log() -> Iterator[Explaining]:
    """A long log, in which one person did one rare thing, long ago."""
    with postgres.fresh(MAJOR) as url:
        connect.migrate(url)
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
            connection.execute("""
                insert into windlass.audit (at, who, verb, kind, target)
                select 0, case n when 10 then 'anna' else 'bot' end,
                       case n when 10 then 'revoke' else 'replay' end, 'job', 'job-' || n
                  from generate_series(1, 30000) as n
            """)
            connection.execute("analyze windlass.audit")
            # As for a statement that was prepared: whatever the values are.
            connection.execute("set plan_cache_mode = force_generic_plan")
            yield Explaining(connection)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, 11),
        ({"who": "anna"}, 1),
        ({"who": "nobody"}, 0),
        ({"verb": "revoke"}, 1),
        ({"target": "job-10"}, 1),
        ({"who": "nobody", "verb": "replay"}, 0),
        ({"who": "bot", "verb": "revoke"}, 0),
    ],
)
def test_a_page_costs_the_same_however_long_the_log_is(
    log: Explaining, asked: dict[str, str], found: int
) -> None:
    wanted = {"target": "", "who": "", "verb": ""} | asked
    access.audit(cast(Any, log), limit=10, cursor=None, **wanted)
    assert log.rows == found
    assert log.blocks <= MOST_BLOCKS
