"""What do the tables themselves say? Counted here from plain rows, by nobody's statement but this file's."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
_SECOND = 1_000_000
_FAR = 10**17


class Tables:
    """Every row of the tables that metrics are about, at one moment."""

    def __init__(self, url: str, now: int, unrecorded: Iterable[tuple[Row, Row]] = ()) -> None:
        """`unrecorded`: attempts that leave no record behind, with their jobs."""
        self._now = now
        self._unrecorded = list(unrecorded)
        with _connected(url) as ask:
            self.jobs = ask("select * from windlass.jobs")
            self.ended = ask("select * from windlass.archive")
            self.workers = ask("select * from windlass.workers")
            self.pauses = ask("select * from windlass.pauses")
            self.breakers = ask("select * from windlass.breakers")
            self.checks = ask("select * from windlass.checks")
            self.verdicts = ask("select * from windlass.verdicts")
            self.ticks = ask("select * from windlass.ticks")
            self.releases = ask("select * from windlass.releases")
            self.unread = {row["seq"]: row for row in ask("select * from windlass.unread where aside = 1")}
        self.everything = [*self.jobs, *self.ended]

    # --- how things stand ---

    def view(self, job: Row) -> str:
        """Where a live job stands."""
        if job["state"] == "processing":
            return "stuck" if job["lease_until"] < self._now else "processing"
        if job["state"] == "dead":
            return "dead"
        if job["run_at"] <= self._now:
            return "due"
        if not job["due"] and self.unread.get(job["seq"], {}).get("run_at") == job["run_at"]:
            return "unreadable"
        if job["run_at"] > _FAR:
            return "waiting"
        return "retrying" if job["attempts"] else "scheduled"

    def depths(self) -> Counter[tuple[str, ...]]:
        waiting = ("due", "scheduled", "retrying", "waiting", "unreadable")
        return Counter(
            (job["type"], str(job["priority"]), self.view(job))
            for job in self.jobs
            if self.view(job) in waiting
        )

    def of_type(self, *views: str) -> Counter[tuple[str, ...]]:
        return Counter((job["type"],) for job in self.jobs if self.view(job) in views)

    def of_tenant(self, named: Iterable[str]) -> Counter[tuple[str, ...]]:
        return Counter((_tenant(job, named), self.view(job)) for job in self.jobs)

    def oldest(self, view: str, column: str, *of: str) -> dict[tuple[str, ...], float]:
        """How long ago the first one's time was, by these columns."""
        found: dict[tuple[str, ...], float] = {}
        for job in self.jobs:
            if self.view(job) == view:
                key, age = tuple(str(job[name]) for name in of), self.seconds_since(job[column])
                found[key] = max(found.get(key, 0.0), age)
        return found

    def oldest_of_tenants(self, named: Iterable[str]) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for (tenant,), age in self.oldest("due", "run_at", "tenant").items():
            of = (tenant if tenant in named else "other",)
            found[of] = max(found.get(of, 0.0), age)
        return found

    def seconds_since(self, moment: int) -> float:
        return (self._now - moment) / _SECOND

    # --- what happened ---

    def ends(self, state: str) -> Counter[tuple[str, ...]]:
        return Counter((job["type"],) for job in self.everything if job["state"] == state)

    def replays(self) -> Counter[tuple[str, ...]]:
        found: Counter[tuple[str, ...]] = Counter()
        for job in self.everything:
            found[(job["type"],)] += job["replay_count"]
        return found

    def attempts(self) -> Iterator[tuple[Row, Row]]:
        """Every attempt, with its job."""
        yield from self._unrecorded
        for job in self.everything:
            history = job["history"]
            for each in (json.loads(history) if isinstance(history, str) else history) or ():
                yield job, each

    def failures(self) -> Iterator[tuple[Row, Row]]:
        return (pair for pair in self.attempts() if pair[1]["outcome"] in ("retry", "dead"))

    def runs(self) -> Iterator[tuple[Row, Row]]:
        """Attempts of which it is known how long they ran."""
        return (pair for pair in self.attempts() if pair[1].get("seconds") is not None)

    def tries(self) -> Iterator[tuple[Row, Row]]:
        """These, and those that were lost with their workers."""
        failed = ("retry", "dead")
        return (
            pair
            for pair in self.attempts()
            if pair[1].get("seconds") is not None or pair[1]["outcome"] in failed
        )


def _tenant(job: Row, named: Iterable[str]) -> str:
    return job["tenant"] if job["tenant"] in named else "other"


@contextlib.contextmanager
def _connected(url: str) -> Iterator[Any]:
    if url.startswith("sqlite:///"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.row_factory = sqlite3.Row
            yield lambda text: [dict(row) for row in file.execute(text.replace("windlass.", "windlass_"))]
    else:
        with psycopg.connect(url, row_factory=dict_row) as connection:
            yield lambda text: connection.execute(text.encode()).fetchall()
