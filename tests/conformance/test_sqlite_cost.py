"""Does the cost of a hot statement depend on what it is not about?"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.conformance.scene import (
    AGAIN,
    LEASE,
    MAIL,
    REPORT,
    a_job,
    put,
    put_one,
    settle,
    take,
)
from tests.conformance.watching import Watched, path, store, watched
from windlass.ops import Ops
from windlass.policy import Limit
from windlass.store import statements
from windlass.store.engine import Want
from windlass.store.fleet import Vitals
from windlass.store.flow import Restriction
from windlass.store.jobs import Filter
from windlass.store.store import Store
from windlass.store.upkeep import Retention

__all__ = ["path", "store", "watched"]

MANY = 200_000


def multiply(watched: Watched, path: Path, table: str, job_id: str, count: int = MANY) -> None:
    """Put many copies of one row into a table, faster than anybody could enqueue them."""
    with contextlib.closing(watched.outsider(path)) as connection:
        connection.execute("pragma wal_autocheckpoint = 0")
        columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
        values = {name: name for name in columns} | {
            "id": "lower(hex(randomblob(16)))",
            "seq": f"{_highest(connection)} + n",
            "key": "null",
        }
        connection.execute("begin immediate")
        connection.execute(
            f"with recursive many(n) as (select 1 union all select n + 1 from many where n < {count}) "
            f"insert into {table} ({', '.join(columns)}) "
            f"select {', '.join(values[name] for name in columns)} from {table} join many where id = ?",
            (job_id,),
        )
        connection.execute("commit")


def _highest(connection: sqlite3.Connection) -> int:
    queries = (f"select ifnull(max(seq), 0) from {table}" for table in ("windlass_jobs", "windlass_archive"))
    return max(int(connection.execute(query).fetchone()[0]) for query in queries)


def steps(watched: Watched, call: Callable[[], object]) -> int:
    """The work of one call, in steps of SQLite's virtual machine; the second of two, when all is warm."""
    call()
    before = watched.steps
    call()
    return watched.steps - before


# --- plans --------------------------------------------------------------------------------------

# These look at every row of a table on purpose, and are never on a hot path.
WHOLE_TABLES = {
    "check_keys": "an operator's check",
    "check_twice": "an operator's check",
    "count_ended": "counted up to a bound",
    "ended_lately": "the newest, up to a bound",
    "settings": "a handful of rows",
    "types": "a handful of rows",
    "workers": "a handful of rows",
    "alive": "a handful of rows",
    "prune_workers": "a handful of rows",
}
BIG = re.compile(r"SCAN (windlass_jobs|windlass_archive|windlass_keys)\b(?!.*USING)")


@pytest.fixture
def planner(store: Store, watched: Watched, path: Path) -> Iterator[sqlite3.Connection]:
    connection = watched.outsider(path)
    yield connection
    connection.close()


def plan(planner: sqlite3.Connection, text: str) -> str:
    values = dict.fromkeys(statements.parameters(text), 1)
    rows = planner.execute("explain query plan " + text, values).fetchall()
    return "\n".join(row[3] for row in rows)


LANE = "INDEX windlass_jobs_claim (type=? AND schema_version=?"
LATER = "INDEX windlass_jobs_later"
RUNNING = "INDEX windlass_jobs_running"
ROW = "USING INTEGER PRIMARY KEY (rowid=?)"
PAGE = "USING INTEGER PRIMARY KEY (rowid<?)"
HOT = {
    "lane_priority": f"{LANE} AND priority<?)",
    "lane_turn": f"{LANE} AND priority=? AND tenant>?)",
    "lane_alone": "INDEX windlass_jobs_claim (type=?)",
    "lane_first_tenant": f"{LANE} AND priority=?)",
    "lane_jobs": f"{LANE} AND priority=? AND tenant=? AND seq>?",
    "promote": f"{LATER} (run_at<?)",
    "next_due": LATER,
    "claim": ROW,
    "finish": ROW,
    "put_back": ROW,
    "extend": ROW,
    "bury_running": ROW,
    "held_by": f"{RUNNING} (worker=?)",
    "requests": f"{RUNNING} (worker=?)",
    "expired": RUNNING,
    "any_expired": RUNNING,
    "by_id": "(id=?)",
    "by_id_ended": "(id=?)",
    "find_live": PAGE,
    "find_ended": PAGE,
}
# What runs now is bounded by the slots of all workers, so it may be sorted.
SORTED = {"expired", "held_by"}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_goes_by_its_index(planner: sqlite3.Connection, name: str) -> None:
    found = plan(planner, statements.load("sqlite")[name])
    assert HOT[name] in found, found
    assert "USE TEMP B-TREE" not in found or name in SORTED, found


@pytest.mark.parametrize("name", sorted(set(statements.load("sqlite")) - set(WHOLE_TABLES)))
def test_no_statement_walks_through_a_whole_table(planner: sqlite3.Connection, name: str) -> None:
    found = plan(planner, statements.load("sqlite")[name])
    assert not BIG.search(found), found


# --- work ---------------------------------------------------------------------------------------


def crowd(store: Store, watched: Watched, path: Path) -> None:
    """Many jobs that no claim for mail can take: later, of another type, too new, running, dead, ended."""
    later = put_one(store, delay=timedelta(days=7))
    unserved = put_one(store, type=REPORT, priority=10)
    newer = put_one(store, schema_version=2, priority=9)
    dead, ended = put_one(store), put_one(store)
    store.bury(dead.id)
    store.cancel(ended.id)
    multiply(watched, path, "windlass_jobs", later.id)
    multiply(watched, path, "windlass_jobs", unserved.id)
    multiply(watched, path, "windlass_jobs", newer.id, MANY // 10)
    multiply(watched, path, "windlass_jobs", dead.id, MANY // 10)
    multiply(watched, path, "windlass_archive", ended.id)


@pytest.mark.slow
def test_the_work_of_hot_verbs_does_not_grow_with_what_they_are_not_about(
    store: Store, watched: Watched, path: Path
) -> None:
    put(store, *(a_job() for _ in range(40)))
    running = take(store, limit=5)
    ops = Ops(store)
    verbs: dict[str, Callable[[], object]] = {
        "claim": lambda: _claim_one_and_put_it_back(store),
        "a claim that finds nothing": lambda: take(store, types={"no.such": 1}),
        "extend": lambda: store.extend(running, LEASE),
        "look": lambda: store.look("w", {MAIL: 1}),
        "beat": lambda: store.beat("w", Vitals()),
        "promote": store.promote,
        "expired": lambda: store.expired(limit=10),
        "orphans": lambda: store.orphans(limit=10),
        "prune": lambda: store.prune(Retention()),
        "enqueue and cancel": lambda: store.cancel(put_one(store).id),
        "the first page": lambda: store.find(Filter(), limit=10),
        "get": lambda: store.get(running[0].id),
        # It reads what was counted for everybody a few seconds ago.
        "a scrape": ops.scrape,
    }
    few = {name: steps(watched, call) for name, call in verbs.items()}
    assert few["claim"] > 0
    crowd(store, watched, path)
    many = {name: steps(watched, call) for name, call in verbs.items()}
    grown = {name: (few[name], many[name]) for name in verbs if many[name] > 2 * few[name] + 200}
    assert grown == {}


def _claim_one_and_put_it_back(store: Store) -> None:
    [lease] = take(store, types={MAIL: 1})
    assert settle(store, lease, AGAIN)


def test_a_high_schema_version_makes_no_claim_dear(store: Store, watched: Watched) -> None:
    """Versions may be counted by dates, such as 20260131."""
    low = steps(watched, lambda: take(store, types={MAIL: 1}))
    high = steps(watched, lambda: take(store, types={MAIL: 100_000}))
    assert high <= 10 * low + 200


def test_a_claim_under_a_limit_reads_about_as_much_as_it_takes(store: Store, watched: Watched) -> None:
    tenants = [f"t{number}" for number in range(30)]
    want = Want(
        worker="worker-1",
        types={MAIL: 1},
        limit=30,
        slots=30,
        lease=LEASE,
        restricted={MAIL: Restriction(limits={MAIL: Limit(concurrency=1_000)})},
    )
    for _ in range(2):
        put(store, *(a_job(tenant=tenant) for tenant in tenants))
    few = steps(watched, lambda: store.claim(want))
    for _ in range(30):
        put(store, *(a_job(tenant=tenant) for tenant in tenants))
    many = steps(watched, lambda: store.claim(want))
    assert many < 1.5 * few
