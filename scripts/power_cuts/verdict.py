"""Is what was acknowledged before a cut still there after it, and nothing else?"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from windlass.clock import uuid7
from windlass.job import NewJob
from windlass.store.sqlite.library import sqlite3
from windlass.store.sqlite.store import SqliteStore

# The number of a job that a handler enqueues is this and its own.
CHILD = 1_000_000
TABLES = ("windlass_jobs", "windlass_archive")
Row = dict[str, Any]
# For each store that was at the path: with how many jobs it came, and the ids of all in the order of their
# commits.
Orders = Sequence[tuple[int, list[str]]]


class Story:
    """What the recorded processes had marked before the cut."""

    def __init__(self, marks: Sequence[str]) -> None:
        self.batches: list[list[int]] = []
        self.ran: set[str] = set()
        # Which of the stores that were at the path it can be.
        self.stores = [0]
        self.forget()
        for text in marks:
            if text != "die":
                self._add(*json.loads(text))

    def forget(self) -> None:
        """Another store is at the path: what was answered before was of the one before."""
        self.accepted: dict[str, int] = {}
        self.attempts: dict[str, int] = defaultdict(int)
        self.ended: dict[str, str] = {}
        self.saved: list[str] = []

    def _add(self, event: str, *values: Any) -> None:
        match event:
            case "sends":
                self.batches.append(values[0])
            case "accepted":
                self.accepted |= {job: n for n, job in values}
            case "claimed":
                for job, attempts in values:
                    self.attempts[job] = max(self.attempts[job], attempts)
            case "ended":
                self.ended[values[0]] = values[1]
            case "runs":
                self.ran.add(values[0])
            case "saved":
                self.saved.append(values[0])
            case "swaps":
                self.stores.append(self.stores[-1] + 1)
            case "swapped":
                self.stores.pop(0)
                self.forget()


def judge(folder: Path, marks: Sequence[str], orders: Orders) -> list[str]:
    """Open the store as its next user would; what is wrong with it."""
    path, story = folder / "jobs.db", Story(marks)
    try:
        with closing(SqliteStore(str(path), patience=1.0)) as store:
            problems = store.check()
            problems += compare(story, jobs(path), payments(path), orders)
            probe = NewJob(id=uuid7(), type="plain", payload=b'{"n":-1,"text":""}', max_attempts=1)
            store.enqueue([probe])
        # The log has gone into the file by now.
        problems += whole(path)
        if probe.id not in jobs(path):
            problems.append("a job that was enqueued after the cut is lost")
        for name in story.saved:
            problems += [f"backup {name}: {each}" for each in whole(folder / name)]
    except Exception as error:  # noqa: BLE001 - also what SQLite's words about a damaged file break
        return [f"the store cannot be used: {type(error).__name__}: {error}".replace(str(folder), "")]
    return problems


def whole(path: Path) -> list[str]:
    """What SQLite's own check finds."""
    if not path.exists():
        return ["there is no such file"]
    with closing(sqlite3.connect(path)) as connection:
        found = [row[0] for row in connection.execute("pragma integrity_check") if row[0] != "ok"]
        tables = {row[0] for row in connection.execute("select name from sqlite_schema")}
    return found if tables.issuperset(TABLES) else [*found, "there are no tables"]


def jobs(path: Path) -> dict[str, Row]:
    """All jobs by id, in the order of their numbers."""
    columns = "seq, id, type, state, attempts, json_extract(payload, '$.n') as n"
    text = " union all ".join(f"select {columns} from {table}" for table in TABLES)  # noqa: S608 - our own words
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return {row["id"]: dict(row) for row in connection.execute(f"{text} order by seq")}


def payments(path: Path) -> list[str]:
    """The jobs that have a row of their own."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            return [row[0] for row in connection.execute("select job from payments")]
        except sqlite3.OperationalError:
            return []


def compare(story: Story, found: dict[str, Row], paid: list[str], orders: Orders) -> list[str]:
    """What contradicts what the processes had been answered."""
    problems = []
    for store in story.stores:
        least, order = orders[store]
        missing = list(acknowledged(story, found)) if store == story.stores[0] else []
        if len(found) < least:
            missing.append(f"only {len(found)} of the {least} jobs of the backup are there")
        if list(found) != order[: len(found)]:
            missing.append("commits are missing before others that are there")
        problems.append(missing)
    return [*min(problems, key=len), *atomic(story, found, paid)]


def acknowledged(story: Story, found: dict[str, Row]) -> Iterator[str]:
    """What was answered, and is not there."""
    for job, n in story.accepted.items():
        if job not in found or found[job]["n"] != n:
            yield f"job {n} was accepted and is lost"
    for job, attempts in story.attempts.items():
        if job not in found or found[job]["attempts"] < attempts:
            yield f"job {job}: its attempt {attempts} is forgotten"
    for job, state in story.ended.items():
        if job not in found or found[job]["state"] != state:
            yield f"job {job} was {state} and is {found[job]['state'] if job in found else 'lost'}"


def atomic(story: Story, found: dict[str, Row], paid: list[str]) -> Iterator[str]:
    """What is there and was never sent, or is there by half."""
    present = {row["n"] for row in found.values()}
    if len(present) < len(found):
        yield "a job is there twice"
    for batch in story.batches:
        if 0 < len(present.intersection(batch)) < len(batch):
            yield f"only a part of the batch of job {batch[0]} is there"
    if stray := present.difference(*story.batches):
        yield f"jobs {sorted(stray)[:5]} were never sent"
    done = {job: row for job, row in found.items() if row["state"] == "completed"}
    if unrun := done.keys() - story.ran:
        yield f"{len(unrun)} jobs are completed and never ran"
    if sorted(paid) != sorted(job for job, row in done.items() if row["type"] == "pay"):
        yield "rows of handlers and completions do not match"
    parents = {row["n"] for row in done.values() if row["type"] == "split"}
    if {n - CHILD for n in present if n >= CHILD} != parents:
        yield "jobs enqueued by handlers and completions do not match"
