"""What does a store show when a run is over? Its jobs, its own counts, and the counts of its tables."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import NamedTuple

from windlass import connect
from windlass.job import Job
from windlass.store.fleet import LIVING
from windlass.store.jobs import Filter
from windlass.store.store import Store

_PAGE = 1000
_BY_STATE = """
    select state, count(*) from {0}jobs group by state
    union all select state, count(*) from {0}archive group by state
"""


class End(NamedTuple):
    """A store at one moment, at which no process changes it."""

    now: datetime
    jobs: dict[str, Job]
    # By state: as the store says, and as its tables have it.
    counted: dict[str, int]
    rows: dict[str, int]
    # Those that live.
    workers: frozenset[str]
    problems: list[str]


def look(store: Store, url: str, where: Filter | None = None) -> End:
    """Read all jobs, or those that are judged."""
    counted: Counter[str] = Counter()
    for each in store.counts().counts:
        counted[each.state.value] += each.count
    return End(
        now=store.now(),
        jobs={job.id: job for job in all_jobs(store, where)},
        counted={state: count for state, count in counted.items() if count},
        rows=rows(url),
        workers=frozenset(each.id for each in store.workers() if each.state in LIVING),
        problems=store.check(),
    )


def look_at(url: str, where: Filter | None = None) -> End:
    """The same, on a connection of its own."""
    with closing(connect.open(url)) as opened:
        return look(opened.store, url, where)


def all_jobs(store: Store, where: Filter | None = None) -> Iterator[Job]:
    """Every job, page by page."""
    cursor: str | None = None
    while True:
        page = store.find(where or Filter(), limit=_PAGE, cursor=cursor)
        yield from page.jobs
        cursor = page.next
        if cursor is None:
            return


def rows(url: str) -> dict[str, int]:
    """How many rows are in each state, by SQL and past the store's own code."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            # Looking must not move the log into the file.
            connection.execute("pragma wal_autocheckpoint = 0")
            return dict(connection.execute(_BY_STATE.format("windlass_")))
    import psycopg  # noqa: PLC0415 - an extra

    with psycopg.connect(url) as session:
        return dict(session.execute(_BY_STATE.format("windlass.").encode()).fetchall())
