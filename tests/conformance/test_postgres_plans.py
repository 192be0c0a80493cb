"""Do the hot statements keep to their indexes, whatever the statistics say?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.servers import postgres
from windlass import connect
from windlass.store import statements
from windlass.store.postgres import address
from windlass.store.postgres.session import USES

NOBODY = "00000000-0000-0000-0000-000000000000"
ARRAYS = {"seqs": "{1,2}", "tokens": f"{{{NOBODY},{NOBODY}}}", "last_tokens": f"{{{NOBODY},{NOBODY}}}"}
NULLS = "{NULL,NULL}"
VALUES: dict[str, tuple[str, dict[str, Any]]] = {
    "claim_batch": (
        "claim",
        {
            "types": ["noop", "other"],
            "versions": [1, 1],
            "afters": ["", ""],
            "limit": 10,
            "slack": 1.0,
            "promoted": False,
            "floor": 0,
            "turn": None,
            "worker": "w",
            "mark": None,
            "lease": 60,
        },
    ),
    "claim_few": (
        "claim",
        {
            "types": ["noop", "other"],
            "versions": [1, 1],
            "few": 16,
            "floor": 0,
            "worker": "w",
            "mark": None,
            "lease": 60,
        },
    ),
    "settle_finish": (
        "settle",
        ARRAYS
        | {
            "marked": False,
            "states": "{completed,completed}",
            "reasons": NULLS,
            "errors": NULLS,
            "results": NULLS,
            "histories": NULLS,
        },
    ),
    "settle_put_back": (
        "settle",
        ARRAYS
        | dict.fromkeys(("waits", "given_backs", "snoozes", "interruptions", "losses"), "{0,0}")
        | dict.fromkeys(("reasons", "errors", "histories"), NULLS)
        | {"latest": 2**60},
    ),
    "settle_bury": (
        "settle",
        ARRAYS
        | {"losses": "{0,0}", "marked": False}
        | dict.fromkeys(("reasons", "errors", "histories"), NULLS),
    ),
    "settled_already": ("settle", {"seqs": ARRAYS["seqs"], "tokens": ARRAYS["tokens"]}),
    "extend_batch": ("beat", {"seqs": ARRAYS["seqs"], "tokens": ARRAYS["tokens"], "by": 60}),
    "promote_types": ("claim", {"types": ["noop", "other"], "now": 2**50, "limit": 1000}),
    "look_at_limits": (
        "claim",
        {
            "types": ["noop", "other"],
            "versions": [1, 1],
            "names": ["noop", "other", "key:crm", "*"],
            "kinds": ["", "", "key:", "*"],
            "owners": ["noop", "other", "crm", "*"],
            "mosts": [3, 3, 2, 10],
        },
    ),
    "lane_alone": ("claim", {"type": "noop", "known": 1, "limit": 10, "now": 2**62}),
    "lane_first_tenant": ("claim", {"type": "noop", "version": 1, "priority": 9, "now": 2**62}),
    "lane_turn": (
        "claim",
        {"type": "noop", "version": 1, "priority": 9, "after": "", "limit": 10, "now": 2**62},
    ),
    "look": ("beat", {"worker": "w", "types": ["noop"], "versions": [1], "reader": "r"}),
}
MOST_BLOCKS = {"claim_batch": 150, "look": 60}

# What skews the statistics: rows of one kind, analysed, and then gone or changed.
CROWDS = {
    "few among many dead": "insert_jobs:pending:1",
    "empty": "select 1",
    "all waiting": "insert_jobs:pending:1",
    "all running": "insert_jobs:processing:0",
    "all scheduled": "insert_jobs:pending:0",
    "all overdue": "insert_jobs:pending:0:0",
}


@pytest.fixture(scope="module", params=postgres.MAJORS)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres.fresh(request.param) as url:
        connect.migrate(url)
        yield url


@pytest.fixture(scope="module", params=CROWDS)
def crowded(database: str, request: pytest.FixtureRequest) -> str:
    """A database with a crowd in it, which costs more than all that is asked of it."""
    with psycopg.connect(database, autocommit=True) as connection:
        crowd(connection, request.param)
    return database


def crowd(connection: psycopg.Connection[Any], name: str) -> None:
    connection.execute("truncate windlass.jobs")
    if CROWDS[name].startswith("insert_jobs"):
        _, state, due, *times = CROWDS[name].split(":")
        run_at = times[0] if times else 2**62
        held = state == "processing"
        connection.execute(
            f"""
            insert into windlass.jobs (
                id, type, state, priority, due, payload, max_attempts,
                created_at, enqueued_at, updated_at, run_at, token, lease_until, worker
            )
            select gen_random_uuid(), 'crowd', '{state}', 9, {due}, '{{}}', 5, 0, 0, 0, {run_at},
                   {"gen_random_uuid(), " + str(2**62) + ", 'w'" if held else "null, null, null"}
              from generate_series(1, 30000)
            """.encode()
        )
    if "few" in name:
        connection.execute("delete from windlass.jobs where seq % 10000 > 0")
    connection.execute(
        "insert into windlass.workers values ('w', 'running', 0, 0, 0, '', '', '', 1, 1, '', '[]', 1)"
        " on conflict do nothing"
    )
    connection.execute("analyze windlass.jobs")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        # A scan without a condition reads everything, unless it may stop at once.
        part["May Stop"] = plan["Node Type"] == "Limit"
        yield from nodes(part)


def literal(value: object) -> str:
    """A value whose type the statement tells."""
    if value is None:
        return "null"
    if isinstance(value, list):
        value = "{" + ",".join(f'"{each}"' for each in value) + "}"
    return f"'{value}'"


@pytest.mark.parametrize("name", VALUES)
def test_a_hot_statement_keeps_to_its_indexes(
    crowded: str, name: str, request: pytest.FixtureRequest
) -> None:
    use, values = VALUES[name]
    if "few among" in request.node.name:
        # The vacuum after the statement before this one has removed the dead rows.
        with psycopg.connect(crowded, autocommit=True) as connection:
            crowd(connection, "few among many dead")
    text, names = statements.numbered(statements.load("postgres")[name])
    given = ", ".join(literal(({"now": None} | values)[each]) for each in names)
    with psycopg.connect(address.read(crowded).conninfo(**USES[use]), autocommit=True) as connection:
        # Prepared by hand: else a plan would be told that is made for these values, and not the one for any.
        connection.execute(f"prepare hot as {text}".encode())
        plan = explained(connection, given)
        if blocks(plan) > MOST_BLOCKS.get(name, 80):
            # An analyze by autovacuum, or any other change of the catalogue, makes the session read the
            # catalogue again in the middle of the statement, which is counted. A bad plan stays bad.
            plan = explained(connection, given)
    for node in nodes(plan):
        if node.get("Relation Name") == "jobs" and node["Node Type"] != "ModifyTable":
            assert node["Node Type"] in {"Index Scan", "Index Only Scan", "Tid Scan"}, node
            assert "Index Cond" in node or "TID Cond" in node or node.get("May Stop"), node
    assert blocks(plan) <= MOST_BLOCKS.get(name, 80), plan


def explained(connection: psycopg.Connection[Any], given: str) -> dict[str, Any]:
    """The plan of the prepared statement and what it read, rolled back."""
    connection.execute("begin")
    [(told,)] = connection.execute(
        f"explain (analyze, buffers, format json) execute hot ({given})".encode()
    ).fetchall()
    connection.execute("rollback")
    # What was rolled back would lie in the next one's way.
    connection.execute("vacuum windlass.jobs")
    plan: dict[str, Any] = told[0]["Plan"]
    return plan


def blocks(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_the_check_of_keys_does_not_walk_the_archive_for_each_key(database: str) -> None:
    text, _ = statements.numbered(statements.load("postgres")["check_keys"])
    with psycopg.connect(database, autocommit=True) as connection:
        # As little room as a large archive leaves: a hashed subplan that does not fit is run for each row.
        connection.execute("set work_mem = '64kB'")
        [(plan,)] = connection.execute(f"explain (format json) {text}".encode()).fetchall()
    assert not [node for node in nodes(plan[0]["Plan"]) if "Subplan Name" in node], plan
