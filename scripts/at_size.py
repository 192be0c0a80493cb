#!/usr/bin/env python3
"""Does a server answer as quickly with a million live and ten million archived jobs? Its pages, and a scrape.

Fills a PostgreSQL store, starts `windlass serve` on it and asks for what each page of the dashboard asks
for, and for /metrics, again and again. In the end: does what has ended keep a job from being accepted?
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from urllib.request import urlopen

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from growth import ARCHIVED, BODY, JOBS, WEEK, server

from windlass import Queue, connect

TRIES = 30
PAGES = {
    "overview": ("stats", "workers", "failures?limit=6", "stats/history?step=minute"),
    "jobs": ("jobs?limit=50",),
    "jobs of a state": ("jobs?q=state:dead&limit=50",),
    "job": ("jobs/{live}", "jobs/{live}/explain"),
    "job, archived": ("jobs/{archived}",),
    "dead letters": ("dlq/groups",),
    "types": ("types", "catalogue"),
    "workers": ("workers", "jobs?state=processing&limit=200"),
    "schedules": ("schedules",),
    "database": ("database",),
    "audit": ("audit?limit=50",),
    "settings": ("settings", "keys"),
}


def fill(url: str, scale: float) -> None:
    """A million live jobs of 20 types, due, scheduled and dead; ten million in the archive."""
    connect.migrate(url)
    live, ended = round(1_000_000 * scale), round(10_000_000 * scale)
    with psycopg.connect(url, autocommit=True) as store:
        for number in range(20):
            shape = {"type": f"type{number}", "priority": number % 10, "body": BODY}
            store.execute(JOBS.format(count=live // 40, due=1, delay=0, **shape))
            store.execute(JOBS.format(count=live // 40, due=0, delay=WEEK, **shape))
        store.execute(ARCHIVED.format(count=ended, body=BODY))
        for table in ("jobs", "archive"):
            store.execute(f"vacuum analyze windlass.{table}")


@contextmanager
def serving(url: str) -> Iterator[str]:
    """The address of a server on the store."""
    words = [sys.executable, "-m", "windlass", "serve", "--port", "0", "--db", url]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = process.stderr.readline().rpartition("/docs")[0].rpartition(":")[2]
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


def ids(url: str) -> dict[str, str]:
    """A live and an archived job."""
    with psycopg.connect(url) as store:
        found = {}
        for name, table in (("live", "jobs"), ("archived", "archive")):
            row = store.execute(f"select id from windlass.{table} limit 1").fetchone()  # noqa: S608 - our own names
            found[name] = "" if row is None else str(row[0])
        return found


def took(address: str) -> float:
    """Milliseconds until everything has been read."""
    begun = perf_counter()
    with urlopen(address, timeout=60) as answer:  # noqa: S310 - our own server
        answer.read()
    return (perf_counter() - begun) * 1000


def noop(body: str) -> None:
    """Is never run."""


def accepts(url: str, count: int = 10) -> int:
    """Enqueue as many jobs as may wait, of the type of those that have ended, which do not fill a queue."""
    with Queue(url) as queue:
        waiting = sum(queue.store.take_sample(timedelta(0)).depths().pending.values())
        for name, most in (("noop", count), ("*", waiting + count)):
            queue.store.set_setting(f"{name}.hard_depth", str(most))
        return len(queue.enqueue_many(queue.job(noop).draft(BODY) for _ in range(count)))


def main() -> int:
    """Fill, ask, print the table; 1 if a page or a scrape is too slow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", help="a PostgreSQL server, on which a database is made and dropped")
    parser.add_argument("--scale", type=float, default=1.0, help="fill with more or fewer jobs")
    options = parser.parse_args()
    fine = True
    with server(options.db) as place:
        url = place.fresh("at_size")
        fill(url, options.scale)
        with serving(url) as address:
            known = ids(url)
            print(f"{'page':<18}{'requests':>9}{'p50 ms':>9}{'max ms':>9}", flush=True)
            for page, paths in PAGES.items():
                asked = [f"{address}/api/v1/{path.format(**known)}" for path in paths]
                fine &= line(page, [sum(map(took, asked)) for _ in range(TRIES)], len(asked), 100)
            fine &= line("scrape", [took(f"{address}/metrics") for _ in range(TRIES)], 1, 50)
        accepted = accepts(url)
        print(
            f"{accepted} jobs accepted of a type with a depth of at most {accepted} and millions that ended"
        )
    print("in time" if fine else "TOO SLOW")
    return 0 if fine else 1


def line(name: str, times: list[float], requests: int, allowed: float) -> bool:
    """Print a row; whether half of the answers, and all but the first, came in time."""
    print(f"{name:<18}{requests:>9}{statistics.median(times):>9.1f}{max(times[1:]):>9.1f}", flush=True)
    return statistics.median(times) <= allowed


if __name__ == "__main__":
    sys.exit(main())
