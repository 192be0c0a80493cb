#!/usr/bin/env python3
"""Do a claim and an enqueue cost the same however full a store is? Fills one on PostgreSQL, measures again.

Starts a server of its own, or uses a new database of the one behind --db. Each filling is measured alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers import postgres
from windlass import Queue, connect
from windlass.bench.postgres import Server
from windlass.store import statements

SETTINGS = (
    "-c jit=off -c plan_cache_mode=force_generic_plan "
    "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
)
TRIES = 41
ALLOWED = 1.5
# Enqueues are measured in turn on both stores, so many at a time.
ROUNDS, EACH = 40, 50
WAITING = 100_000
ENQUEUE_ALLOWED = 1.2
# Medians of less than a millisecond scatter by so much on a machine that does other things, too.
NOISE = 0.3
JOBS = """
    insert into windlass.jobs (
        id, type, state, priority, due, payload, max_attempts, created_at, enqueued_at, updated_at, run_at
    )
    select gen_random_uuid(), '{type}', 'pending', {priority}, {due}, '{{"body": "{body}"}}', 5,
           now, now, now, now + {delay}
      from generate_series(1, {count}), windlass.now() as now
"""
ARCHIVED = """
    insert into windlass.archive (
        seq, id, type, state, priority, tenant, payload, schema_version, caller,
        max_attempts, attempts, claims, snoozes, interruptions, losses, replay_count,
        created_at, enqueued_at, updated_at, run_at, finished_at
    )
    select nextval('windlass.jobs_seq_seq'), gen_random_uuid(), 'noop', 'completed', 5, '',
           '{{"body": "{body}"}}', 1, '', 5, 1, 1, 0, 0, 0, 0, now, now, now, now, now
      from generate_series(1, {count}), windlass.now() as now
"""
BODY = "x" * 180
WEEK = 7 * 86_400_000_000


def fillings(scale: float) -> dict[str, str]:
    """What fills the store, by name."""

    def jobs(count: int, **changes: Any) -> str:
        shape = {"type": "noop", "priority": 5, "due": 1, "delay": 0, "body": BODY} | changes
        return JOBS.format(count=round(count * scale), **shape)

    return {
        "a million due jobs waiting": jobs(1_000_000),
        "a million scheduled for next week": jobs(1_000_000, due=0, delay=WEEK),
        "200,000 of an unserved type in front": jobs(200_000, type="unserved", priority=10),
        "ten million archived": ARCHIVED.format(count=round(10_000_000 * scale), body=BODY),
    }


class Measured:
    """Claims on one connection, all rolled back."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(
            url, autocommit=True, cursor_factory=psycopg.RawCursor, options=SETTINGS, prepare_threshold=0
        )
        self._text, self._names = statements.numbered(statements.load("postgres")["claim_batch"])

    def claim(self, limit: int) -> tuple[float, int]:
        """Milliseconds (the median) and blocks touched by a claim of so many."""
        values: dict[str, Any] = {
            "now": None,
            "types": ["noop", "mail", "report"],
            "versions": [1, 1, 1],
            "afters": ["", "", ""],
            "limit": limit,
            "slack": 1.0,
            "promoted": False,
            "floor": 0,
            "turn": None,
            "worker": "growth",
            "lease": 60_000_000,
            "mark": None,
        }
        given = [values[name] for name in self._names]
        # What is undone leaves dead rows behind, over which the next would walk; in a large table a vacuum
        # leaves the entries of so few in the indexes unless it is told not to.
        self.run("vacuum (index_cleanup on) windlass.jobs")
        plan = self._undone("explain (analyze, buffers, format json) " + self._text, given)[1][0][0]
        taken = [self._undone(self._text, given)[0] for _ in range(TRIES)]
        told = plan if isinstance(plan, list) else json.loads(plan)
        blocks = told[0]["Plan"]["Shared Hit Blocks"] + told[0]["Plan"]["Shared Read Blocks"]
        return statistics.median(taken) * 1000, blocks

    def run(self, statement: str) -> None:
        """Fill, or clean up."""
        self._connection.execute(statement.encode())

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _undone(self, text: str, given: list[Any]) -> tuple[float, list[Any]]:
        self.run("begin")
        begun = perf_counter()
        rows = self._connection.execute(text.encode(), given).fetchall()
        took = perf_counter() - begun
        # Past the driver, which after a rollback forgets what is prepared; the claims of a worker are.
        self._connection.pgconn.exec_(b"rollback")
        return took, rows


def measure(url: str, name: str, filling: str, limits: tuple[int, ...]) -> bool:
    """One filling, before and after; whether it stayed within what is allowed."""
    connect.migrate(url)
    store = Measured(url)
    try:
        store.run(JOBS.format(count=2_000, type="noop", priority=5, due=1, delay=0, body=BODY))
        store.run("vacuum analyze windlass.jobs")
        before = {limit: store.claim(limit) for limit in limits}
        store.run(filling)
        for table in ("jobs", "archive"):
            store.run(f"vacuum analyze windlass.{table}")
        after = {limit: store.claim(limit) for limit in limits}
    finally:
        store.close()
    fine = True
    for limit in limits:
        (slow, many), (quick, few) = after[limit], before[limit]
        fine &= many <= ALLOWED * few and slow <= ALLOWED * quick + NOISE
        print(f"{name:<38}{limit:>6}{quick:>10.2f}{slow:>10.2f}{few:>9}{many:>9}", flush=True)
    return fine


def noop(body: str) -> None:
    """Is never run."""


def measure_enqueues(place: Server, scale: float) -> bool:
    """The P99 of an enqueue beside none and beside many that wait; whether they are alike."""
    taken: list[list[float]] = [[], []]
    with ExitStack() as stack:
        job_types = []
        for depth in (0, round(WAITING * scale)):
            url = place.fresh("growth", beside=depth > 0)
            connect.migrate(url)
            with psycopg.connect(url, autocommit=True) as store:
                store.execute(JOBS.format(count=depth, type="noop", priority=5, due=1, delay=0, body=BODY))
                store.execute("vacuum analyze windlass.jobs")
            job_types.append(stack.enter_context(Queue(url)).job(noop))
        for _ in range(ROUNDS):
            for job_type, times in zip(job_types, taken, strict=True):
                for _ in range(EACH):
                    begun = perf_counter()
                    job_type.enqueue(BODY)
                    times.append((perf_counter() - begun) * 1000)
    few, many = (statistics.quantiles(times, n=100)[-1] for times in taken)
    print(
        f"P99 of an enqueue: {few:.2f} ms beside no other, {many:.2f} ms beside {depth:,} that wait",
        flush=True,
    )
    return many <= max(ENQUEUE_ALLOWED * few, few + NOISE)


@contextmanager
def server(url: str | None) -> Iterator[Server]:
    """New databases, on a server of our own if none is given."""
    if url is not None:
        place = Server(url)
        try:
            yield place
        finally:
            place.drop()
        return
    with postgres.running(max(postgres.majors()), shared_buffers="512MB") as own:
        yield Server(own.url())


def main() -> int:
    """Measure every filling and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", help="a PostgreSQL server, on which databases are made and dropped")
    parser.add_argument("--scale", type=float, default=1.0, help="fill with more or fewer jobs")
    parser.add_argument("--only", default="", help="only fillings with this word in their name, or `enqueue`")
    options = parser.parse_args()
    print(f"{'filling':<38}{'claim':>6}{'ms before':>10}{'after':>10}{'blocks':>9}{'after':>9}")
    with server(options.db) as place:
        fine = [
            measure(place.fresh("growth"), name, filling, (1, 10, 500))
            for name, filling in fillings(options.scale).items()
            if options.only in name
        ]
        if options.only in "enqueue":
            fine.append(measure_enqueues(place, options.scale))
    print("within 1.5 times" if all(fine) else "NOT within 1.5 times")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
